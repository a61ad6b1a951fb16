"""Casts of values in host memory, which report every value that the new type cannot hold.

"Fits" means: an integer is in range; a float becomes an integer only if it is finite, integral and in
range; an integer becomes a float only if that is exact; a float may be rounded to a narrower float, but
not become infinite; a complex number becomes real only if its imaginary part is 0; a number becomes a
boolean only if it is 0 or 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.dtype import BOOL, COMPLEX, INT, UINT, DType, by_name, to_numpy
from zerocopy.source import Array

#: Bits of the significand, the largest finite value, and whether there are infinities.
_FLOATS: dict[str, tuple[int, float, bool]] = {
    "float16": (11, 65504.0, True),
    "float32": (24, float(np.finfo("f4").max), True),
    "float64": (53, float(np.finfo("f8").max), True),
    "bfloat16": (8, float.fromhex("0x1.fep127"), True),
    "float8_e3m4": (5, 15.5, True),
    "float8_e4m3": (4, 240.0, True),
    "float8_e4m3b11fnuz": (4, 30.0, False),
    "float8_e4m3fn": (4, 448.0, False),
    "float8_e4m3fnuz": (4, 240.0, False),
    "float8_e5m2": (3, 57344.0, True),
    "float8_e5m2fnuz": (3, 57344.0, False),
}
_COMPONENTS = {"complex64": by_name("float32"), "complex128": by_name("float64")}


def can_cast(dtype: DType) -> bool:
    """Whether values of the type can be cast here: not of packed pairs, and not of floats below 8 bits."""
    return dtype.name in _FLOATS or dtype.name in _COMPONENTS or dtype.code in (INT, UINT, BOOL)


def limits(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer or boolean type."""
    if dtype.code == BOOL:
        return 0, 1
    if dtype.code == UINT:
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def float_limits(dtype: DType) -> tuple[int, int] | None:
    """Return the range in which a float type holds every integer; None for another type."""
    if dtype.name not in _FLOATS:
        return None
    precision, most, _ = _FLOATS[dtype.name]
    exact = int(min(2**precision, most))
    return -exact, exact


def always_fits(old: DType, new: DType) -> bool:
    """Whether the new type holds, or rounds, every value of the old one."""
    if old is new or old.code == BOOL:
        return True
    if new.name in _COMPONENTS:
        return always_fits(_COMPONENTS.get(old.name, old), _COMPONENTS[new.name])
    if old.name in _COMPONENTS:
        return False
    if old.name in _FLOATS:
        if new.name not in _FLOATS:
            return False
        (_, most, _), (_, allowed, infinite) = _FLOATS[old.name], _FLOATS[new.name]
        return infinite and most <= allowed
    low, high = limits(old)
    if new.name in _FLOATS:
        exact = float_limits(new)
        return exact is not None and exact[0] <= low and high <= exact[1]
    least, greatest = limits(new)
    return least <= low and high <= greatest


def cast_block(values: Array, out: Array, old: DType, new: DType) -> Array | None:
    """Write `values` into `out`, both in their storage types; return which do not fit, None for none.

    Temporary arrays have the size of `values`, so callers pass blocks that fit into the cache.
    """
    with np.errstate(all="ignore"):
        return _cast(values.view(_numpy(old)), out.view(_numpy(new)), old, new)


def _numpy(dtype: DType) -> np.dtype[Any]:
    known = to_numpy(dtype)
    assert known is not None  # the caller has checked that ml_dtypes is installed
    return known


def _cast(values: Array, out: Array, old: DType, new: DType) -> Array | None:
    if new.name in _COMPONENTS:
        part = _COMPONENTS[new.name]
        if old.name in _COMPONENTS:
            own = _COMPONENTS[old.name]
            return _either(_cast(values.real, out.real, own, part), _cast(values.imag, out.imag, own, part))
        out.imag = 0
        return _cast(values, out.real, old, part)
    if old.name in _COMPONENTS:
        imaginary = values.imag != 0
        return _either(_cast(values.real, out, _COMPONENTS[old.name], new), _or_none(imaginary))
    if old.name in _FLOATS:
        return _from_float(values, out, new)
    integers = values if old.in_numpy else values.astype(np.int8)
    _store(integers, out, new)
    if always_fits(old, new) or not values.size:
        return None
    if new.name in _FLOATS:
        return _inexact(integers, new)
    return _out_of_range(integers, *limits(new))


def _store(values: Array, out: Array, new: DType) -> None:
    if new.in_numpy:
        np.copyto(out, values, casting="unsafe")
    elif new.name in _FLOATS:  # ml_dtypes has no casts from some integers
        out[...] = (values if values.dtype.kind == "f" else values.astype(np.float64)).astype(out.dtype)
    else:
        out[...] = values.astype(np.int8).astype(out.dtype)


