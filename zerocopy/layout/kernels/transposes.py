"""Transposes groups of fields in registers: records to cache lines of columns, and back.

A *group* is a number of adjacent fields of one width, such as ``x, y, z`` of a particle. They are
read as one *window* per record and written as one line (64 bytes) per field. In between, the
vector operations `unzip` and `zip` sort the fields of several records: one load of 16 bytes and
half a shuffle replace four loads and four inserts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from zerocopy.layout.groups import GROUPS, Group
from zerocopy.layout.kernels.instructions import emit_prefetch, integer, load, store, word
from zerocopy.layout.record_plan import LINE

Values = list[Any]


class GroupCopy(NamedTuple):
    """Arguments of a copy of one group: 64-bit integers, in here LLVM values.

    Attributes
    ----------
    columns : int
        The address of the columns' addresses.
    at : int
        Offset of the next byte in each column.
    record, stride : int
        The address of the group in the next record, and bytes between records.
    lines : int
        Lines to copy of each column. A line has as many records as values.
    prefetch, step : int
        Gather: an address in the records to prefetch, and how far to advance it per line written.
        Scatter: the prefetch distance in each column; the step is unused.
    """

    columns: Any
    at: Any
    record: Any
    stride: Any
    lines: Any
    prefetch: Any
    step: Any


def gather(*, streaming: bool) -> Any:
    """Return ``gather(group, *copy)``, see :class:`GroupCopy`: records become lines of each column.

    Parameters
    ----------
    streaming : bool
        Bypass the caches; the columns must then start at multiples of 64 bytes.

    Returns
    -------
    intrinsic
        Its ``group`` is an index of :data:`GROUPS`.

    Notes
    -----
    Three fields are read as four: a record must follow the last one that is read.
    """

    def emit(builder: Any, group: Group, copy: GroupCopy, index: Any) -> None:
        width, fields = group.width, group.fields
        windows = _strided_loads(builder, copy.record, copy.stride, width * _power(fields), LINE // width)
        lines = _unzip(builder, _as_lines(builder, windows, width))
        for column in range(fields):
            line = _swapped(builder, lines[column], width) if group.swap else lines[column]
            place = _place(builder, copy, column)
            store(builder, line, place, LINE if streaming else 1, streaming)
            done = builder.add(builder.mul(index, integer(64, fields)), integer(64, column))
            emit_prefetch(builder, builder.add(copy.prefetch, builder.mul(copy.step, done)), 1)

    return _switch(emit)


def scatter() -> Any:
    """Return ``scatter(group, *copy)``, see :class:`GroupCopy`: lines of each column become records.

    The inverse of :func:`gather`. Three fields are written as four: the bytes after the group must
    be written later, and must exist after the last record.
    """

    def emit(builder: Any, group: Group, copy: GroupCopy, index: Any) -> None:
        width, written = group.width, _power(group.fields)
        if written == 1 and width <= 8:
            # One value at a time: extracting values from a vector register is slower than
            # loading each of them from the first-level cache.
            first = _place(builder, copy, 0)
            values = _strided_loads(builder, first, integer(64, width), width, LINE // width)
            if group.swap:
                values = [builder.bswap(value) for value in values]
        else:
            llvm_type = _line(width)
            lines = [load(builder, _place(builder, copy, c), llvm_type) for c in range(group.fields)]
            if group.swap:
                lines = [_swapped(builder, line, width) for line in lines]
            lines += [ir.Constant(llvm_type, ir.Undefined)] * (written - group.fields)
            values = _windows(builder, _zip(builder, lines), width * written)
        _strided_stores(builder, values, copy.record, copy.stride)
        for column in range(group.fields):
            place = builder.add(_place(builder, copy, column), copy.prefetch)
            # Into the second-level cache: the assembled records fill the first.
            emit_prefetch(builder, place, 2)

    return _switch(emit)


def _switch(emit: Any) -> Any:
    """Return an intrinsic that selects the group at run time.

    One function for all groups, because its jump is predicted well and it compiles faster than
    one function per group.
    """

    @intrinsic
    def copy_group(
        typing: Any,
        group: Any,
        columns: Any,
        at: Any,
        record: Any,
        stride: Any,
        lines: Any,
        prefetch: Any,
        step: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            index, *rest = arguments
            copy = GroupCopy(*rest)
            after = builder.append_basic_block("copied")
            switch = builder.switch(index, after)
            for number, group in enumerate(GROUPS):
                block = builder.append_basic_block(f"group{number}")
                switch.add_case(integer(64, number), block)
                builder.position_at_end(block)
                _lines(builder, emit, group, copy)
                builder.branch(after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 8), generate

    return copy_group


def _lines(builder: Any, emit: Any, group: Group, copy: GroupCopy) -> None:
    """Emit the loop over the lines of a group."""
    records = builder.mul(copy.stride, integer(64, LINE // group.width))
    with cgutils.for_range(builder, copy.lines) as loop:
        byte = builder.add(copy.at, builder.mul(loop.index, integer(64, LINE)))
        place = builder.add(copy.record, builder.mul(loop.index, records))
        emit(builder, group, copy._replace(at=byte, record=place), loop.index)


def _power(fields: int) -> int:
    """Return how many fields are copied for a group: the next power of two."""
    return 1 << (fields - 1).bit_length()


def _place(builder: Any, copy: GroupCopy, column: int) -> Any:
    """Emit the address of the next byte of a column."""
    entry = builder.add(copy.columns, integer(64, 8 * column))
    return builder.add(load(builder, entry, ir.IntType(64)), copy.at)


def _walk(builder: Any, start: Any, stride: Any, count: int) -> Values:
    """Emit `count` addresses, a stride apart.

    Four are derived from one base: x86 adds a multiple of the stride within a load, so three
    registers serve all. With one register per address, addresses would be spilled to the stack.
    """
    one, two = stride, builder.shl(stride, integer(64, 1))
    three, four = builder.add(two, stride), builder.shl(stride, integer(64, 2))
    addresses: Values = []
    while len(addresses) < count:
        addresses += [start, builder.add(start, one), builder.add(start, two), builder.add(start, three)]
        start = builder.add(start, four)
    return addresses[:count]


def _strided_loads(builder: Any, start: Any, stride: Any, width: int, count: int) -> Values:
    return [load(builder, place, word(width)) for place in _walk(builder, start, stride, count)]


def _strided_stores(builder: Any, values: Values, start: Any, stride: Any) -> None:
    for value, place in zip(values, _walk(builder, start, stride, len(values)), strict=True):
        store(builder, value, place)


# -- registers --------------------------------------------------------------------


def _line(width: int) -> Any:
    """Return the vector type of a line of values; values of 16 bytes are pairs of 8."""
    width = min(width, 8)
    return ir.VectorType(ir.IntType(8 * width), LINE // width)


def _shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), [integer(32, i) for i in lanes])
    return builder.shuffle_vector(a, b, mask)


def _as_lines(builder: Any, windows: Values, width: int) -> Values:
    """Concatenate windows into lines."""
    llvm_type = windows[0].type
    if isinstance(llvm_type, ir.IntType):
        per_line = LINE * 8 // llvm_type.width
        vector = ir.VectorType(llvm_type, per_line)
        lines = []
        for start in range(0, len(windows), per_line):
            line = ir.Constant(vector, ir.Undefined)
            for lane, window in enumerate(windows[start : start + per_line]):
                line = builder.insert_element(line, window, integer(32, lane))
            lines.append(line)
    else:
        lines = windows
        while lines[0].type.count * 8 < LINE:
            both = list(range(2 * lines[0].type.count))
            lines = [_shuffle(builder, a, b, both) for a, b in zip(lines[::2], lines[1::2], strict=True)]
    return [builder.bitcast(line, _line(width)) for line in lines]


def _windows(builder: Any, lines: Values, width: int) -> Values:
    """Split lines into windows of `width` bytes."""
    if width <= 8:
        per_line = LINE // width
        vector = ir.VectorType(ir.IntType(8 * width), per_line)
        lines = [builder.bitcast(line, vector) for line in lines]
        return [builder.extract_element(line, integer(32, i)) for line in lines for i in range(per_line)]
    vector = ir.VectorType(ir.IntType(64), LINE // 8)
    lines = [builder.bitcast(line, vector) for line in lines]
    return [_shuffle(builder, line, line, [i, i + 1]) for line in lines for i in range(0, LINE // 8, 2)]


def _unzip(builder: Any, lines: Values) -> Values:
    """Sort lines of ``a0 b0 a1 b1 ...`` into lines of ``a0 a1 ...`` and ``b0 b1 ...``.

    Each step halves the number of fields per line. For four lines, with one letter per field:
    abcd abcd..  ->  acac.. bdbd..  ->  aaaa.. bbbb.. cccc.. dddd..
    """
    if len(lines) == 1:
        return lines
    count = lines[0].type.count
    even, odd = list(range(0, 2 * count, 2)), list(range(1, 2 * count, 2))
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    evens = _unzip(builder, [_shuffle(builder, a, b, even) for a, b in pairs])
    odds = _unzip(builder, [_shuffle(builder, a, b, odd) for a, b in pairs])
    # Fields 0, 2, ... are among the evens.
    return [line for both in zip(evens, odds, strict=True) for line in both]


def _zip(builder: Any, lines: Values) -> Values:
    """Undo :func:`_unzip`."""
    if len(lines) == 1:
        return lines
    count = lines[0].type.count
    low = [lane for i in range(count // 2) for lane in (i, count + i)]
    high = [lane for i in range(count // 2, count) for lane in (i, count + i)]
    evens, odds = _zip(builder, lines[::2]), _zip(builder, lines[1::2])
    return [_shuffle(builder, a, b, half) for a, b in zip(evens, odds, strict=True) for half in (low, high)]


def _swapped(builder: Any, line: Any, width: int) -> Any:
    bytes_ = builder.bitcast(line, ir.VectorType(ir.IntType(8), LINE))
    lanes = [i // width * width + width - 1 - i % width for i in range(LINE)]
    return builder.bitcast(_shuffle(builder, bytes_, bytes_, lanes), line.type)
