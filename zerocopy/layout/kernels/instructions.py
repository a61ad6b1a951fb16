"""Machine instructions that Python cannot express, as Numba intrinsics.

Addresses are plain integers: only the plan knows the types of the fields, and an array argument per
field would need one compilation per record type. Loads and stores assume no alignment by default,
because records may start at any address.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from zerocopy.layout.record_plan import LINE

_X86 = platform.machine().lower() in ("x86_64", "amd64", "i686")


def integer(bits: int, value: int) -> Any:
    """Return an LLVM constant."""
    return ir.Constant(ir.IntType(bits), value)


def word(width: int) -> Any:
    """Return the LLVM type of `width` bytes: an integer, or beyond 8 a vector of 64-bit integers."""
    return ir.IntType(8 * width) if width <= 8 else ir.VectorType(ir.IntType(64), width // 8)


def load(builder: Any, address: Any, llvm_type: Any) -> Any:
    """Emit an unaligned load."""
    return builder.load(builder.inttoptr(address, llvm_type.as_pointer()), align=1)


def store(builder: Any, value: Any, address: Any, align: int = 1, streaming: bool = False) -> None:
    """Emit a store; a streaming one bypasses the caches and needs the alignment of its width."""
    target = builder.inttoptr(address, value.type.as_pointer())
    instruction = builder.store(value, target, align=align)
    if streaming:
        instruction.set_metadata("nontemporal", builder.module.add_metadata([integer(32, 1)]))


def copier(width: int, *, swap: bool = False, streaming: bool = False) -> Any:
    """Return an intrinsic ``copy(target, source)`` for `width` bytes.

    Parameters
    ----------
    width : int
        1, 2, 4, 8, 16 or 64; all bytes are read before any is written.
    swap : bool
        Reverse the order of the bytes.
    streaming : bool
        Bypass the caches: `target` must then be a multiple of `width`.
    """

    @intrinsic
    def copy(typing: Any, target: Any, source: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = load(builder, arguments[1], word(width))
            if swap:
                value = builder.bswap(value)
            store(builder, value, arguments[0], width if streaming else 1, streaming)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), emit

    return copy


copy1, copy4, copy8, copy16 = (copier(width) for width in (1, 4, 8, 16))
swap2, swap4, swap8 = (copier(width, swap=True) for width in (2, 4, 8))
copy_line = copier(LINE)
#: Copies a cache line without fetching its old contents, as an ordinary store does: that is a third
#: of the memory traffic of a copy.
stream_line = copier(LINE, streaming=True)


def emit_prefetch(builder: Any, address: Any, level: int) -> None:
    """Emit a prefetch: see :func:`prefetcher`."""
    pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    llvm_type = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, llvm_type, "llvm.prefetch.p0")
    # A read (0), into all cache levels (3) or all but the first (2), of data (1).
    flags = [integer(32, value) for value in (0, 4 - level, 1)]
    builder.call(function, [builder.inttoptr(address, pointer), *flags])


def prefetcher(level: int) -> Any:
    """Return an intrinsic ``prefetch(address)``, which is safe for any address.

    Parameters
    ----------
    level : int
        Cache level: 1 for data that is read next, 2 for more than the first level holds.
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
    """Order streaming stores before later stores, which x86 does not do by itself."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _X86:
            llvm_type = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), llvm_type), [])
        else:
            builder.fence("release")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def entry(typing: Any, table: Any, index: Any) -> Any:
    """Return an integer of a table at an address.

    An array argument would be reference-counted, atomically, in each function that receives it.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        table, index = arguments
        place = builder.add(table, builder.shl(index, integer(64, 3)))
        return load(builder, place, ir.IntType(64))

    return types.intp(types.intp, types.intp), emit
