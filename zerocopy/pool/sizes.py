"""Parses sizes of memory, and formats option values for messages."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Iterable
from typing import Any

from zerocopy.errors import PoolOptionError

# IEC 80000-13: KiB are 1024 bytes, kB are 1000. A single letter is refused, because nvidia-smi,
# Kubernetes and the JVM differ in its meaning.
_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    # Kubernetes writes "Gi" for "GiB".
    _UNITS |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power, f"{_prefix}i": 1024**_power}
_END = 2**63  # many of the interfaces below take signed sizes
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size(value: Any, option: str = "size") -> int:
    """Return a size in bytes."""
    asked = f"{option}={show_value(value)}"
    if isinstance(value, str):
        return _from_text(value, asked)
    try:
        # operator.index(True) is 1, but a bool as a size is probably a mistake.
        size = operator.index(value) if not isinstance(value, bool) else None
    except TypeError:
        size = None
    if size is None:
        raise PoolOptionError(
            asked, f"{type(value).__name__} is not a size", 'write bytes, 8 * 2**30, or a string, "8GiB"'
        )
    if size < 0:
        raise PoolOptionError(asked, "a size is not negative", "pass a number of bytes")
    return _within(size, asked)


def _from_text(text: str, asked: str) -> int:
    match = _SIZE.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or unit not in _UNITS:
        if match is not None and unit + "ib" in _UNITS:
            why = f"{match[2]!r} is ambiguous (1000-based or 1024-based)"
            raise PoolOptionError(
                asked, why, f'write "{match[1]}{unit.upper()}iB" or "{match[1]}{unit.upper()}B"'
            )
        why = "a size is not negative" if text.strip().startswith("-") else "it is not a size"
        raise PoolOptionError(asked, why, 'write it as "8GiB", "512 MB" or 4096')
    number = float(match[1]) * _UNITS[unit]
    if number > _END:  # also infinite, and more digits than int() accepts
        number = float(_END)
    elif match[1].isdigit():  # exact, unlike the float
        return _within(int(match[1]) * _UNITS[unit], asked)
    return _within(int(number), asked)


def _within(size: int, asked: str) -> int:
    if size >= _END:
        raise PoolOptionError(asked, "it exceeds the address space", 'write it as "8GiB"')
    return size


def show_value(value: Any) -> str:
    """Return a value as one line of at most 200 characters, for a message."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"int of {value.bit_length()} bits"  # Python converts at most 4300 digits to text
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def suggest(name: Any, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the most similar names, and all names."""
    near = difflib.get_close_matches(str(name).lower(), list(known), n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}known: {', '.join(known)}"
