"""``layout="matrix"``: a table as one tensor, ``(rows, columns)``.

An alias if the columns are the columns of one array already; otherwise a copy, which is
written in blocks of rows if it is row-major.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from zerocopy import handover
from zerocopy._native import core
from zerocopy.device import HOST, same_memory_space
from zerocopy.dtype import NATIVE_NAMES, DType, by_name
from zerocopy.errors import Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.layout import threads
from zerocopy.layout.rows import to_rows
from zerocopy.layout.schema import RecordType, record_type
from zerocopy.plan import Plan
from zerocopy.protocols import cuda_array_interface
from zerocopy.protocols.cuda_array_interface import Handover
from zerocopy.request import MATRIX_ORDERS, MatrixOrder, Request
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import memory, placement
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import Column, Table
from zerocopy.tables.decode import TensorLeaf, decode, refused_by
from zerocopy.tables.hub import new_memory
from zerocopy.tables.labels import combine_errors
from zerocopy.tables.nulls import NO_MASK
from zerocopy.tables.placement import in_one_allocation
from zerocopy.tables.result import Masked

#: The largest gap, in bytes, between columns of one array that is not worth a copy.
MOST_GAP = 4096
_COLUMNS = Fix(options={"layout": "columns"}, effect="gives each column on its own")
_SEPARATE = Reason("the columns are in separate memory", code="separate-memory", fixes=[_COLUMNS])
#: Elements, and at least rows, that are cast at a time.
_BLOCK, _ROWS = 1 << 14, 64
_STACK = "convert the columns, and stack them there: torch.stack(list(x.values()), 1), cupy.stack(...)"


def plan(table: Table, request: Request) -> Plan:
    """Return the plan of a table as one 2-D tensor.

    Raises
    ------
    ZeroCopyError
        The columns are not numbers of one type, or ``convert`` refuses the tensor.
    """
    table = _without_index(table, request)
    leaves = _leaves(table, request)
    is_lists = len(leaves) == 1 and leaves[0].source.view.ndim == 2
    source = _of_lists(leaves[0].source, request) if is_lists else _source(table, leaves, request)
    array_plan = handover.plan(source, request)
    dtype = leaves[0].datetime_dtype if leaves else ""
    convert = array_plan.run
    assert convert is not None

    def dates() -> object:
        return convert().view(dtype)

    run = dates if dtype else convert
    return replace(array_plan, source=f"{table.name} {table.shape}", run=run)


def _without_index(table: Table, request: Request) -> Table:
    """Return a table without its index unless the caller asked for it: row labels are not features."""
    if not table.index or request.index or request.columns is not None:
        return table
    kept = len(table.columns) - table.index
    return replace(table, labels=table.labels[:kept], columns=table.columns[:kept], index=0)


def _leaves(table: Table, request: Request) -> list[TensorLeaf]:
    """Return each column's values: one tensor of one dimension each, all of one type."""
    leaves: list[TensorLeaf] = []
    refused: dict[Hashable, ZeroCopyError] = {}
    for label, tree in zip(table.labels, decode(table, request).values(), strict=True):
        ndim = tree.source.view.ndim if isinstance(tree, TensorLeaf) else 0
        if isinstance(tree, TensorLeaf) and (ndim == 1 or (ndim == 2 and len(table.columns) == 1)):
            leaves.append(tree)
            if tree.source.refusal is not None:
                refused[label] = refused_by(tree.source.refusal)
            continue
        why = "it is not plain numbers, and a matrix cannot hold their meaning"
        fixes: tuple[Fix, ...] = (_COLUMNS,)
        if isinstance(tree, TensorLeaf):
            shape = tree.source.view.shape[1:]
            kind = f"tensors of shape {shape}" if any(shape) else "lists"  # of a query that has not run
            why = f"it is a column of {kind}, and a matrix has two dimensions"
            if len(shape) == 1:
                fixes = (Fix(options={"columns": [label]}, effect="takes it alone"), _COLUMNS)
        elif request.nulls is not None and isinstance(tree, Masked):
            why, fixes = "it would have a mask, and a matrix is one tensor", NO_MASK
        refused[label] = UnsupportedConversionError("", why, code="not-numbers", fixes=fixes)
    mixed = _mixed_types(table, leaves) if len(leaves) == len(table.columns) else None
    if refused:
        if table.single:
            raise refused.popitem()[1]
        raise _combined(refused, mixed)
    if mixed is not None:
        raise refused_by(mixed)
    return leaves


