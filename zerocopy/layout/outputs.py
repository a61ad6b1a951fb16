"""Memory of the caller's to write to: it fits, or nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from zerocopy.errors import UnsupportedConversionError
from zerocopy.layout.schema import Leaf
from zerocopy.protocols.array_interface import address

Array = np.ndarray[Any, Any]

_ASKED = "aos_to_soa(records, out=out)"


def columns(out: Any, leaves: Sequence[Leaf], shape: tuple[int, ...], records: Array) -> list[Array]:
    """Return the caller's arrays in the order of the leaves.

    Raises
    ------
    UnsupportedConversionError
        One is missing, is not of the column's type and shape, cannot be written, or overlaps
        with the records or another one.
    """
    if isinstance(out, np.ndarray):
        found = _matrix(out, leaves, shape)
    else:
        found = listed(out, leaves)
        for leaf, array in zip(leaves, found, strict=True):
            if misfit(array, leaf.dtype, shape + leaf.shape):
                fits(f"out[{leaf.name!r}]", array, leaf.dtype, shape + leaf.shape, _ASKED)
    _refuse_overlaps(found, [*leaves], records)
    return found


def _matrix(out: Array, leaves: Sequence[Leaf], shape: tuple[int, ...]) -> list[Array]:
    types = list(dict.fromkeys(leaf.dtype for leaf in leaves))
    if len(types) != 1 or any(leaf.shape for leaf in leaves):
        raise UnsupportedConversionError(
            _ASKED,
            "out is one array, and these columns are not all of one type and without sub-arrays",
            "pass a dict of arrays",
        )
    if out.shape != (len(leaves), *shape):
        fits("out", out, types[0], (len(leaves), *shape), _ASKED)
    for i, row in enumerate(out):  # which need not lie end to end
        fits(f"out[{i}]", row, types[0], shape, _ASKED)
    return list(out)


def listed(out: Any, leaves: Sequence[Leaf], asked: str = _ASKED, name: str = "out") -> list[Any]:
    """Return what a mapping, nested as the records are, has for each leaf.

    Raises
    ------
    UnsupportedConversionError
        It is no mapping, or has more or fewer names.
    """
    if not isinstance(out, Mapping):
        raise UnsupportedConversionError(
            asked, f"{name} is a {type(out).__name__}", "pass a dict of arrays, or one array of shape (k, n)"
        )
    if len(out) == len(leaves) and all(len(leaf.path) == 1 and leaf.path[0] in out for leaf in leaves):
        return [out[leaf.path[0]] for leaf in leaves]
    found = [_picked(out, leaf, asked, name) for leaf in leaves]
    _refuse_others(out, leaves, (), asked, name)
    return found


def _picked(out: Mapping[str, Any], leaf: Leaf, asked: str, name: str) -> Any:
    inner: Any = out
    for i, part in enumerate(leaf.path):
        if not isinstance(inner, Mapping) or part not in inner:
            where = ".".join(leaf.path[: i + 1])
            raise UnsupportedConversionError(
                asked, f"{name} has no column {where!r}", "leave the field out with fields=[...], or add it"
            )
        inner = inner[part]
    return inner


def _refuse_others(
    out: Mapping[str, Any], leaves: Sequence[Leaf], path: tuple[str, ...], asked: str, name: str
) -> None:
    known = {leaf.path[: len(path) + 1] for leaf in leaves}
    for part, inner in out.items():
        here = (*path, part)
        if here not in known:
            raise UnsupportedConversionError(
                asked, f"{name} has {'.'.join(map(str, here))!r}, which is none of the fields", "leave it out"
            )
        if isinstance(inner, Mapping):
            _refuse_others(inner, leaves, here, asked, name)


def fits(name: str, array: Any, dtype: np.dtype[Any], shape: tuple[int, ...], asked: str) -> None:
    """Raise if memory to write to is not of a type and shape, or cannot be written."""
    why = misfit(array, dtype, shape)
    if why:
        said = str(dtype) if dtype.names is not None else repr(str(dtype))
        longer = isinstance(array, np.ndarray) and array.shape[1:] == shape[1:] and array.shape > shape
        part = f", and so does its part [:{shape[0]}]" if longer and shape else ""
        raise UnsupportedConversionError(asked, f"{name} {why}", f"numpy.empty({shape}, {said}) fits{part}")


def misfit(array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Return why memory is not fit to be written to, or nothing if it is."""
    if not isinstance(array, np.ndarray):
        return f"is a {type(array).__name__}, and no NumPy array"
    if array.dtype != dtype:
        return f"is of {array.dtype}, not {dtype}"
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


def _refuse_overlaps(arrays: Sequence[Array], leaves: Sequence[Leaf], source: Array) -> None:
    """Raise if memory to write to overlaps with other such memory or with what is read."""
    given = [*arrays, source]
    spans = sorted([(*_span(array), i) for i, array in enumerate(given) if array.size])
    if all(a[1] <= b[0] for a, b in pairwise(spans)):
        return
    for i, j in _meeting(spans):
        if _overlap(given[i], given[j]):
            names = [*(leaf.name for leaf in leaves), "the source"]
            raise UnsupportedConversionError(
                _ASKED, f"{names[i]!r} and {names[j]!r} overlap in memory", "write to memory of its own"
            )


def refuse_overlap(asked: str, out: Array, sources: Sequence[Array]) -> None:
    """Raise if memory to write to overlaps with any that is read."""
    low, high = _span(out)
    for source in sources:
        start, end = _span(source)
        if start < high and low < end and source.size and out.size and _overlap(out, source):
            raise UnsupportedConversionError(
                asked, "'out' and 'the source' overlap in memory", "write to memory of its own"
            )


def _meeting(spans: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs whose spans meet."""
    open_spans: list[tuple[int, int, int]] = []
    for span in spans:
        open_spans = [other for other in open_spans if other[1] > span[0]]
        for other in open_spans:
            yield other[2], span[2]
        open_spans.append(span)


def _span(array: Array) -> tuple[int, int]:
    """Return the first byte's address and the one after the last byte's."""
    low = high = address(array)
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    for extent, stride in zip(array.shape, array.strides, strict=True):
        step = (extent - 1) * stride
        low, high = (low + step, high) if step < 0 else (low, high + step)
    return low, high + array.itemsize


def _overlap(a: Array, b: Array) -> bool:
    # Whether two lattices of addresses meet is a hard question in general: asked with a limit,
    # past which nobody knows, and then nothing is written.
    hard = getattr(np, "exceptions", np).TooHardError
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except hard:
        return True
