"""Data types by their standard names, and what DLPack and NumPy call them.

The names are the array API standard's and, beyond it, those of ``ml_dtypes``.
The codes are ``DLDataTypeCode`` of the DLPack standard (dlpack.h, version 1.2).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

INT, UINT, FLOAT, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 4, 5, 6


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One data type; there is one object a type, so ``is`` compares them.

    Attributes
    ----------
    name : str
        Its standard name: ``"float32"``, ``"bfloat16"``, ``"float8_e4m3fn"``.
    code, bits, lanes : int
        ``DLDataType`` of the DLPack standard (dlpack.h 1.2): the code, the bits of a lane, the lanes.
    itemsize : int
        Bytes that one element takes in memory; types of fewer than 8 bits take a
        whole byte each, as ``ml_dtypes`` stores them.
    storage : numpy.dtype
        What NumPy holds the bytes in: the type itself where NumPy has it,
        unsigned integers of the same width where it has not.
    in_numpy : bool
        Whether NumPy itself has the type, without ``ml_dtypes``.

    Examples
    --------
    >>> from zerocopy.dtype import by_name
    >>> by_name("bfloat16").storage
    dtype('uint16')
    """

    name: str
    code: int
    bits: int
    lanes: int
    itemsize: int
    storage: np.dtype[Any]
    in_numpy: bool

    def __str__(self) -> str:
        return self.name


def _native(name: str, code: int) -> DType:
    storage = np.dtype(name)
    return DType(name, code, storage.itemsize * 8, 1, storage.itemsize, storage, in_numpy=True)


def _foreign(name: str, code: int, bits: int, lanes: int = 1) -> DType:
    width = max(1, bits * lanes // 8)
    return DType(name, code, bits, lanes, width, np.dtype(f"u{width}"), in_numpy=False)


_NATIVE = [
    _native("bool", BOOL),
    *(_native(f"int{bits}", INT) for bits in (8, 16, 32, 64)),
    *(_native(f"uint{bits}", UINT) for bits in (8, 16, 32, 64)),
    *(_native(f"float{bits}", FLOAT) for bits in (16, 32, 64)),
    *(_native(f"complex{bits}", COMPLEX) for bits in (64, 128)),
]

_FOREIGN = [
    _foreign("bfloat16", BFLOAT, 16),
    _foreign("float8_e3m4", 7, 8),
    _foreign("float8_e4m3", 8, 8),
    _foreign("float8_e4m3b11fnuz", 9, 8),
    _foreign("float8_e4m3fn", 10, 8),
    _foreign("float8_e4m3fnuz", 11, 8),
    _foreign("float8_e5m2", 12, 8),
    _foreign("float8_e5m2fnuz", 13, 8),
    _foreign("float8_e8m0fnu", 14, 8),
    _foreign("float6_e2m3fn", 15, 6),
    _foreign("float6_e3m2fn", 16, 6),
    _foreign("float4_e2m1fn", 17, 4),
    _foreign("float4_e2m1fn_x2", 17, 4, lanes=2),
    _foreign("complex32", COMPLEX, 32),
    *(_foreign(f"int{bits}", INT, bits) for bits in (2, 4)),
    *(_foreign(f"uint{bits}", UINT, bits) for bits in (2, 4)),
]

ALL: tuple[DType, ...] = (*_NATIVE, *_FOREIGN)
NATIVE_NAMES = frozenset(t.name for t in _NATIVE)
#: Types whose elements are smaller than a byte: frameworks disagree on their layout.
SUBBYTE_NAMES = frozenset(t.name for t in _FOREIGN if t.bits < 8 and t.lanes == 1)

_BY_NAME = {t.name: t for t in ALL}
_BY_DLPACK = {(t.code, t.bits, t.lanes): t for t in ALL}
# Filled with the ml_dtypes as they are met: their np.dtype objects cannot be
# made without importing ml_dtypes, which nobody may have asked for.
_BY_NUMPY: dict[np.dtype[Any], DType] = {t.storage: t for t in _NATIVE}


def by_name(name: str) -> DType:
    """Return the type of that standard name.

    Raises
    ------
    KeyError
        No such type.
    """
    return _BY_NAME[name]


def by_dlpack(code: int, bits: int, lanes: int) -> DType | None:
    """Return the type of a ``DLDataType``, or None for one that has no name here."""
    return _BY_DLPACK.get((code, bits, lanes))


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the type of a NumPy dtype (``ml_dtypes`` included), or None.

    Byte-swapped types have none: their bytes mean something else.

    Examples
    --------
    >>> from_numpy(np.dtype("float32")).name
    'float32'
    >>> from_numpy(np.dtype(">f4")) is None
    True
    """
    found = _BY_NUMPY.get(dtype)
    if found is None and dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        found = _BY_NAME.get(dtype.name)
        if found is not None:
            _BY_NUMPY[dtype] = found
    return found


@functools.cache
def native_numbers() -> frozenset[int]:
    """Return the numbers of NumPy's own types that tensors have (``dtype.num``), whatever the byte order.

    By number, since hashing a dtype takes 90 ns more. Two of them may be one type: ``long`` and
    ``long long`` have numbers of their own.
    """
    return frozenset(np.dtype(char).num for char in "?bBhHiIlLqQefdFD")


def to_numpy(dtype: DType) -> np.dtype[Any] | None:
    """Return the NumPy dtype of a type; None where only ``ml_dtypes`` has it and it is absent.

    Examples
    --------
    >>> to_numpy(by_name("int16"))
    dtype('int16')
    """
    if dtype.in_numpy:
        return dtype.storage
    try:
        import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ModuleNotFoundError:
        return None
    scalar = getattr(ml_dtypes, dtype.name, None)
    return None if scalar is None else np.dtype(scalar)
