"""Checks of the options that ``aos_to_soa`` and ``soa_to_aos`` share, and the call text of their errors."""

from __future__ import annotations

from typing import Any

from zerocopy.errors import CopyRequiredError, UnsupportedConversionError

AOS_TO_SOA = "aos_to_soa(records)"
SOA_TO_AOS = "soa_to_aos(columns)"


def check_options(asked: str, threads: int | None, copy: bool | None) -> None:
    """Raise ValueError unless `threads` is a positive integer or None, and `copy` a bool or None."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ValueError(f"{asked}: threads must be an integer of at least 1, or None; got {threads!r}")
    if not (copy is None or copy is True or copy is False):  # `in` would accept 0 and 1
        raise ValueError(f"{asked}: copy must be True, False or None; got {copy!r}")


def refuse_stream(asked: str, stream: Any) -> None:
    """Raise if there is a stream for memory of the host."""
    if stream is not None:
        why = "the data is in host memory, which has no streams"
        raise UnsupportedConversionError(asked, why, "leave stream= out", code="option-value")


def copy_required(asked: str, why: str, *, code: str) -> CopyRequiredError:
    """Return the error for ``copy=False`` where a copy is needed."""
    return CopyRequiredError(f"{asked[:-1]}, copy=False)", why, "leave copy=False out", code=code)
