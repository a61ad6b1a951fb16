"""Coordinates of COO arrays in the form that a target needs, and index types that it has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from zerocopy.describe import describe_array
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.protocols.array_interface import address, allocation_of, span
from zerocopy.sparse_ragged.hook import Part
from zerocopy.sparse_ragged.sparse import Array, SparseLayout


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
