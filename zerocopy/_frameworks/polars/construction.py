"""Series and frames from arrays that are known to be valid.

``polars.Series`` tests the type of its values against many types; the constructors that it calls do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from zerocopy._frameworks._private import Private
from zerocopy.protocols.array_interface import address
from zerocopy.registry import is_imported
from zerocopy.source import Array
from zerocopy.tables.hub import NAME as HUB, hub

_CONSTRUCTORS = Private(
    "polars",
    "2",
    "Series._from_pyseries, DataFrame._from_pydf, Series._s",
    "series of an ndarray: 1.2 / 7.4 us, of Arrow: 6.4 / 15 us, frame of ten columns: 28 / 50 us",
)


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
    by_dtype = {
        np.dtype(f"{name[0]}{int(name[1:]) // 8}"): (getattr(inner, f"new_{name}"), name[0] != "f")
        for name in names
    }
    arrow_array = inner.from_arrow_c_array

    def ndarray(name: str, array: Array) -> Any:
        make, last_argument = by_dtype.get(array.dtype, (None, False))
        return pl.Series(name, array) if make is None else wrap(make(name, array, last_argument))

    wrap_frame, unnest = pl.DataFrame._from_pydf, inner.struct_unnest
    return Constructors(
        ndarray,
        lambda obj: wrap(arrow_array(obj)),
        lambda obj: wrap_frame(unnest(arrow_array(obj))),
    )


class ArrayExport:
    """A wrapper that exports only an array, because polars imports pyarrow's types by other means."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._array.__arrow_c_array__(requested_schema)


@cache
def constructors(pl: Any) -> Constructors:
    """Return the private constructors if they make the same series as ``polars.Series``; else that."""
    public = Constructors(
        pl.Series, lambda obj: pl.Series(ArrayExport(obj)), lambda obj: pl.DataFrame(ArrayExport(obj))
    )

    def agrees(private: Constructors) -> bool:
        for array in (np.array([1.5, np.nan]), np.array([1, 2], "f4"), np.array([3, 200], "u1")):
            made, expected = private.ndarray("a", array), pl.Series("a", array)
            same = made.equals(expected, check_names=True, check_dtypes=True)
            if not same or address(made.to_numpy()) != address(array):
                return False
        if not is_imported(HUB):
            return True
        batch = hub().module().record_batch([array, array], ["a", "b"])
        return bool(private.frame(batch).equals(public.frame(batch)))

    return _CONSTRUCTORS.choose(lambda: private_constructors(pl), agrees, public)
