"""Sorted and unique indices for targets that need them: a copy, with duplicates summed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from zerocopy.describe import describe_array
from zerocopy.dtype import to_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.source import Source
from zerocopy.sparse_ragged.hook import Part
from zerocopy.sparse_ragged.sparse import COMPRESSED, Array, SparseLayout, name_of_lines


def canonical(target: str, layout: SparseLayout, parts: Sequence[Any]) -> tuple[SparseLayout, list[Any]]:
    """Return a layout with sorted and unique indices, and its parts; computed parts are `Part` objects.

    All indices are read if their order is unknown, except those of the target's own arrays. Computed
    coordinates of COO are one array, of shape (ndim, count).

    Raises
    ------
    UnsupportedConversionError
        The indices are not sorted or not unique, and are on a device or have values that NumPy lacks.
    """
    known = layout._replace(is_sorted=True, is_unique=True)
    if layout.is_canonical or layout.reader == target:
        return known, list(parts)
    is_sorted, is_unique = layout.order(parts)
    if is_sorted and is_unique:
        return known, list(parts)
    fault = "not sorted" if is_unique else "not unique"
    why = f"{target} needs sorted and unique indices, and these are {fault} within {name_of_lines(layout)}"
    fixes = [Fix(action=layout.canonical_action, effect="sorts them, and adds up duplicates")]
    sources = [describe_array(part) for part in parts]
    values = to_numpy(sources[0].view.dtype)
    if values is None or not all(source.view.device.is_host for source in sources):
        raise UnsupportedConversionError(f"to={target!r}", why, code="not-canonical", fixes=fixes)
    reason = Reason(why, code="not-canonical", fixes=fixes)
    data = sources[0].host().view(values)
    if layout.format in COMPRESSED:
        layout.check_pointers(parts)
        arrays = _compressed(data, sources[1].host(), sources[2].host(), is_unique)
    else:
        known, arrays = known._replace(coords="by-dimension"), _coo(layout, data, sources[1:], is_unique)
    made = [_made(part, array, reason) for part, array in zip(parts, arrays, strict=False)]
    return known, [*made, *parts[len(made) :]] if layout.format in COMPRESSED else made


def _made(part: Any, array: Array, reason: Reason) -> Part:
    return Part(part, make=partial(_itself, array), nbytes=array.nbytes, reason=reason)


def _itself(array: Array) -> Array:
    return array


def _compressed(data: Array, indices: Array, indptr: Array, is_unique: bool) -> tuple[Array, ...]:
    """Return data, indices and, if duplicates are summed, indptr."""
    rows = np.repeat(np.arange(len(indptr) - 1), indptr[1:] - indptr[:-1])
    order = np.lexsort((indices, rows))
    if is_unique:
        return data[order], indices[order]
    starts = _starts(np.stack([rows[order], indices[order].astype(np.int64)]))
    counts = np.bincount(rows[order][starts], minlength=len(indptr) - 1)
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(indptr.dtype)
    return _summed(data[order], starts), indices[order][starts], pointers


def _coo(layout: SparseLayout, data: Array, sources: Sequence[Source], is_unique: bool) -> tuple[Array, ...]:
    """Return data and coordinates of shape (ndim, count)."""
    coords = np.stack([s.host() for s in sources]) if layout.coords == "separate" else sources[0].host()
    coords = coords.T if layout.coords == "by-point" else coords
    order = np.lexsort(coords[::-1]) if len(coords) else np.arange(len(data))
    coords = np.ascontiguousarray(coords[:, order])
    if is_unique:
        return data[order], coords
    starts = _starts(coords) if len(coords) else np.zeros(1, np.intp)
    return _summed(data[order], starts), np.ascontiguousarray(coords[:, starts])


def _starts(keys: Array) -> Array:
    """Return where each run of equal columns of `keys`, the sorted indices, starts."""
    changes = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return np.flatnonzero(np.concatenate([[True], changes]))


def _summed(data: Array, starts: Array) -> Array:
    # SciPy and torch add up duplicates in the array's type; NumPy's default is a wider one.
    summed: Array = np.add.reduceat(data, starts, axis=0, dtype=data.dtype)
    return summed
