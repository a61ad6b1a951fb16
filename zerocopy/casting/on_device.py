"""Checks of casts on a device, with the functions that torch, JAX and CuPy have in common."""

from __future__ import annotations

from typing import Any

from zerocopy.casting.values import always_fits, float_limits, limits
from zerocopy.dtype import COMPLEX, INT, DType

#: Types whose values every framework compares on a device.
_FLOATS = ("float16", "bfloat16", "float32", "float64")
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
    if old.name in _FLOATS and new.name in _FLOATS:
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
