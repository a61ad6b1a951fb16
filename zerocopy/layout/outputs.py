"""Memory for columns: one allocation for all of them, or the caller's ``out=``, which is checked first.

If anything does not fit, nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from zerocopy.errors import UnsupportedConversionError
from zerocopy.layout.schema import LINE, FieldLeaf
from zerocopy.protocols.array_interface import aligned_empty, span
from zerocopy.source import Array

_ASKED = "aos_to_soa(records, out=out)"


def out_columns(out: Any, leaves: Sequence[FieldLeaf], shape: tuple[int, ...], records: Array) -> list[Array]:
    """Return the caller's arrays in the order of the leaves; raise unless all fit and none overlaps."""
    if isinstance(out, np.ndarray):
        arrays = _matrix_rows(out, leaves, shape)
    else:
        arrays = by_leaf(out, leaves)
        for leaf, array in zip(leaves, arrays, strict=True):
            if misfit(array, leaf.dtype, shape + leaf.shape):
                check_fits(f"out[{leaf.name!r}]", array, leaf.dtype, shape + leaf.shape, _ASKED)
    _refuse_overlaps(arrays, [*leaves], records)
    return arrays


def _matrix_rows(out: Array, leaves: Sequence[FieldLeaf], shape: tuple[int, ...]) -> list[Array]:
    types = list(dict.fromkeys(leaf.dtype for leaf in leaves))
    if len(types) != 1 or any(leaf.shape for leaf in leaves):
        why = "out is one array, but the columns are not all of one type, or are sub-arrays"
        raise UnsupportedConversionError(_ASKED, why, "pass a dict of arrays", code="out-mismatch")
    if out.shape != (len(leaves), *shape):
        check_fits("out", out, types[0], (len(leaves), *shape), _ASKED)
    for i, row in enumerate(out):  # the matrix itself need not be contiguous
        check_fits(f"out[{i}]", row, types[0], shape, _ASKED)
    return list(out)


def by_leaf(out: Any, leaves: Sequence[FieldLeaf], asked: str = _ASKED, name: str = "out") -> list[Any]:
    """Return the values of a nested mapping, one per leaf; raise unless its keys match the fields."""
    if not isinstance(out, Mapping):
        why = f"{name} is a {type(out).__name__}"
        remedy = "pass a dict of arrays, or one array of shape (k, n)"
        raise UnsupportedConversionError(asked, why, remedy, code="not-a-mapping")
    if len(out) == len(leaves) and all(len(leaf.path) == 1 and leaf.path[0] in out for leaf in leaves):
        return [out[leaf.path[0]] for leaf in leaves]
    values = [_value_of(out, leaf, asked, name) for leaf in leaves]
    _refuse_other_names(out, leaves, (), asked, name)
    return values


def _value_of(out: Mapping[str, Any], leaf: FieldLeaf, asked: str, name: str) -> Any:
    inner: Any = out
    for i, part in enumerate(leaf.path):
        if not isinstance(inner, Mapping) or part not in inner:
            why = f"{name} has no column {'.'.join(leaf.path[: i + 1])!r}"
            remedy = "add it, or leave the field out with fields=[...]"
            raise UnsupportedConversionError(asked, why, remedy, code="unknown-name")
        inner = inner[part]
    return inner


def _refuse_other_names(
    out: Mapping[str, Any], leaves: Sequence[FieldLeaf], path: tuple[str, ...], asked: str, name: str
) -> None:
    known = {leaf.path[: len(path) + 1] for leaf in leaves}
    for part, inner in out.items():
        extended = (*path, part)
        if extended not in known:
            why = f"{name} has {'.'.join(map(str, extended))!r}, which is not a field of the records"
            raise UnsupportedConversionError(asked, why, "leave it out", code="unknown-name")
        if isinstance(inner, Mapping):
            _refuse_other_names(inner, leaves, extended, asked, name)


def check_fits(name: str, array: Any, dtype: np.dtype[Any], shape: tuple[int, ...], asked: str) -> None:
    """Raise if memory for a result does not have a type and shape, or is read-only."""
    why = misfit(array, dtype, shape)
    if why:
        dtype_text = str(dtype) if dtype.names is not None else repr(str(dtype))
        longer = isinstance(array, np.ndarray) and array.shape[1:] == shape[1:] and array.shape > shape
        slice_text = f", or the slice [:{shape[0]}] of this one" if longer and shape else ""
        remedy = f"pass numpy.empty({shape}, {dtype_text}){slice_text}"
        raise UnsupportedConversionError(asked, f"{name} {why}", remedy, code="out-mismatch")