def _combined(refused: dict[Hashable, ZeroCopyError], mixed: Reason | None) -> ZeroCopyError:
    """Return one error for columns that are refused, and for their types."""
    whole = combine_errors(refused)
    if mixed is not None:
        whole.with_context(why=f"{whole.why}; also, {mixed.why}")
        whole.obstacles.append(((), mixed))
    return whole


def _mixed_types(table: Table, leaves: list[TensorLeaf]) -> Reason | None:
    """Return why columns of several types are refused; None if they have one."""
    types: dict[str, list[Hashable]] = {}
    for label, leaf in zip(table.labels, leaves, strict=True):
        types.setdefault(leaf.datetime_dtype or leaf.source.view.dtype.name, []).append(label)
    if len(types) < 2:
        return None
    listed = ", ".join(f"{dtype} ({_listed(labels)})" for dtype, labels in types.items())
    most = max(types.values(), key=len)
    return Reason(
        f"a matrix has one type, and the columns have {len(types)}: {listed}",
        code="mixed-types",
        fixes=[*_common(list(types)), Fix(options={"columns": most}, effect="takes those of one type")],
    )


def _common(types: list[str]) -> list[Fix]:
    """Return fixes that cast columns to one type, if they are numbers of NumPy."""
    if not NATIVE_NAMES.issuperset(types):
        return []
    exact = np.result_type(*types)
    names = dict.fromkeys([str(exact), *(["float32"] if exact == np.float64 else [])])
    return [Fix(options={"dtype": name}, effect=f"makes all of them {name}") for name in names]


def _listed(labels: list[Hashable]) -> str:
    more = len(labels) - 4
    return ", ".join(map(repr, labels[:4])) + (f" and {more} more" if more > 0 else "")


def _of_lists(source: Source, request: Request) -> Source:
    """Return the one column of lists of a table as its matrix."""
    view = source.view
    if request.layout is not MatrixOrder.F or min(view.shape) <= 1:
        return source
    rows = view.shape[0] * view.dtype.itemsize
    reason = _other_order("row by row", "F")
    by_column = replace(view, ptr=0, strides=(view.dtype.itemsize, rows), readonly=False)
    if request.target.copy_reasons(by_column):
        return source  # the target requires row-major memory

    def host() -> Array:
        return np.asfortranarray(placement.fetch(source))

    return Source(source.name, by_column, host, source.protocol, (*source.reasons, reason), obj=by_column)


# -- alias or copy ----------------------------------------------------------------


def _source(table: Table, leaves: list[TensorLeaf], request: Request) -> Source:
    order = MATRIX_ORDERS.get(request.layout, "")
    sources = [leaf.source for leaf in leaves]
    if not leaves:  # the type is float64, as in pandas
        return _written(table, [], order, request, [], by_name("float64"))
    reasons = list({reason: None for source in sources for reason in source.reasons})
    if reasons and len(leaves) > 1:  # columns of one chunk are in separate memory too
        reasons = [_of_chunks(reason) if reason.code == "chunks" else reason for reason in reasons]
    views = [source.view for source in sources]
    first = views[0].device
    for view in views:
        if not same_memory_space(view.device, first):
            why, remedy = "its columns are on several devices", "copy them to one device first"
            raise UnsupportedConversionError("", why, remedy, code="other-device")
    if not reasons:
        is_regular = table.length < 2 or len({view.strides[0] for view in views}) == 1
        strides = _strides(views[0], [view.ptr for view in views]) if is_regular else None
        alias, reasons = _alias_view(views, (table.length, len(leaves)), strides, order, request)
        # If a copy is needed, make it here: the planner's copy has neither row blocks nor an order.
        if alias is not None and not reasons:
            return _alias(table, sources, alias)
    if first.is_host:
        if request.cast is not None and not (order or table.index or request.columns is not None):
            is_cast = any(source.writer is not None for source in sources)
            order = "F" if is_cast and table.by_columns is not None and table.by_columns() else ""
        return _written(table, leaves, order, request, reasons, views[0].dtype)
    # There is no common function that stacks columns on a device, so the host stacks them.
    for column in sources:
        column.check_copy()
    reasons.append(
        Reason(f"it is assembled on the host, and the columns are on {first}", _STACK, code="other-device")
    )
    source = _written(table, leaves, "C", request, reasons, views[0].dtype)
    return placement.via_host(replace(source, view=replace(source.view, device=first)))


def _of_chunks(reason: Reason) -> Reason:
    return Reason(f"{reason.why}, and {_SEPARATE.why}", code="chunks", fixes=_SEPARATE.fixes)


def _other_order(stored: str, order: str) -> Reason:
    return Reason(
        f'it is stored {stored}, and order="{order}" was requested',
        code="memory-order",
        fixes=[Fix(options={"layout": "matrix"}, effect="takes either order")],
    )


