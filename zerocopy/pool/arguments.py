"""The arguments of the external allocator interface, checked."""

from __future__ import annotations

from typing import Any

from zerocopy.device import parse_stream
from zerocopy.errors import PoolOptionError

_LEGACY_DEFAULT_STREAM = 1


def number_of_bytes(nbytes: Any) -> int:
    """Return a number of bytes; refuse what is none."""
    if isinstance(nbytes, bool) or not hasattr(nbytes, "__index__"):
        raise PoolOptionError(f"nbytes={nbytes!r}", "it is no number of bytes", "pass a whole number")
    number = int(nbytes)
    if not 0 <= number < 2**63:
        why = "a size is not negative" if number < 0 else "no memory is as large as that"
        raise PoolOptionError(f"nbytes={nbytes!r}", why, "pass the bytes that are needed")
    return number


def handle(stream: Any) -> int:
    """Return a stream's handle for the driver: 1 is the legacy default stream, which 0 means too."""
    if stream is None:
        return _LEGACY_DEFAULT_STREAM
    if not hasattr(stream, "__index__"):
        return parse_stream(stream) or _LEGACY_DEFAULT_STREAM
    number = int(stream)
    if not 0 <= number < 2**64:
        raise PoolOptionError(f"stream={stream!r}", "it is no stream's handle", "leave it out, or pass one")
    return number or _LEGACY_DEFAULT_STREAM
