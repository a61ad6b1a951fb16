"""Sizes of memory: as people write them, and as people read them."""

from __future__ import annotations

import operator
import re
from typing import Any

from zerocopy.errors import PoolOptionError

# IEC 80000-13: KiB are 1024 bytes, kB are 1000. A letter alone is taken as nvidia-smi,
# Kubernetes and the JVM differ on it: so it is refused below, and the message says why.
_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    # As Kubernetes writes them.
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_END = 2**63  # addresses and sizes are signed in half of the interfaces below
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size(value: Any, option: str = "size") -> int:
    """Return a size in bytes.

    Parameters
    ----------
    value : int or str
        Bytes, or a string with a unit: ``"8GiB"``, ``"512 MB"``, ``"1.5 GiB"``.
    option : str
        What it is the value of, for the message.

    Raises
    ------
    PoolOptionError
        It is no size, or it is negative.

    Examples
    --------
    >>> parse_size("8GiB"), parse_size("512 MB"), parse_size(4096)
    (8589934592, 512000000, 4096)
    """
    asked = f"{option}={show_value(value)}"
    if isinstance(value, str):
        return _from_text(value, asked)
    try:
        # True is 1 to operator.index, and nobody means a byte by it.
        size = operator.index(value) if not isinstance(value, bool) else None
    except TypeError:
        size = None
    if size is None:
        raise PoolOptionError(
            asked, f"{type(value).__name__} is no size", 'write bytes, 8 * 2**30, or a string, "8GiB"'
        )
    if size < 0:
        raise PoolOptionError(asked, "a size is not negative", "write the bytes that it is to be")
    return _within(size, asked)


def _from_text(text: str, asked: str) -> int:
    match = _SIZE.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match is None or unit not in _UNITS:
        if match is not None and unit + "ib" in _UNITS:
            why = f"{match[2]!r} is 1000-fold to some and 1024-fold to others"
            raise PoolOptionError(
                asked, why, f'write "{match[1]}{unit.upper()}iB" or "{match[1]}{unit.upper()}B"'
            )
        why = "a size is not negative" if text.strip().startswith("-") else "it is no size"
        raise PoolOptionError(asked, why, 'write it as "8GiB", "512 MB" or 4096')
    number = float(match[1]) * _UNITS[unit]
    if number > _END:  # infinite too, and more digits than int() takes
        number = float(_END)
    elif match[1].isdigit():  # to the byte
        return _within(int(match[1]) * _UNITS[unit], asked)
    return _within(int(number), asked)


def _within(size: int, asked: str) -> int:
    if size >= _END:
        raise PoolOptionError(asked, "no memory is as large as that", 'write it as "8GiB"')
    return size


def show_value(value: Any) -> str:
    """Return a value for a message: in a line, and not longer than one.

    Examples
    --------
    >>> show_value("8GiB"), show_value(10**10000)
    ("'8GiB'", 'int of 33220 bits')
    """
    if isinstance(value, int) and value.bit_length() > 256:
        return f"int of {value.bit_length()} bits"  # Python writes no more than 4300 digits
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:197]}..."


def show_size(size: int) -> str:
    """Return a size for people to read.

    Examples
    --------
    >>> show_size(0), show_size(1536), show_size(80 * 2**30)
    ('0 B', '1.5 KiB', '80 GiB')
    """
    amount = float(size)
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(amount) >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.3g} {units[0]}" if abs(amount) < 999.5 else f"{amount:.0f} {units[0]}"