def _alias_view(
    columns: list[StridedView],
    shape: tuple[int, int],
    strides: tuple[int, int] | None,
    order: str,
    request: Request,
) -> tuple[StridedView | None, list[Reason]]:
    """Return the matrix of columns with these strides, and why it is copied."""
    if strides is None:
        return None, [_SEPARATE]
    if order and not _in_order(order, strides, shape):
        return None, [_other_order("column by column" if order == "C" else "row by row", order)]
    readonly = any(column.readonly for column in columns)
    alias = replace(columns[0], shape=shape, strides=strides, readonly=readonly)
    return alias, _copy_reasons(alias, request)


def _strides(first: StridedView, pointers: Sequence[int]) -> tuple[int, int] | None:
    """Return the strides of the matrix of columns like `first`; None if they are in separate memory.

    A consumer of a strided tensor may read or write all bytes from its first to its last, so one allocation
    must hold all of them.
    """
    strides = _regular_strides(first, pointers)
    if strides is None or not first.shape[0]:
        return strides
    whole = replace(first, shape=(first.shape[0], len(pointers)), strides=strides)
    return strides if len(pointers) < 2 or in_one_allocation(whole, first) else None


def _regular_strides(first: StridedView, pointers: Sequence[int]) -> tuple[int, int] | None:
    """Return the strides of columns at equal distances.

    With other data between them they count as separate, for the reason in `_strides`.
    """
    rows, size = first.shape[0], first.dtype.itemsize
    if rows == 0:
        return contiguous_strides((0, len(pointers)), size)  # type: ignore[return-value]
    steps = {b - a for a, b in pairwise(pointers)}
    if len(steps) > 1:
        return None
    stride = first.strides[0] if rows > 1 else size
    if not steps:
        return stride, size if stride != size else rows * size
    (step,) = steps
    by_column = stride == size and 0 <= step - rows * size < MOST_GAP
    # Row-major: all columns lie within the row stride of one 2-D array, so the gaps belong to that array.
    by_row = size <= step and (len(pointers) - 1) * step + size <= stride
    return (stride, step) if by_column or by_row else None


def _in_order(order: str, strides: tuple[int, int], shape: tuple[int, int]) -> bool:
    if min(shape) <= 1:
        return True  # one column, or one row, is both
    return strides[1] < strides[0] if order == "C" else strides[0] < strides[1]


def _alias(table: Table, sources: list[Source], alias: StridedView) -> Source:
    owner = tuple([s.view.owner if s.producer is None else s.producer for s in sources])
    view = replace(alias, owner=owner)

    def host() -> Array:
        # Called even though only addresses are needed: it waits for the producer's work.
        arrays = [source.host() for source in sources]
        return replace(view, owner=(owner, arrays)).numpy()

    producer = None if view.device.is_host else _on_device(sources, view)
    return Source(table.name, view, host, sources[0].protocol, obj=view, producer=producer)


def _on_device(sources: list[Source], view: StridedView) -> Handover:
    """Return an object that exports a matrix on a device, as the producers of its columns would."""
    interfaces = [s.producer for s in sources if hasattr(type(s.producer), "__cuda_array_interface__")]
    streams = {cuda_array_interface.read(producer, view.device.id)[1] for producer in interfaces}
    if len(interfaces) < len(sources) or len(streams) != 1:
        why = "its columns are on a device, and do not name one stream on which all are ready"
        raise UnsupportedConversionError("", why, _STACK, code="several-streams")
    return Handover(view, streams.pop(), view.owner)


def _copy_reasons(view: StridedView, request: Request) -> list[Reason]:
    """Return why the target, or an option, needs a copy of the alias."""
    if view.size == 0 or not view.device.is_host:
        return []
    if request.copy is True:
        return [Reason("copy=True was requested", code="copy-requested")]
    reasons = list(request.target.copy_reasons(view))
    if request.writable and view.readonly and request.target.mutable:
        reasons.append(
            Reason(
                "writable=True was requested and the source's memory is immutable",
                code="writable-requested",
                fixes=[Fix(options={"writable": None}, effect="aliases: do not write to the result")],
            )
        )
    return reasons


# -- the copy -----------------------------------------------------------------------


