"""Indices of sparse arrays in the form, the type and the order that a target needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from zerocopy.describe import describe_array
from zerocopy.dtype import to_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.protocols.array_interface import address, allocation_of, span
from zerocopy.source import Source
from zerocopy.sparse_ragged.hook import Part
from zerocopy.sparse_ragged.sparse import COMPRESSED, Array, SparseLayout, name_of_lines


def index_parts(
    target: str, layout: SparseLayout, parts: Sequence[Any], allowed: Sequence[str], coo: Sequence[str] = ()
) -> list[Part]:
    """Return the parts, with a cast of the indices if the target lacks their type or needs one for all.

    Parameters
    ----------
    target : str
        The target, for reasons.
    layout : SparseLayout
        The layout of the parts.
    parts : sequence
        Values and indices; a `Part` is one that is already computed.
    allowed, coo : sequence of str
        The index types of the target, and those of its COO arrays if they differ.

    Returns
    -------
    list of Part
        In the order of `parts`.
    """
    allowed = coo if coo and layout.format == "coo" else allowed
    made = [part if isinstance(part, Part) else Part(part) for part in parts]
    types = {describe_array(part.obj).view.dtype.name for part in made[1:]}
    if len(types) == 1 and types <= set(allowed):
        return made
    common = "int64" if "int64" in types and "int64" in allowed else allowed[0]
    for part in made[1:]:
        own = describe_array(part.obj).view.dtype.name
        if own != common:
            why = f"{target} needs indices of type {common}, and these are {own}"
            part.cast = common
            part.reason = part.reason or Reason(why, f"store the indices as {common}", code="index-dtype")
    return made


def check_index_type(indices: Sequence[Any], allowed: Sequence[Any]) -> None:
    """Raise ValueError if arrays of indices differ in type, or have one that is not among `allowed`.

    The fast path calls ``build`` without ``fit``, which casts them.
    """
    dtype = indices[0].dtype
    if dtype not in allowed or any(part.dtype != dtype for part in indices[1:]):
        raise ValueError("the target needs one index type: fit() casts")


def coordinates(layout: SparseLayout, parts: Sequence[Any], form: str) -> tuple[SparseLayout, list[Any]]:
    """Return a COO layout and its parts with coordinates in another form of `SparseLayout.coords`.

    Only host memory changes its form. Splitting aliases. Joining aliases arrays that lie at equal distances
    in one allocation, and otherwise makes a `Part` that is computed.
    """
    if layout.format != "coo" or layout.coords == form:
        return layout, list(parts)
    new = layout._replace(coords=form)
    if layout.coords != "separate":
        stacked = _as_numpy(parts[1])
        stacked = stacked if layout.coords == "by-dimension" else stacked.T
    else:
        arrays = [_as_numpy(part) for part in parts[1:]]
        joined = _joined(arrays)
        if joined is None:
            make = partial(np.stack, arrays, axis=0 if form == "by-dimension" else 1)
            nbytes = sum(array.nbytes for array in arrays)
            why = (
                f"its {len(arrays)} arrays of coordinates are separate, and the target has one array for all"
            )
            part = Part(arrays[0], make=make, nbytes=nbytes, reason=Reason(why, code="separate-coordinates"))
            return new, [parts[0], part]
        stacked = joined
    if form == "separate":
        return new, [parts[0], *stacked]
    return new, [parts[0], stacked if form == "by-dimension" else stacked.T]


def _as_numpy(part: Any) -> Array:
    """Return an alias of indices in host memory."""
    source = describe_array(part)
    if not source.view.device.is_host:
        raise UnsupportedConversionError(
            "",
            f"its coordinates are on {source.view.device}, and the target stores them in another form",
            "convert it to CSR first, or move it to the host",
            code="other-device",
        )
    return source.host()


def _joined(arrays: list[Array]) -> Array | None:
    """Return an alias whose rows are `arrays`; None if they are not equally spaced in one allocation."""
    first = arrays[0]
    if len(arrays) == 1:
        return first.reshape(1, -1)
    starts = [address(array) for array in arrays]
    step = starts[1] - starts[0]
    if step <= 0 or starts != list(range(starts[0], starts[0] + step * len(arrays), step)):
        return None
    for array in arrays[1:]:
        if array.dtype != first.dtype or array.strides != first.strides:
            return None
    joined = np.lib.stride_tricks.as_strided(
        first, (len(arrays), len(first)), (step, *first.strides), writeable=first.flags.writeable
    )
    (low, high), (start, end) = allocation_of(first), span(joined)
    return joined if low <= start and end <= high else None


# -- sorted and unique indices ----------------------------------------------------------------


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
    return Part(part, make=lambda: array, nbytes=array.nbytes, reason=reason)


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
