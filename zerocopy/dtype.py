"""Data types: standard names, and their equivalents in DLPack and NumPy.

The names are those of the array API standard and, beyond it, of ``ml_dtypes``.
The codes are ``DLDataTypeCode`` of the DLPack standard (dlpack.h, version 1.2).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

INT, UINT, FLOAT, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 4, 5, 6


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One data type. There is one object per type, so ``is`` compares types.

    Attributes
    ----------
    name : str
        Standard name: ``"float32"``, ``"bfloat16"``, ``"float8_e4m3fn"``.
    code, bits, lanes : int
        ``DLDataType`` of the DLPack standard (dlpack.h 1.2): type code, bits per lane, lanes.
    itemsize : int
        Bytes per element. Types of fewer than 8 bits use a whole byte, as in ``ml_dtypes``.
    storage : numpy.dtype
        NumPy type that holds the bytes: the type itself, or unsigned integers of the
        same width if NumPy lacks it.
    in_numpy : bool
        Whether NumPy has the type without ``ml_dtypes``.

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

    @property
    def wider(self) -> str:
        """The name of a wider type that all frameworks have, for a type that few have; else empty."""
        if self.in_numpy or self.lanes > 1:
            return ""
        if self.name == "complex32":
            return "complex64"
        return "float32" if "float" in self.name else "int8"

    def __dlpack_data_type__(self) -> tuple[int, int, int]:
        """Return DLPack's type code, bits and lanes (array-api#972)."""
        return self.code, self.bits, self.lanes

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
#: What ``dtype="bool8"`` requests: bool, which a framework with bits stores as Arrow's ``arrow.bool8``.
BOOL8 = replace(_NATIVE[0], name="bool8")
NATIVE_NAMES = frozenset(t.name for t in _NATIVE)
REAL_NAMES = tuple(t.name for t in _NATIVE if t.code != COMPLEX)
#: Types whose elements are smaller than a byte: frameworks disagree on their layout.
SUBBYTE_NAMES = frozenset(t.name for t in _FOREIGN if t.bits < 8 and t.lanes == 1)

_BY_NAME = {t.name: t for t in ALL}
#: Returns the type with a standard name; raises KeyError if no type has it.
by_name: Callable[[str], DType] = _BY_NAME.__getitem__
_BY_DLPACK = {(t.code, t.bits, t.lanes): t for t in ALL}
# Types of ml_dtypes are added at first use: creating their np.dtype objects would import
# ml_dtypes (promise P6).
_BY_NUMPY: dict[np.dtype[Any], DType] = {t.storage: t for t in _NATIVE}


def by_dlpack(code: int, bits: int, lanes: int) -> DType | None:
    """Return the type of a ``DLDataType``, or None if it has no standard name."""
    return _BY_DLPACK.get((code, bits, lanes))


def from_numpy(dtype: np.dtype[Any]) -> DType | None:
    """Return the type of a NumPy dtype (``ml_dtypes`` included), or None.

    The result is None for types in the other byte order.

    Examples
    --------
    >>> from_numpy(np.dtype("float32")).name
    'float32'
    >>> from_numpy(np.dtype(">f4")) is None
    True
    """
    known = _BY_NUMPY.get(dtype)
    if known is None and dtype.type.__module__.partition(".")[0] == "ml_dtypes":
        known = _BY_NAME.get(dtype.name)
        if known is not None:
            _BY_NUMPY[dtype] = known
    return known


@functools.cache
def native_numbers() -> frozenset[int]:
    """Return ``dtype.num`` of NumPy's types that tensors have, in any byte order.

    Numbers rather than dtypes, because hashing a dtype takes 90 ns longer. One type can have two
    numbers, as ``long`` and ``long long`` do.
    """
    return frozenset(np.dtype(char).num for char in "?bBhHiIlLqQefdFD")


def to_numpy(dtype: DType) -> np.dtype[Any] | None:
    """Return the NumPy dtype of a type; None if only ``ml_dtypes`` has it and is not installed.

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
