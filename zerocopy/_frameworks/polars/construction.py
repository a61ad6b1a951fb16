"""Series and frames from arrays that are known to be valid.

``polars.Series`` compares its values with each kind that it takes. An ndarray takes 4.1 us, and 0.7 with the
constructor of its dtype; an array of Arrow 2.9, and 1.6; ten columns of Arrow 21 as a stream, and 16. These
constructors are private. The public calls are for a polars that lacks one, or whose series differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from zerocopy.protocols.array_interface import address
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array


class Constructors(NamedTuple):
    """How series are made.

    Attributes
    ----------
    ndarray : callable
        ``ndarray(name, array)`` of native numbers of 8 bytes at most, 1-dimensional, aligned, contiguous.
    arrow : callable
        ``arrow(obj)`` of an object with ``__arrow_c_array__``.
    frame : callable
        ``frame(obj)`` of such an object that is a struct without nulls: a record batch.
    """

    ndarray: Callable[[str, Array], Any]
    arrow: Callable[[Any], Any]
    frame: Callable[[Any], Any]


def private_constructors(pl: Any) -> Constructors:
    """Return the constructors that polars.Series calls.

    Raises
    ------
    AttributeError
        This polars lacks one.
    """
    wrap, inner = pl.Series._from_pyseries, type(pl.Series([1.5])._s)
    names = (*(f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64)), "f32", "f64")
    # The last argument: whether NaN becomes null, or for integers, `strict`.
    made = {
        np.dtype(f"{name[0]}{int(name[1:]) // 8}"): (getattr(inner, f"new_{name}"), name[0] != "f")
        for name in names
    }
    arrow_array = inner.from_arrow_c_array

    def ndarray(name: str, array: Array) -> Any:
        make, option = made.get(array.dtype, (None, False))
        return pl.Series(name, array) if make is None else wrap(make(name, array, option))

    wrap_frame, unnest = pl.DataFrame._from_pydf, inner.struct_unnest
    return Constructors(
        ndarray,
        lambda obj: wrap(arrow_array(obj)),
        lambda obj: wrap_frame(unnest(arrow_array(obj))),
    )


class ArrowArray:
    """A wrapper that exports only an array, because polars imports pyarrow's types by other means."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._array.__arrow_c_array__(requested_schema)


@cache
def constructors(pl: Any) -> Constructors:
    """Return the private constructors if they make the same series as ``polars.Series``; else that."""
    public = Constructors(
        pl.Series, lambda obj: pl.Series(ArrowArray(obj)), lambda obj: pl.DataFrame(ArrowArray(obj))
    )
    try:
        private = private_constructors(pl)
        for array in (np.array([1.5, np.nan]), np.array([1, 2], "f4"), np.array([3, 200], "u1")):
            made, expected = private.ndarray("a", array), pl.Series("a", array)
            same = made.equals(expected, check_names=True, check_dtypes=True)
            if not same or address(made.to_numpy()) != address(array):
                return public
        return private
    except Exception as error:
        if not is_error(error):
            raise
        return public
