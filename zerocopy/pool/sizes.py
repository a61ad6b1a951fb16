"""Parses sizes of memory, and formats option values for messages."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from zerocopy.errors import OptionError
from zerocopy.formatting import shown

# IEC 80000-13: KiB are 1024 bytes, kB are 1000. A single letter is refused, because nvidia-smi,
# Kubernetes and the JVM differ in its meaning.
_UNITS = {"": 1, "b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    # Kubernetes writes "Gi" for "GiB".
    _UNITS |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power, f"{_prefix}i": 1024**_power}
_END = 2**63  # many of the interfaces below take signed sizes
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


class InvalidValueError(Exception):
    """The reason why the value of an option is invalid, and what to write."""


def read_option(read: Callable[[Any], Any], value: Any, name: str) -> Any:
    """Return ``read(value)``; raise an error with the name of the option if the value is invalid."""
    try:
        return read(value)
    except InvalidValueError as error:
        why, remedy = error.args
    raise OptionError(f"{name}={shown(value)}", why, remedy)


def parse_size(value: Any, option: str = "size") -> int:
    """Return a size in bytes, of a whole number or of a text such as ``"8GiB"``."""
    size: int = read_option(read_size, value, option)
    return size


def read_size(value: Any) -> int:
    """Return a size in bytes, of a whole number or of a text."""
    return _from_text(value) if isinstance(value, str) else read_nbytes(value)


def read_nbytes(value: Any) -> int:
    """Return a whole number of bytes."""
    # A bool is a whole number, but as a size probably a mistake.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        why = f"{type(value).__name__} is not a size"
        raise InvalidValueError(why, 'write bytes, 8 * 2**30, or a string, "8GiB"')
    size = operator.index(value)
    if 0 <= size < _END:
        return size
    why = "a size is not negative" if size < 0 else "it exceeds the address space"
    raise InvalidValueError(why, 'pass a number of bytes, or a text such as "8GiB"')


def _from_text(text: str) -> int:
    match = _SIZE.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is not None and unit not in _UNITS and unit + "ib" in _UNITS:
        why = f"{match[2]!r} is ambiguous (1000-based or 1024-based)"
        raise InvalidValueError(why, f'write "{match[1]}{unit.upper()}iB" or "{match[1]}{unit.upper()}B"')
    if match is None or unit not in _UNITS:
        why = "a size is not negative" if text.strip().startswith("-") else "it is not a size"
        raise InvalidValueError(why, 'write it as "8GiB", "512 MB" or 4096')
    number = float(match[1]) * _UNITS[unit]
    if number > _END:  # also infinite, and more digits than int() accepts
        return read_nbytes(_END)
    return read_nbytes(int(match[1]) * _UNITS[unit] if match[1].isdigit() else int(number))  # exact


def suggest(name: Any, known: Iterable[str]) -> str:
    """Return the remedy for an unknown name: the most similar names, and all names."""
    near = difflib.get_close_matches(str(name).lower(), list(known), n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}known: {', '.join(known)}"