def _from_float(values: Array, out: Array, new: DType) -> Array | None:
    # Types of ml_dtypes, and float16, lack some functions and the range of integers: float32 holds all.
    wide = values if values.dtype in (np.float32, np.float64) else values.astype(np.float32)
    _store(wide, out, new)
    if new.name in _FLOATS:
        # Values that are too large become infinite, or NaN in a type without infinities.
        stored = out if new.in_numpy else out.astype(np.float32)
        if np.isfinite(stored).all():
            return None
        same = (np.isfinite(stored) == np.isfinite(wide)) & (np.isnan(stored) == np.isnan(wide))
        return _or_none(~same)
    low, high = limits(new)
    # The upper limit is exact in floats: it is a power of two. Comparisons with NaN are false.
    fits = (wide >= float(low)) & (wide < float(high + 1)) & (np.trunc(wide) == wide)
    return _or_none(~fits)


def _out_of_range(values: Array, low: int, high: int) -> Array | None:
    own = np.iinfo(values.dtype)
    low, high = max(low, int(own.min)), min(high, int(own.max))
    if low <= int(values.min()) and int(values.max()) <= high:
        return None
    return (values < low) | (values > high)


def _inexact(values: Array, new: DType) -> Array | None:
    precision, most, _ = _FLOATS[new.name]
    exact = int(min(2**precision, most))
    if -exact <= int(values.min()) and int(values.max()) <= exact:
        return None
    # Exact if the significand has room for the bits from the highest to the lowest that is set.
    # abs() of the least int64 overflows to itself, which is 2**63 as an unsigned integer.
    wide = values if values.dtype == np.uint64 else np.abs(values.astype(np.int64)).view(np.uint64)
    lowest = wide & (~wide + np.uint64(1))
    inexact = (wide >> np.uint64(precision)) >= np.maximum(lowest, np.uint64(1))
    if most < 2**64:
        inexact |= wide > np.uint64(int(most))
    return _or_none(inexact)


def _either(a: Array | None, b: Array | None) -> Array | None:
    return b if a is None else a if b is None else a | b


def _or_none(misfits: Array) -> Array | None:
    return misfits if misfits.any() else None


# -- refusals ---------------------------------------------------------------------

_CANDIDATES = {
    BOOL: ("int8", "uint8", "int16", "int32", "int64", "uint64", "float32", "float64", "complex128"),
    INT: ("int8", "int16", "int32", "int64", "uint64", "float32", "float64", "complex128"),
    UINT: ("uint8", "uint16", "uint32", "uint64", "int16", "int32", "int64", "float64", "complex128"),
    COMPLEX: ("complex128",),
}
_FLOAT_CANDIDATES = ("float32", "float64", "int64", "uint64", "complex64", "complex128")


def fitting(value: Any, old: DType, new: DType) -> DType:
    """Return a type that holds a value of the type `old` that `new` does not hold; `old` if no other does."""
    one = np.asarray(value).reshape(1)
    for name in _CANDIDATES.get(new.code, _FLOAT_CANDIDATES):
        candidate = by_name(name)
        if candidate is not new and _fits_one(one, old, candidate):
            return candidate
    return old


def _fits_one(value: Array, old: DType, new: DType) -> bool:
    return cast_block(value, np.empty(1, new.storage), old, new) is None


def why_not(value: Any, new: DType) -> str:
    """Return why a type does not hold a value, as the end of a sentence about the value."""
    if isinstance(value, complex):
        if value.imag != 0 and new.name not in _COMPONENTS:
            return "has an imaginary part"
        value = value.real
    if new.name in _FLOATS or new.name in _COMPONENTS:
        part = _COMPONENTS.get(new.name, new)
        _, most, infinite = _FLOATS[part.name]
        if isinstance(value, int) and abs(value) <= most:
            return "has more bits than its significand, and would be rounded"
        finite = isinstance(value, int) or np.isfinite(value)
        return f"exceeds its largest value, {most:g}" if finite or infinite else "has no counterpart there"
    if isinstance(value, float) and not np.isfinite(value):
        return "is not a number" if np.isnan(value) else "is infinite"
    low, high = limits(new)
    if new.code == BOOL:
        return "is neither 0 nor 1"
    if isinstance(value, float) and not value.is_integer():
        return "is not an integer"
    return f"is outside {low} to {high}"


#: Types whose values every framework compares on a device.
_COMPARABLE = ("float16", "bfloat16", "float32", "float64")
_WIDE = ("float32", "float64")


def fits(module: Any, values: Any, cast: Any, old: DType, new: DType) -> bool:
    """Return whether values on a device fit their new type; False also if only the host can check them.

    Parameters
    ----------
    module : module
        With ``isfinite``, ``isnan`` and ``trunc``: ``torch``, ``jax.numpy`` or ``cupy``.
    values, cast : object
        Arrays of the framework: the values of the type `old`, and the same values cast to `new`.
    """
    if always_fits(old, new) or 0 in values.shape:
        return True
    if old.name in _COMPARABLE and new.name in _COMPARABLE:
        finite = module.isfinite(values) == module.isfinite(cast)
        return bool((finite & (module.isnan(values) == module.isnan(cast))).all())
    if new.code == COMPLEX or old.code == COMPLEX:
        return False
    low, high = float_limits(new) or limits(new)
    if old.name in _WIDE:
        # The upper limit is exact in floats: it is a power of two. Comparisons with NaN are false.
        inside = (values >= float(low)) & (values < float(high + 1)) & (values == module.trunc(values))
        return bool(inside.all())
    if old.code == INT or old.name == "uint8":
        return low <= int(values.min()) and int(values.max()) <= high
    return False
