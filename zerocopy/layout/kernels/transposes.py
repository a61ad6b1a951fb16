"""Records to lines of columns and back, in registers.

A *group* is some fields of one width that lie side by side in the record: ``x, y, z`` of a
particle. They are read as one *window* a record, and written as one line (64 bytes) a field.
In between the fields of several records are sorted in registers: `unzip` and `zip`, known
from other vector instruction sets. One load of 16 bytes and half a shuffle then do what four
loads and four inserts did.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from zerocopy.layout.groups import GROUPS, Group
from zerocopy.layout.kernels.instructions import emit_prefetch, integer, load, store, word
from zerocopy.layout.plan import LINE

Values = list[Any]


class Move(NamedTuple):
    """What is moved of a group, in integers of 64 bits: of Python for callers, of LLVM in here.

    Attributes
    ----------
    columns : int
        The address of its columns' addresses.
    at : int
        The byte of each column that is next.
    record, stride : int
        The address of the group in the next record, and bytes between records.
    lines : int
        How many of each column. A line has as many records as it has values.
    ahead, pace : int
        What is fetched meanwhile. Gather: the address in the records, and bytes from there on for
        each line that is written. Scatter: bytes from each line of a column, and nothing.
    """

    columns: Any
    at: Any
    record: Any
    stride: Any
    lines: Any
    ahead: Any
    pace: Any


def gather(*, streaming: bool) -> Any:
    """Return ``gather(kind, *move)``, see :class:`Move`: records become lines of each column.

    Parameters
    ----------
    streaming : bool
        Write past the caches; the columns then start at multiples of 64 bytes.

    Returns
    -------
    intrinsic
        Its ``kind`` is the group's number in :data:`GROUPS`.

    Notes
    -----
    Three fields are read as four: the last record that is read must not be the last one in
    memory.
    """

    def emit(builder: Any, group: Group, move: Move, index: Any) -> None:
        width, fields = group.width, group.fields
        windows = _strided_loads(builder, move.record, move.stride, width * _power(fields), LINE // width)
        lines = _unzip(builder, _as_lines(builder, windows, width))
        for column in range(fields):
            line = _swapped(builder, lines[column], width) if group.swap else lines[column]
            place = _place(builder, move, column)
            store(builder, line, place, LINE if streaming else 1, streaming)
            done = builder.add(builder.mul(index, integer(64, fields)), integer(64, column))
            emit_prefetch(builder, builder.add(move.ahead, builder.mul(move.pace, done)), 1)

    return _switch(emit)


def scatter() -> Any:
    """Return ``scatter(kind, *move)``, see :class:`Move`: lines of each column become records.

    The mirror of :func:`gather`. Of three fields four are written: the
    bytes after the group must be written later, and those after the last record be there.
    """

    def emit(builder: Any, group: Group, move: Move, index: Any) -> None:
        width, written = group.width, _power(group.fields)
        if written == 1 and width <= 8:
            # One value after the other: to take them out of a register costs more than
            # to load each of them from the first cache.
            first = _place(builder, move, 0)
            values = _strided_loads(builder, first, integer(64, width), width, LINE // width)
            if group.swap:
                values = [builder.bswap(value) for value in values]
        else:
            kind = _line(width)
            lines = [load(builder, _place(builder, move, c), kind) for c in range(group.fields)]
            if group.swap:
                lines = [_swapped(builder, line, width) for line in lines]
            lines += [ir.Constant(kind, ir.Undefined)] * (written - group.fields)
            values = _windows(builder, _zip(builder, lines), width * written)
        _strided_stores(builder, values, move.record, move.stride)
        for column in range(group.fields):
            place = builder.add(_place(builder, move, column), move.ahead)
            # Into the second cache: the first is full of the records that are put together.
            emit_prefetch(builder, place, 2)

    return _switch(emit)


def _switch(emit: Any) -> Any:
    """Return an intrinsic that chooses among all groups at run time.

    All of them in one function: a jump that is predicted, and sooner compiled than a function
    for each of them.
    """

    @intrinsic
    def move_group(
        typing: Any,
        kind: Any,
        columns: Any,
        at: Any,
        record: Any,
        stride: Any,
        lines: Any,
        ahead: Any,
        pace: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind, *rest = arguments
            move = Move(*rest)
            after = builder.append_basic_block("moved")
            switch = builder.switch(kind, after)
            for number, group in enumerate(GROUPS):
                block = builder.append_basic_block(f"group{number}")
                switch.add_case(integer(64, number), block)
                builder.position_at_end(block)
                _lines(builder, emit, group, move)
                builder.branch(after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        return types.void(*(types.intp,) * 8), generate

    return move_group


def _lines(builder: Any, emit: Any, group: Group, move: Move) -> None:
    """Emit the loop over the lines of a group."""
    records = builder.mul(move.stride, integer(64, LINE // group.width))
    with cgutils.for_range(builder, move.lines) as loop:
        byte = builder.add(move.at, builder.mul(loop.index, integer(64, LINE)))
        place = builder.add(move.record, builder.mul(loop.index, records))
        emit(builder, group, move._replace(at=byte, record=place), loop.index)


def _power(fields: int) -> int:
    """Return how many fields are moved for so many: a power of two."""
    return 1 << (fields - 1).bit_length()


def _place(builder: Any, move: Move, column: int) -> Any:
    """Emit the address of the next byte of a column."""
    entry = builder.add(move.columns, integer(64, 8 * column))
    return builder.add(load(builder, entry, ir.IntType(64)), move.at)


def _walk(builder: Any, start: Any, stride: Any, count: int) -> Values:
    """Emit the addresses of so many places.

    In fours: x86 adds once or twice the stride within a load, so that three registers serve
    all of them. With a register a place they do not suffice, and each load waits for its
    address to be fetched from the stack.
    """
    one, two = stride, builder.shl(stride, integer(64, 1))
    three, four = builder.add(two, stride), builder.shl(stride, integer(64, 2))
    places: Values = []
    while len(places) < count:
        places += [start, builder.add(start, one), builder.add(start, two), builder.add(start, three)]
        start = builder.add(start, four)
    return places[:count]


def _strided_loads(builder: Any, start: Any, stride: Any, width: int, count: int) -> Values:
    return [load(builder, place, word(width)) for place in _walk(builder, start, stride, count)]


def _strided_stores(builder: Any, values: Values, start: Any, stride: Any) -> None:
    for value, place in zip(values, _walk(builder, start, stride, len(values)), strict=True):
        store(builder, value, place)


# -- registers --------------------------------------------------------------------


def _line(width: int) -> Any:
    """Return the type of a line of values of a width: those of 16 bytes are pairs."""
    width = min(width, 8)
    return ir.VectorType(ir.IntType(8 * width), LINE // width)


def _shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), [integer(32, i) for i in lanes])
    return builder.shuffle_vector(a, b, mask)


def _as_lines(builder: Any, windows: Values, width: int) -> Values:
    """Put windows side by side until they fill lines."""
    kind = windows[0].type
    if isinstance(kind, ir.IntType):
        held = LINE * 8 // kind.width
        vector = ir.VectorType(kind, held)
        lines = []
        for start in range(0, len(windows), held):
            line = ir.Constant(vector, ir.Undefined)
            for lane, window in enumerate(windows[start : start + held]):
                line = builder.insert_element(line, window, integer(32, lane))
            lines.append(line)
    else:
        lines = windows
        while lines[0].type.count * 8 < LINE:
            both = list(range(2 * lines[0].type.count))
            lines = [_shuffle(builder, a, b, both) for a, b in zip(lines[::2], lines[1::2], strict=True)]
    return [builder.bitcast(line, _line(width)) for line in lines]


def _windows(builder: Any, lines: Values, width: int) -> Values:
    """Take lines apart into windows of so many bytes."""
    if width <= 8:
        held = LINE // width
        vector = ir.VectorType(ir.IntType(8 * width), held)
        lines = [builder.bitcast(line, vector) for line in lines]
        return [builder.extract_element(line, integer(32, i)) for line in lines for i in range(held)]
    vector = ir.VectorType(ir.IntType(64), LINE // 8)
    lines = [builder.bitcast(line, vector) for line in lines]
    return [_shuffle(builder, line, line, [i, i + 1]) for line in lines for i in range(0, LINE // 8, 2)]


def _unzip(builder: Any, lines: Values) -> Values:
    """Sort ``a0 b0 a1 b1 ...`` over some lines into lines of ``a0 a1 ...`` and ``b0 b1 ...``.

    Each step halves the number of fields that are mixed. Of four lines, of which each value
    says its field and record:  abcd abcd..  ->  acac.. bdbd..  ->  aaaa.. bbbb.. cccc.. dddd..
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
