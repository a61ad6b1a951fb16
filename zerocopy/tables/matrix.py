"""``layout="matrix"``: a table as one tensor, ``(rows, columns)``.

An alias where the columns are the columns of one array already; a copy otherwise, in
blocks of rows where the rows are to lie together.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.device import HOST, same_place
from zerocopy.dtype import by_name
from zerocopy.errors import Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.layout import threads
from zerocopy.layout.record_type import record_type
from zerocopy.layout.transposition import to_rows
from zerocopy.plan import Plan
from zerocopy.protocols import cuda_array_interface
from zerocopy.protocols.array_interface import aligned_empty
from zerocopy.protocols.cuda_array_interface import Handover
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import memory, on_device
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import Leaf
from zerocopy.tables.refusals import together
from zerocopy.tables.request import Request
from zerocopy.tables.to_tensors import decode

#: Arrow pads its buffers to that many bytes (Columnar Format, "Buffer Alignment and Padding").
_PADDING = 64
#: Bytes between columns of one array up to which it is not worth a copy to be rid of them.
_PAGE = 4096
#: Bytes from which on memory is pages of its own, to NumPy's allocator.
_LARGE = 1 << 22
_STACK = "convert the columns, and stack them there: torch.stack(list(x.values()), 1), cupy.stack(...)"
_COLUMNS = 'layout="columns" gives each column as it is'


def plan(table: Table, request: Request) -> Plan:
    """Return the plan of a table as one 2-D tensor.

    Raises
    ------
    ZeroCopyError
        The columns are not numbers of one type, or what ``convert`` raises for a tensor.
    """
    table = without_index(table, request)
    leaves = _leaves(table, request)
    source = _source(table, leaves, request)
    plan = request.between(source, request.copy)
    temporal = leaves[0].temporal if leaves else ""
    run = plan.run
    assert run is not None
    seen = (lambda: run().view(temporal)) if temporal else run
    return replace(plan, source=f"{table.name} {table.shape}", run=seen)


def without_index(table: Table, request: Request) -> Table:
    """Return a table without its index, unless that was asked for: labels of rows are no features."""
    if not table.index or request.options.index or request.options.columns is not None:
        return table
    kept = len(table.columns) - table.index
    return replace(table, labels=table.labels[:kept], columns=table.columns[:kept], index=0)


def _leaves(table: Table, request: Request) -> list[Leaf]:
    """Return each column's values: one tensor of one dimension each, all of one type."""
    leaves: list[Leaf] = []
    refused: dict[Hashable, ZeroCopyError] = {}
    for label, tree in zip(table.labels, decode(table, request).values(), strict=True):
        if isinstance(tree, Leaf) and tree.source.view.ndim == 1:
            leaves.append(tree)
            continue
        why, remedy = "is no plain numbers, and a matrix has no place for what they mean", _COLUMNS
        if isinstance(tree, Leaf):
            shape = tree.source.view.shape[1:]
            why = f"is a column of tensors of shape {shape}, and a matrix has two dimensions"
            remedy = "leave it out with columns=[...], or flatten it"
        elif request.options.nulls is not None:
            why = "would have a mask beside it, and a matrix is one tensor"
            remedy = 'nulls="nan" or a value such as nulls=0 fills nulls; layout="columns" gives masks'
        refused[label] = UnsupportedConversionError("", why, remedy)
    if refused:
        raise together(refused)
    types: dict[str, list[Hashable]] = {}
    for label, leaf in zip(table.labels, leaves, strict=True):
        types.setdefault(leaf.temporal or leaf.source.view.dtype.name, []).append(label)
    if len(types) > 1:
        said = ", ".join(f"{kind} ({_named(labels)})" for kind, labels in types.items())
        most = max(types.items(), key=lambda item: len(item[1]))[1]
        raise UnsupportedConversionError(
            "",
            f"a matrix has one type, and the columns have {len(types)}: {said}",
            f"pick those of one type, columns={[*most[:3]]!r}"
            f"{' and so on' if len(most) > 3 else ''}, or cast them in the source",
        )
    for leaf in leaves:
        if leaf.source.refusal is not None:
            raise UnsupportedConversionError("", leaf.source.refusal.why, leaf.source.refusal.remedy)
    return leaves


def _named(labels: list[Hashable]) -> str:
    more = len(labels) - 4
    return ", ".join(map(repr, labels[:4])) + (f" and {more} more" if more > 0 else "")


# -- alias or copy ----------------------------------------------------------------


