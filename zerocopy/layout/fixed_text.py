"""Text and bytes of any length as NumPy's ``S`` and ``U``, which have one length.

A value is refused if the type would change it. ``S`` holds bytes, and text as UTF-8; ``U`` holds text, and
bytes that are UTF-8. NumPy itself truncates longer values, drops NULs at the end, and encodes text as ASCII.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zerocopy.errors import LossyConversionError
from zerocopy.source import Array


def holds_text(column: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Whether `fixed_text` applies: a column of text, bytes or objects in a field of ``S`` or ``U``."""
    return dtype.kind in "SU" and column.kind in "OSTU"


def fixed_text(values: Sequence[Any], dtype: np.dtype[Any], column: str) -> Array:
    """Return values as an array of `dtype`.

    Parameters
    ----------
    values : sequence of str or bytes
    dtype : numpy.dtype
        Of kind ``S`` or ``U``.
    column : str
        The column, for messages: ``"column 'a'"``.

    Raises
    ------
    LossyConversionError
        A value is longer than the type, ends with a NUL, is not text, or is not UTF-8.

    Examples
    --------
    >>> fixed_text(["a", b"bc"], np.dtype("S4"), "column 'a'")
    array([b'a', b'bc'], dtype='|S4')
    """
    convert = _as_bytes if dtype.kind == "S" else _as_text
    width = dtype.itemsize if dtype.kind == "S" else dtype.itemsize // 4
    out: Array = np.zeros(len(values), [("", dtype)])["f0"]  # numpy.zeros gives a width of 0 one character
    for row, value in enumerate(values):
        fixed = convert(value)
        if isinstance(fixed, str if dtype.kind == "S" else bytes):
            why = f"{column} cannot be {dtype} in row {row}: {fixed!r} is not UTF-8"
        elif fixed is None:
            why = f"{column} cannot be {dtype} in row {row}: {value!r} is not text"
        elif len(fixed) > width:
            unit = "bytes" if dtype.kind == "S" else "characters"
            why = f"{column} cannot be {dtype} in row {row}: the value has {len(fixed):,} {unit}"
        elif fixed[-1:] in ("\0", b"\0"):
            why = f"{column} cannot be {dtype} in row {row}: the value ends with a NUL, which NumPy drops"
        else:
            out[row] = fixed
            continue
        longest = max((len(v) for v in map(convert, values) if v is not None), default=1)
        remedy = f"give the field the dtype '{dtype.kind}{longest}'" if len(fixed or "") > width else ""
        raise LossyConversionError("", why, remedy or "replace the value", code="lossy-cast")
    return out


def _as_bytes(value: Any) -> bytes | str | None:
    """Return a value as bytes; None if it is not text, and itself if it has no UTF-8 (a lone surrogate)."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, str):
        return None
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value


def _as_text(value: Any) -> bytes | str | None:
    """Return a value as text; None if it is not text, and itself if it is not UTF-8."""
    if isinstance(value, str):
        return value
    data = _as_bytes(value)
    if not isinstance(data, bytes):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data
