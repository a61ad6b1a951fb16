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


def parse_size(value: Any, option: str = "size", *, text: bool = True) -> int:
    """Return a size in bytes, of a whole number or, with `text`, of a text such as ``"8GiB"``."""
    try:
        if isinstance(value, str) and text:
            return _check(_from_text(value))
        if isinstance(value, bool):  # a whole number, but as a size probably a mistake
            raise TypeError
        return _check(operator.index(value))
    except TypeError:
        why, remedy = f"{type(value).__name__} is not a size", 'write bytes, 8 * 2**30, or a string, "8GiB"'
    except _InvalidSizeError as error:
        why, remedy = error.args
    raise PoolOptionError(f"{option}={show_value(value)}", why, remedy)


class _InvalidSizeError(Exception):
    """A reason, and what to write."""


def _from_text(text: str) -> int:
    match = _SIZE.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is not None and unit not in _UNITS and unit + "ib" in _UNITS:
        why = f"{match[2]!r} is ambiguous (1000-based or 1024-based)"
        raise _InvalidSizeError(why, f'write "{match[1]}{unit.upper()}iB" or "{match[1]}{unit.upper()}B"')
    if match is None or unit not in _UNITS:
        why = "a size is not negative" if text.strip().startswith("-") else "it is not a size"
        raise _InvalidSizeError(why, 'write it as "8GiB", "512 MB" or 4096')
    number = float(match[1]) * _UNITS[unit]
    if number > _END:  # also infinite, and more digits than int() accepts
        return _END
    return int(match[1]) * _UNITS[unit] if match[1].isdigit() else int(number)  # exact for whole numbers


def _check(size: int) -> int:
    if 0 <= size < _END:
        return size
    why = "a size is not negative" if size < 0 else "it exceeds the address space"
    raise _InvalidSizeError(why, 'pass a number of bytes, or a text as "8GiB"')


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