def _source(table: Table, leaves: list[Leaf], request: Request) -> Source:
    order = request.options.layout[-1] if request.options.layout not in (None, "matrix") else ""
    sources = [leaf.source for leaf in leaves]
    if not leaves:
        # pandas, too, makes float64 of what has no columns and so no type.
        return _written(table, [], order, request, [])
    why = list(dict.fromkeys(reason for source in sources for reason in source.reasons))
    first = sources[0].view.device
    if not all(same_place(source.view.device, first) for source in sources):
        raise UnsupportedConversionError(
            "", "its columns lie on several devices", "bring them to one device first"
        )
    if not why:
        strides = _strides([source.view for source in sources])
        if strides is None:
            why.append(
                Reason("the columns lie in separate memory", f"keep them in one 2-D array; {_COLUMNS}")
            )
        elif order and not _in_order(order, strides, (table.length, len(leaves))):
            lies = "column by column" if order == "C" else "row by row"
            why.append(
                Reason(
                    f'it lies {lies}, and layout="matrix:{order}" was asked', 'layout="matrix" takes either'
                )
            )
        else:
            alias = _alias(table, sources, strides)
            # What would make the planner copy makes us copy: it knows nothing of blocks
            # of rows, nor of the order that was asked for.
            why = _against(alias.view, request)
            if not why:
                return alias
    if first.is_host:
        return _written(table, leaves, order, request, why)
    # By way of the host: what stacks columns on the device is the framework's own to call.
    why.append(Reason(f"it is put together on the host, and the columns lie on {first}", _STACK))
    made = _written(table, leaves, "C", request, why)
    return on_device.made(replace(made, view=replace(made.view, device=first)))


def _strides(views: list[StridedView]) -> tuple[int, int] | None:
    """Return the strides of the matrix whose columns these are; None if they lie apart.

    Apart are also columns at equal distances that other data may lie between: what takes
    a strided tensor may well read or copy all from its first byte to its last.
    """
    rows, size = views[0].shape[0], views[0].dtype.itemsize
    if rows == 0:
        return contiguous_strides((0, len(views)), size)  # type: ignore[return-value]
    strides = {view.strides[0] for view in views}
    steps = {b.ptr - a.ptr for a, b in pairwise(views)}
    if (rows > 1 and len(strides) > 1) or len(steps) > 1:
        return None
    stride = strides.pop() if rows > 1 else size
    if not steps:
        return stride, size if stride != size else rows * size
    (step,) = steps
    # Column after column. Between two of them lies less than one buffer's padding: those
    # bytes are in a page of either neighbour, so they can be read, and too few for an
    # Arrow buffer of somebody else, which would begin at the next multiple of 64.
    gap = step - rows * size
    if stride == size and (0 <= gap < _PADDING or (0 < gap < _PAGE and _in_one_array(views))):
        return stride, step
    # Row after row: all columns lie within one row, as those of a 2-D array do, or some of
    # them. What else the row holds lies inside the array that the columns came from.
    if size <= step and (len(views) - 1) * step + size <= stride:
        return stride, step
    return None


def _in_one_array(views: list[StridedView]) -> bool:
    """Whether columns are views of one array, which has the bytes between them too."""
    bases = [getattr(view.owner, "base", None) for view in views]
    return isinstance(bases[0], np.ndarray) and all(base is bases[0] for base in bases)


def _in_order(order: str, strides: tuple[int, int], shape: tuple[int, int]) -> bool:
    if min(shape) <= 1:
        return True  # one column, or one row, is both
    return strides[1] < strides[0] if order == "C" else strides[0] < strides[1]


def _alias(table: Table, sources: list[Source], strides: tuple[int, int]) -> Source:
    views = [source.view for source in sources]
    first = views[0]
    readonly = any(view.readonly for view in views)
    shape = (table.length, len(views))
    owner = tuple(source.producer or view.owner for source, view in zip(sources, views, strict=True))
    view = replace(first, shape=shape, strides=strides, readonly=readonly, owner=owner)

    def host() -> Array:
        # Asked for in any case: a producer may have to finish its work first.
        arrays = tuple(source.host() for source in sources)
        return replace(view, owner=(owner, arrays)).numpy()

    producer = None if view.device.is_host else _on_device(sources, view)
    return Source(table.name, view, host, sources[0].protocol, obj=view, producer=producer)


def _on_device(sources: list[Source], view: StridedView) -> Handover:
    """Return an object that exports a matrix on a device, as the producers of its columns would.

    Raises
    ------
    UnsupportedConversionError
        Several streams would have to be waited for, and the interface names one.
    """
    speaking = [s.producer for s in sources if hasattr(type(s.producer), "__cuda_array_interface__")]
    streams = {cuda_array_interface.read(producer, view.device.id)[1] for producer in speaking}
    if len(speaking) < len(sources) or len(streams) != 1:
        raise UnsupportedConversionError(
            "",
            "its columns are on a device, and do not name one stream that all are ready on",
            _STACK,
        )
    return cuda_array_interface.Handover(view, streams.pop(), view.owner)


