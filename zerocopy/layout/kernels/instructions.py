"""Single instructions that Python has no words for, as Numba intrinsics.

Addresses are plain integers: the kernels work on bytes whose types only the plan knows, and
an array object for each field would have to be typed, which is a compilation a record type.
Loads and stores assume no alignment unless they say so, since records may start anywhere.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from zerocopy.layout.plan import LINE

_X86 = platform.machine().lower() in ("x86_64", "amd64", "i686")


def integer(bits: int, value: int) -> Any:
    """Return a constant of LLVM."""
    return ir.Constant(ir.IntType(bits), value)


def word(width: int) -> Any:
    """Return LLVM's type of so many bytes: an integer, or pairs of integers past 8."""
    return ir.IntType(8 * width) if width <= 8 else ir.VectorType(ir.IntType(64), width // 8)


def load(builder: Any, address: Any, kind: Any) -> Any:
    """Emit a load of any alignment."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def store(builder: Any, value: Any, address: Any, align: int = 1, streaming: bool = False) -> None:
    """Emit a store; a streaming one goes past the caches and wants the alignment of its width."""
    target = builder.inttoptr(address, value.type.as_pointer())
    made = builder.store(value, target, align=align)
    if streaming:
        made.set_metadata("nontemporal", builder.module.add_metadata([integer(32, 1)]))


def mover(width: int, *, swap: bool = False, streaming: bool = False) -> Any:
    """Return ``move(target, source)``, which copies so many bytes.

    Parameters
    ----------
    width : int
        1, 2, 4, 8, 16 or 64 bytes, all read before any is written.
    swap : bool
        Turn their order round.
    streaming : bool
        Write past the caches: `target` is then at a multiple of `width`.
    """

    @intrinsic
    def move(typing: Any, target: Any, source: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = load(builder, arguments[1], word(width))
            if swap:
                value = builder.bswap(value)
            store(builder, value, arguments[0], width if streaming else 1, streaming)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), emit

    return move


move1, move2, move4, move8, move16 = (mover(width) for width in (1, 2, 4, 8, 16))
swap2, swap4, swap8 = (mover(width, swap=True) for width in (2, 4, 8))
move_line = mover(LINE)
#: A whole line at once, past the caches: its old contents are never fetched, which an
#: ordinary store does first. That is a third of all traffic of a copy.
stream_line = mover(LINE, streaming=True)


def emit_prefetch(builder: Any, address: Any, level: int) -> None:
    """Emit what :func:`prefetcher` gives."""
    pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # To read (0), into all levels of the cache (3) or all but the first (2), data and not code (1).
    flags = [integer(32, value) for value in (0, 4 - level, 1)]
    builder.call(function, [builder.inttoptr(address, pointer), *flags])


def prefetcher(level: int) -> Any:
    """Return ``prefetch(address)``: ask for a line, which need not be one that may be read.

    Parameters
    ----------
    level : int
        Of the caches: 1 for what is read next, 2 for more than the first one holds.
    """

    @intrinsic
    def prefetch(typing: Any, address: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            emit_prefetch(builder, arguments[0], level)
            return context.get_dummy_value()

        return types.void(types.intp), emit

    return prefetch


prefetch_first, prefetch_second = prefetcher(1), prefetcher(2)


@intrinsic
def store_fence(typing: Any) -> Any:
    """Make streaming stores visible before what follows: nothing else orders them on x86."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _X86:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), kind), [])
        else:
            builder.fence("release")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def entry(typing: Any, table: Any, index: Any) -> Any:
    """Return an integer of a table at an address.

    Arrays as arguments would be counted, with an atomic instruction, by each function that
    they are passed to.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, index = arguments
        place = builder.add(table, builder.shl(index, integer(64, 3)))
        return load(builder, place, ir.IntType(64))

    return types.intp(types.intp, types.intp), emit
