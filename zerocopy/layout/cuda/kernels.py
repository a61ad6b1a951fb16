"""The kernels: a tile of records to its part of the columns, and back.

For each direction there are two. One goes by way of shared memory: all that it reads and writes
of global memory lies side by side for the threads of a warp. The other one is for records of
which less than a tile fits shared memory, and for few fields of long records: where a thread
goes there itself, and the caches see that neighbours are fetched once.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

from numba import cuda, int64, uint8, uint16, uint32, uint64

from zerocopy.layout.cuda.moves import Columns, Records, from_column, read_task, to_column
from zerocopy.layout.cuda.plan import ROW, THREADS, WARP
from zerocopy.layout.cuda.tile import clear_tile, least, load_tile, store_tile, swizzled

_device: Any = cuda.jit(device=True)


def _fingerprint() -> int:
    """Return a number that stands for the source of all kernels.

    Numba keeps what it has compiled on disk, by the file that a function is in. What that file
    imports may change without it: so each kernel has this number as a constant, which is a
    part of the key.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")


def _kernel(function: Any) -> Any:
    """Compile a kernel when it is first run, and keep it on disk."""
    try:
        return cuda.jit(cache=True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        warnings.warn(
            f"{error}: so the kernels are compiled in each process, which takes some seconds; "
            "set NUMBA_CACHE_DIR to a folder that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
        return cuda.jit(function)


@_device
def _as_it_lies(records: Any, byte: Any) -> Any:
    return byte


_tile_to_column, _tile_from_column = to_column(swizzled), from_column(swizzled)
_to_column, _from_column = to_column(_as_it_lies), from_column(_as_it_lies)

#: Warps of a block.
_WARPS = THREADS // WARP


def _to_columns(source: int) -> Any:
    @_kernel
    def to_columns(
        records8: Any,
        records64: Any,
        columns8: Any,
        columns32: Any,
        columns64: Any,
        tasks: Any,
        rows: Any,
        stride: Any,
        head: Any,
        shift: Any,
        mask: Any,
        tile_rows: Any,
        pitch: Any,
    ) -> None:
        """Write records into their columns, a tile a block.

        Parameters
        ----------
        records8, records64 : array
            The same memory, from a multiple of 8 on: the records begin `head` bytes after that.
        columns8, columns32, columns64 : array
            The same memory, from a multiple of 8 on: where the tasks count from.
        tasks : array of int64
            The plan's table.
        rows, stride, shift, mask, tile_rows, pitch : int64
            Records, bytes of a record, the tile's swizzle, records of a tile, and see BEFORE in
            the plan.
        """
        source  # noqa: B018 - a part of the cache's key
        thread = uint32(cuda.threadIdx.x)
        first = int64(cuda.blockIdx.x) * tile_rows
        if first >= rows:
            return
        tile = Records(
            cuda.shared.array(0, uint8),
            cuda.shared.array(0, uint16),
            cuda.shared.array(0, uint32),
            uint32(shift),
            uint32(mask),
        )
        columns = Columns(columns8, columns32, columns64)
        count = uint32(least(tile_rows, rows - first))
        start, size = uint64(first * stride), uint32(count * uint32(stride))
        load_tile(records8, records64, tile, start, uint32(head), size, thread)
        cuda.syncthreads()
        lane, at = uint32(thread % WARP), uint32(thread // WARP * len(ROW))
        while at < tasks.size:
            task = read_task(tasks, at, first, count, uint32(0), uint32(stride), pitch)
            _tile_to_column(tile, columns, task, lane)
            at = uint32(at + _WARPS * len(ROW))

    return to_columns


def _to_rows(source: int) -> Any:
    @_kernel
    def to_rows(
        records8: Any,
        records64: Any,
        columns8: Any,
        columns32: Any,
        columns64: Any,
        tasks: Any,
        rows: Any,
        stride: Any,
        head: Any,
        shift: Any,
        mask: Any,
        tile_rows: Any,
        pitch: Any,
        padded: Any,
    ) -> None:
        """Write columns as records, a tile a block: the mirror of `to_columns`.

        `padded` says that there are bytes which no task writes: they become zero.
        """
        source  # noqa: B018 - a part of the cache's key
        thread = uint32(cuda.threadIdx.x)
        first = int64(cuda.blockIdx.x) * tile_rows
        if first >= rows:
            return
        tile = Records(
            cuda.shared.array(0, uint8),
            cuda.shared.array(0, uint16),
            cuda.shared.array(0, uint32),
            uint32(shift),
            uint32(mask),
        )
        columns = Columns(columns8, columns32, columns64)
        count = uint32(least(tile_rows, rows - first))
        start, size = uint64(first * stride), uint32(count * uint32(stride))
        if padded:
            clear_tile(tile, uint32(head + size), thread)
            cuda.syncthreads()
        lane, at = uint32(thread % WARP), uint32(thread // WARP * len(ROW))
        while at < tasks.size:
            task = read_task(tasks, at, first, count, uint32(0), uint32(stride), pitch)
            _tile_from_column(tile, columns, task, lane)
            at = uint32(at + _WARPS * len(ROW))
        cuda.syncthreads()
        store_tile(records8, records64, tile, start, uint32(head), size, thread)

    return to_rows


def _to_columns_direct(source: int) -> Any:
    @_kernel
    def to_columns_direct(
        records8: Any,
        records16: Any,
        records32: Any,
        columns8: Any,
        columns32: Any,
        columns64: Any,
        tasks: Any,
        rows: Any,
        stride: Any,
        tile_rows: Any,
        pitch: Any,
    ) -> None:
        """Write records into their columns, without shared memory."""
        source  # noqa: B018 - a part of the cache's key
        thread = uint32(cuda.threadIdx.x)
        first = int64(cuda.blockIdx.x) * tile_rows
        if first >= rows:
            return
        records = Records(records8, records16, records32, 0, 0)
        columns = Columns(columns8, columns32, columns64)
        count, origin = uint32(least(tile_rows, rows - first)), uint64(first * stride)
        lane, at = uint32(thread % WARP), uint32(thread // WARP * len(ROW))
        while at < tasks.size:
            task = read_task(tasks, at, first, count, origin, uint32(stride), pitch)
            _to_column(records, columns, task, lane)
            at = uint32(at + _WARPS * len(ROW))

    return to_columns_direct


def _to_rows_direct(source: int) -> Any:
    @_kernel
    def to_rows_direct(
        records8: Any,
        records16: Any,
        records32: Any,
        columns8: Any,
        columns32: Any,
        columns64: Any,
        tasks: Any,
        rows: Any,
        stride: Any,
        tile_rows: Any,
        pitch: Any,
    ) -> None:
        """Write columns as records, without shared memory; padding has tasks of its own."""
        source  # noqa: B018 - a part of the cache's key
        thread = uint32(cuda.threadIdx.x)
        first = int64(cuda.blockIdx.x) * tile_rows
        if first >= rows:
            return
        records = Records(records8, records16, records32, 0, 0)
        columns = Columns(columns8, columns32, columns64)
        count, origin = uint32(least(tile_rows, rows - first)), uint64(first * stride)
        lane, at = uint32(thread % WARP), uint32(thread // WARP * len(ROW))
        while at < tasks.size:
            task = read_task(tasks, at, first, count, origin, uint32(stride), pitch)
            _from_column(records, columns, task, lane)
            at = uint32(at + _WARPS * len(ROW))

    return to_rows_direct


to_columns = _to_columns(_fingerprint())
to_rows = _to_rows(_fingerprint())
to_columns_direct = _to_columns_direct(_fingerprint())
to_rows_direct = _to_rows_direct(_fingerprint())