def _against(view: StridedView, request: Request) -> list[Reason]:
    """Return why the target, or what was asked, cannot do with the alias."""
    if view.size == 0 or not view.device.is_host:
        return []
    if request.copy is True:
        return [Reason("copy=True was asked", "")]
    why = list(request.target.copy_reasons(view))
    if request.writable and view.readonly and request.target.mutable:
        why.append(
            Reason(
                "writable=True was asked and the source calls its memory immutable",
                "leave writable out to get an alias, and do not write to it",
            )
        )
    return why


# -- the copy -----------------------------------------------------------------------


def _written(table: Table, leaves: list[Leaf], order: str, request: Request, why: Sequence[Reason]) -> Source:
    """Return the matrix as memory that will be written, in that order."""
    dtype = leaves[0].source.view.dtype if leaves else by_name("float64")
    rows, width = table.length, len(leaves)
    row_major = contiguous_strides((rows, width), dtype.itemsize)
    view = StridedView(0, (rows, width), row_major, dtype, HOST, False, table)
    if order == "F":
        by_column = replace(view, strides=(dtype.itemsize, max(1, rows) * dtype.itemsize))
        # JAX and TensorFlow have one order, which nobody sees: it would be copied once more.
        if not request.target.copy_reasons(by_column):
            view = by_column

    def host() -> Array:
        pieces = [list(_pieces(c, leaf)) for c, leaf in zip(table.columns, leaves, strict=True)]
        if view.strides == row_major:
            return _by_rows(pieces, rows, dtype.storage)
        return _by_columns(pieces, rows, dtype.storage)

    return Source(table.name, view, host, "arrow-c", why, obj=view)


def _pieces(column: Column, leaf: Leaf) -> Iterator[Array]:
    """Yield a column's values: in its chunks, where they need not be put together first."""
    source = leaf.source
    if (
        isinstance(column, ArrowColumn)
        and column.field.kind == "number"
        and source.view.device.is_host
        and len(column.chunks) > 1
        and not column.null_count
    ):
        dtype = source.view.dtype
        for chunk in column.chunks:
            if chunk.length:
                start = chunk.buffers[1] + chunk.offset * dtype.itemsize
                yield memory.read(chunk, start, chunk.length, dtype)
    elif source.view.device.is_host:
        yield source.host()
    elif source.to_host is not None:
        yield source.to_host(None)
    else:
        raise UnsupportedConversionError(
            "", f"a column is on {source.view.device} and says no way to the host", _STACK
        )


def _memory(shape: tuple[int, int], storage: np.dtype[Any]) -> Array:
    """Return memory to write to, where it is cheap."""
    nbytes = shape[0] * shape[1] * storage.itemsize
    if nbytes < _LARGE or "pyarrow" not in sys.modules:
        return aligned_empty(shape, storage)
    # NumPy's large allocations are pages that the kernel clears first, each time; Arrow's pool,
    # where there is one in the process, keeps those that were freed. 80 MB: 6.4 ms and not
    # 11.4 column by column, 14.3 and not 19.8 row by row.
    hub: Any = registry.by_name("pyarrow")
    made: Array = hub.memory(nbytes).view(storage).reshape(shape)
    return made


def _by_columns(pieces: list[list[Array]], rows: int, storage: np.dtype[Any]) -> Array:
    out = _memory((len(pieces), rows), storage)
    shares = threads.split_rows(len(pieces), out.nbytes, None, 1)
    threads.run([partial(_fill_columns, out[low:high], pieces[low:high]) for low, high in shares])
    return out.T


def _fill_columns(out: Array, pieces: list[list[Array]]) -> None:
    for column, parts in zip(out, pieces, strict=True):
        start = 0
        for part in parts:
            # As bytes of one width: NumPy's bfloat16 would be cast to the integers that hold it.
            column[start : start + len(part)] = part.view(column.dtype)
            start += len(part)


def _by_rows(pieces: list[list[Array]], rows: int, storage: np.dtype[Any]) -> Array:
    out = _memory((rows, len(pieces)), storage)
    if not out.size:
        return out
    # To the kernels a row is a record: of values whose width is all that matters.
    kind = record_type(np.dtype([(f"{k}", f"V{storage.itemsize}") for k in range(len(pieces))]))
    records = out.view(kind.dtype)[:, 0]
    # Where any of the columns begins a chunk: from there to the next, each is one array.
    starts = {0, rows}
    for parts in pieces:
        starts.update(np.cumsum([len(part) for part in parts]).tolist())
    places = [iter(parts) for parts in pieces]
    current: list[Array] = [np.empty(0, storage)] * len(pieces)
    begins = [0] * len(pieces)
    ordered = sorted(starts)
    for low, high in pairwise(ordered):
        for k, place in enumerate(places):
            while begins[k] + len(current[k]) <= low:
                begins[k] += len(current[k])
                current[k] = next(place)
        segment = [
            values[low - begin : high - begin].view(kind.leaves[0].dtype)
            for values, begin in zip(current, begins, strict=True)
        ]
        to_rows(segment, kind, records[low:high], None)
    return out