def _written(
    table: Table,
    leaves: list[TensorLeaf],
    order: str,
    request: Request,
    reasons: Sequence[Reason],
    dtype: DType,
) -> Source:
    """Return the matrix as a copy in the requested memory order; without leaves it cannot be read."""
    rows, width = table.length, len(table.columns)
    row_major = contiguous_strides((rows, width), dtype.itemsize)
    view = StridedView(0, (rows, width), row_major, dtype, HOST, False, table)
    if order == "F":
        by_column = replace(view, strides=(dtype.itemsize, max(1, rows) * dtype.itemsize))
        # A target that requires row-major memory (JAX, TensorFlow) would copy it again.
        if not request.target.copy_reasons(by_column):
            view = by_column

    def host() -> Array:
        if any(leaf.source.writer is not None for leaf in leaves):
            return _cast_columns(leaves, (rows, width), dtype.storage, view.strides == row_major)
        pieces = [_pieces(c, leaf) for c, leaf in zip(table.columns, leaves, strict=True)]
        if view.strides == row_major:
            return _by_rows(pieces, rows, dtype.storage)
        return _by_columns(pieces, rows, dtype.storage)

    return Source(table.name, view, host, "arrow-c", reasons, obj=view)


def _pieces(column: Column, leaf: TensorLeaf) -> list[Array]:
    """Return a column's values, chunk by chunk if there are several."""
    source = leaf.source
    if (
        not isinstance(column, ArrowColumn)
        or len(column.chunks) < 2
        or column.field.kind != "number"
        or column.null_count
        or not source.view.device.is_host
    ):
        return [placement.fetch(source)]
    return [memory.elements(chunk, source.view.dtype) for chunk in column.chunks if chunk.length]


def _cast_columns(
    leaves: list[TensorLeaf], shape: tuple[int, int], storage: np.dtype[np.generic], by_rows: bool
) -> Array:
    """Return a matrix into which the columns are cast, in blocks of rows that fit into the cache."""
    out = new_memory(shape, storage) if by_rows else new_memory(shape[::-1], storage).T
    writers = [leaf.source.writer() if leaf.source.writer else _copier(leaf.source) for leaf in leaves]
    step = max(_ROWS, _BLOCK // max(1, shape[1])) if by_rows else _BLOCK

    def cast(low: int, high: int) -> None:
        for start in range(low, high, step):
            block = out[start : min(start + step, high)]
            for column, write in enumerate(writers):
                write(start, block[:, column])

    threads.run([partial(cast, *share) for share in threads.split_rows(shape[0], out.nbytes, None, 1)])
    return out


def _copier(source: Source) -> Callable[[int, Array], None]:
    array = placement.fetch(source)

    def write(start: int, out: Array) -> None:
        out[...] = array[start : start + len(out)].view(out.dtype)

    return write


def _by_columns(pieces: list[list[Array]], rows: int, storage: np.dtype[np.generic]) -> Array:
    out = new_memory((len(pieces), rows), storage)
    shares = threads.split_rows(len(pieces), out.nbytes, None, 1)
    threads.run([partial(_fill_columns, out[low:high], pieces[low:high]) for low, high in shares])
    return out.T


def _fill_columns(out: Array, pieces: list[list[Array]]) -> None:
    for column, parts in zip(out, pieces, strict=True):
        start = 0
        for part in parts:
            # As integers of one width: NumPy would cast bfloat16 values to the integers that store it.
            column[start : start + len(part)] = part.view(column.dtype)
            start += len(part)


def _by_rows(pieces: list[list[Array]], rows: int, storage: np.dtype[np.generic]) -> Array:
    out = new_memory((rows, len(pieces)), storage)
    if not out.size:
        return out
    if all(len(parts) == 1 for parts in pieces):
        fill(out, [parts[0] for parts in pieces])
        return out
    # The rows at which any column begins a chunk: between two of them each column is one array.
    starts = {0, rows}
    for parts in pieces:
        starts.update(np.cumsum([len(part) for part in parts]).tolist())
    chunks = [iter(parts) for parts in pieces]
    current: list[Array] = [np.empty(0, storage)] * len(pieces)
    begins = [0] * len(pieces)
    for low, high in pairwise(sorted(starts)):
        for k, remaining in enumerate(chunks):
            while begins[k] + len(current[k]) <= low:
                begins[k] += len(current[k])
                current[k] = next(remaining)
        both = zip(current, begins, strict=True)
        fill(out[low:high], [values[low - begin : high - begin] for values, begin in both])
    return out


def fill(out: Array, columns: Sequence[Array]) -> None:
    """Write columns with equal lengths and item sizes to a row-major matrix."""
    kind = _row_type(len(columns), out.itemsize)
    if core is None:  # which copies bytes, whatever their types
        columns = [column.view(kind.leaves[0].dtype) for column in columns]
    to_rows(columns, kind, out.view(kind.dtype)[:, 0], None)


@lru_cache(maxsize=64)
def _row_type(width: int, itemsize: int) -> RecordType:
    return record_type(np.dtype([(f"{k}", f"V{itemsize}") for k in range(width)]))
