"""The CUDA kernels: they copy a tile of records to its rows of the columns, and back.

There are two for each direction. The first goes through shared memory, so that the threads of a warp
access adjacent global memory only. The second is for records of which less than a tile fits shared
memory, and for few fields of long records: its threads access global memory directly, and the caches
combine accesses to adjacent bytes.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from numba import cuda, int64, uint8, uint16, uint32, uint64

from zerocopy.errors.warning import warn
from zerocopy.layout.cuda.task import Columns, Records, from_column, read_task, to_column
from zerocopy.layout.cuda.tile import clear_tile, load_tile, minimum, store_tile, swizzled
from zerocopy.layout.cuda.tile_plan import ROW, THREADS, WARP

_device: Any = cuda.jit(device=True)


def _fingerprint() -> int:
    """Return a digest of the source of all kernels.

    Numba's disk cache checks only the file that contains the kernel, not the files that it
    imports. So each kernel refers to this number as a constant, which is part of the cache key.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:6], "big")


def _kernel(function: Any) -> Any:
    """Return a kernel that is compiled when it first runs, and cached on disk if possible."""
    try:
        return cuda.jit(cache=True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        warn(
            f"the CUDA kernels are compiled in each process, which takes some seconds: {error}; "
            "set NUMBA_CACHE_DIR to a writable folder"
        )
        return cuda.jit(function)


@_device
def _unswizzled(records: Any, byte: Any) -> Any:
    return byte


#: Warps of a block.
_WARPS = THREADS // WARP


def _each_task(copy: Any) -> Any:
    """Return the function that distributes the tasks of a tile over the block's warps."""

    @_device
    def run(
        records: Any, columns: Any, tasks: Any, first: Any, count: Any, origin: Any, stride: Any, pitch: Any
    ) -> None:
        thread = uint32(cuda.threadIdx.x)
        lane, at = uint32(thread % WARP), uint32(thread // WARP * len(ROW))
        while at < tasks.size:
            task = read_task(tasks, at, first, count, origin, uint32(stride), pitch)
            copy(records, columns, task, lane)
            at = uint32(at + _WARPS * len(ROW))

    return run


_tile_to_columns = _each_task(to_column(swizzled, uint32))
_tile_from_columns = _each_task(from_column(swizzled, uint32))
_direct_to_columns = _each_task(to_column(_unswizzled, uint64))
_direct_from_columns = _each_task(from_column(_unswizzled, uint64))


def _tiled(source: int, to_rows: bool) -> Any:
    @_kernel
    def tiled(
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
        has_padding: Any,
    ) -> None:
        """Copy records to columns or back through shared memory, one tile per block.

        Parameters
        ----------
        records8, records64 : array
            The same memory, from a multiple of 8 on: the records start `head` bytes later.
        columns8, columns32, columns64 : array
            The same memory, from a multiple of 8 on: the tasks' column offsets are relative to it.
        tasks, tile_rows, shift, mask, has_padding
            The plan's table, records of a tile, swizzle, and whether padding must be cleared.
        rows, stride, pitch : int64
            Number of records, size of a record, pitch of the columns: see PITCHES in the plan.
        """
        source  # noqa: B018 - part of the cache key, as is `to_rows`
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
        count = uint32(minimum(tile_rows, rows - first))
        start, size = uint64(first * stride), uint32(count * uint32(stride))
        if to_rows:  # a constant: Numba removes the other branch
            if has_padding:
                clear_tile(tile, uint32(head + size), thread)
                cuda.syncthreads()
            _tile_from_columns(tile, columns, tasks, first, count, uint32(0), stride, pitch)
            cuda.syncthreads()
            store_tile(records8, records64, tile, start, uint32(head), size, thread)
        else:
            load_tile(records8, records64, tile, start, uint32(head), size, thread)
            cuda.syncthreads()
            _tile_to_columns(tile, columns, tasks, first, count, uint32(0), stride, pitch)

    return tiled


def _direct(source: int, to_rows: bool) -> Any:
    @_kernel
    def direct(
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
        """Copy records to columns or back without shared memory; padding has its own tasks."""
        source  # noqa: B018 - part of the cache key, as is `to_rows`
        first = int64(cuda.blockIdx.x) * tile_rows
        if first >= rows:
            return
        records = Records(records8, records16, records32, 0, 0)
        columns = Columns(columns8, columns32, columns64)
        count, origin = uint32(minimum(tile_rows, rows - first)), uint64(first * stride)
        if to_rows:
            _direct_from_columns(records, columns, tasks, first, count, origin, stride, pitch)
        else:
            _direct_to_columns(records, columns, tasks, first, count, origin, stride, pitch)

    return direct


to_columns: Any = _tiled(_fingerprint(), False)
to_rows: Any = _tiled(_fingerprint(), True)
to_columns_direct: Any = _direct(_fingerprint(), False)
to_rows_direct: Any = _direct(_fingerprint(), True)