def misfit(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Return why memory cannot take a result, or an empty string."""
    if not isinstance(array, np.ndarray):
        return f"is a {type(array).__name__}, not a NumPy array"
    if array.dtype != dtype:
        return f"has the dtype {array.dtype}, not {dtype}"
    if array.shape != shape:
        return f"has the shape {array.shape}, not {shape}"
    flags = array.flags
    if not flags.writeable:
        return "is read-only"
    if flags.c_contiguous:
        return ""
    if len(shape) > 1:
        return "is not contiguous"
    return "overlaps with itself" if abs(array.strides[0]) < array.itemsize else ""


def overlap_error(asked: str, a: str, b: str) -> UnsupportedConversionError:
    """Return the error for two arrays that overlap."""
    why = f"{a} and {b} overlap in memory"
    return UnsupportedConversionError(
        asked, why, "pass memory that overlaps no other array", code="overlapping-memory"
    )


def _refuse_overlaps(arrays: Sequence[Array], leaves: Sequence[FieldLeaf], source: Array) -> None:
    every = [*arrays, source]
    spans = sorted([(*span(array), i) for i, array in enumerate(every) if array.size])
    if all(a[1] <= b[0] for a, b in pairwise(spans)):
        return
    for i, j in _crossing(spans):
        if _overlap(every[i], every[j]):
            names = [*(leaf.name for leaf in leaves), "the source"]
            raise overlap_error(_ASKED, repr(names[i]), repr(names[j]))


def refuse_overlap(asked: str, out: Array, sources: Sequence[Array]) -> None:
    """Raise if an output overlaps with a source."""
    low, high = span(out)
    for source in sources:
        start, end = span(source)
        if start < high and low < end and source.size and out.size and _overlap(out, source):
            raise overlap_error(asked, "'out'", "'the source'")


def _crossing(spans: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of arrays whose spans of addresses overlap; the spans are sorted."""
    open_spans: list[tuple[int, int, int]] = []
    for low, high, place in spans:
        open_spans = [other for other in open_spans if other[1] > low]
        for other in open_spans:
            yield other[2], place
        open_spans.append((low, high, place))


def _overlap(a: Array, b: Array) -> bool:
    # Deciding whether two strided arrays share an address is NP-hard: past the limit of work
    # the answer is unknown, and treated as an overlap.
    too_hard = getattr(np, "exceptions", np).TooHardError
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except too_hard:
        return True


_BYTE: np.dtype[Any] = np.dtype(np.uint8)

_PAGE = 4096
# Columns whose length is a multiple of a page would all map to the same cache set (8 ways), so each
# starts some lines later. Measured to rows, for a power of two of records, with and without this
# offset: 13.9 and 13.1 GB/s for 64 x f4, 21.2 and 20.7 GB/s for 8 x f4 (Zen 4).
_STAGGER = 5 * LINE


def allocate_columns(leaves: Sequence[FieldLeaf], shape: tuple[int, ...]) -> list[Array]:
    """Return uninitialised columns for records of a shape.

    Each column is contiguous and starts at a multiple of 64 bytes. They share one allocation:
    the thread that first writes a page clears it, and columns of one type are the rows of one matrix.

    Examples
    --------
    >>> from zerocopy.layout.schema import leaves
    >>> a, b = allocate_columns(leaves(np.dtype([("a", "f8"), ("b", "f8")])), (8,))
    >>> a.__array_interface__["data"][0] % 64, b.shape
    (0, (8,))
    """
    rows = prod(shape)
    starts, end = [], 0
    for leaf in leaves:
        starts.append(end)
        size = leaf.width * rows
        end += -(-size // LINE) * LINE
        if size >= _PAGE:
            end += _STAGGER
    memory = aligned_empty((end,), _BYTE)
    return [
        np.ndarray(shape + leaf.shape, leaf.dtype, memory, start)
        for start, leaf in zip(starts, leaves, strict=True)
    ]
