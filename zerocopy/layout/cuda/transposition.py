"""Copies records on a CUDA device to columns and back: checks the arguments, launches the kernels.

The tables of plans stay in device memory for the next call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
from numba import cuda

from zerocopy.device import LEGACY_DEFAULT_STREAM, PER_THREAD_DEFAULT_STREAM
from zerocopy.errors import UnsupportedConversionError
from zerocopy.layout.cuda import kernels, memory
from zerocopy.layout.cuda.memory import SIMULATED, DeviceBuffer, Stream, default_stream, numba_stream
from zerocopy.layout.cuda.tile_plan import THREADS, Table, TilePlan, tile_plan
from zerocopy.layout.schema import AOS_TO_SOA, SOA_TO_AOS, FieldLeaf, count_records


class DeviceTable:
    """A plan's table on a device, which must be current when the object is created.

    Numba allocates and frees it on its default stream, where a pool reuses the memory as soon as it
    is freed. So before that, the default stream waits for the last kernel that reads the table on
    each other stream. Kernels on the default stream need no event.
    """

    def __init__(self, table: Table, device: int) -> None:
        self._last: dict[tuple[int, int], Any] = {}  # first: __del__ reads it if the rest fails
        self._device = device
        default = numba_stream(default_stream(), device)
        self._array = cuda.to_device(table, stream=default)
        self._ready: Any = None
        if not SIMULATED:
            self._ready = cuda.event(timing=False)
            self._ready.record(default)

    def array_for(self, stream: Stream) -> Any:
        """Return the table, for a kernel that is launched on a stream next."""
        if not (SIMULATED or _is_legacy_default(stream)):
            self._ready.wait(stream.to_numba(self._device))
        return self._array

    def used_on(self, stream: Stream) -> None:
        """Record that a kernel that reads the table was launched on a stream."""
        if SIMULATED or _is_legacy_default(stream):
            return
        # The per-thread default stream has one number, but is another stream in each thread.
        thread = threading.get_ident() if stream.handle == PER_THREAD_DEFAULT_STREAM else 0
        key = stream.handle, thread
        event = self._last.get(key)
        if event is None:
            event = self._last.setdefault(key, cuda.event(timing=False))
        event.record(stream.to_numba(self._device))

    def __del__(self, is_exiting: Any = sys.is_finalizing) -> None:
        if not self._last or is_exiting():
            return
        with cuda.gpus[self._device]:
            for event in self._last.values():
                event.wait(numba_stream(default_stream(), self._device))


def _is_legacy_default(stream: Stream) -> bool:
    """Whether a stream is the legacy default one, and Numba's default too."""
    return stream.handle == default_stream() == LEGACY_DEFAULT_STREAM


@lru_cache(maxsize=128)
def device_table(plan: TilePlan, device: int, column_offsets: tuple[int, ...] | None) -> DeviceTable:
    """Return a plan's table on a device, which must be current: see `TilePlan.table_for`."""
    return DeviceTable(plan.table_for(column_offsets), device)


_AOS_OUT = "aos_to_soa(records, out=out)"
_SOA_OUT = "soa_to_aos(columns, out=out)"

#: The pitch of the columns is a multiple of this many rows, so that each column starts at a multiple of
#: as many bytes: whole cache lines, and the alignment that all libraries require.
_ALIGNMENT = 256

#: Numba warns of grids with fewer blocks than this. Blocks without a tile end at once.
_MIN_GRID_BLOCKS = 1 if SIMULATED else 128


def aos_to_soa(
    buffer: Any,
    leaves: Sequence[FieldLeaf],
    itemsize: int,
    *,
    out: Sequence[Any] | None = None,
    stream: Any = None,
) -> list[Any]:
    """Return the leaves of records on a CUDA device as columns: see :func:`zerocopy.aos_to_soa`.

    Parameters
    ----------
    buffer : object with ``__cuda_array_interface__``
        Contiguous memory of records, of any type, at any address.
    leaves, itemsize : sequence of FieldLeaf, int
        The leaves to copy, and the bytes of a record.
    out : sequence of objects with ``__cuda_array_interface__``, optional
        Memory for the result: one column per leaf, of shape ``(n, *leaf.shape)``, contiguous, of the
        leaf's type. Nothing is written if any does not fit. None: one allocation for all of them.

    Returns
    -------
    list
        `out`; or Numba device arrays in the order of the leaves, never an alias: contiguous,
        each at a multiple of 256 bytes of the allocation, and at a constant distance if all leaves
        have one width. They are bound to `stream`, if it is given.

    Notes
    -----
    The work waits for the stream in the buffer's interface (version 3, "Synchronization"), and that
    stream waits for the work; the host does not wait. If the interface has no stream, as torch's,
    synchronisation is requested through ``__dlpack__``. Numba allocates and frees new columns on its
    default stream, so the two streams also wait for each other unless `out` is passed.
    """
    leaves, on = tuple(leaves), Stream.of(stream)
    source = memory.device_buffer(buffer, "the buffer", AOS_TO_SOA)
    rows = count_records(source.nbytes, itemsize)
    if out is None:
        return _new_columns(source, leaves, itemsize, rows, on)
    columns = _column_buffers(out, leaves, _AOS_OUT, "out", rows)
    for column in columns:
        _refuse_readonly(column, _AOS_OUT)
    memory.refuse_other_devices([source, *columns], _AOS_OUT)
    memory.refuse_overlaps(columns, [source], _AOS_OUT)
    with _device(source.device):
        on.wait_for_producers([source, *columns])
        _launch(source, leaves, itemsize, rows, on, columns=columns)
        on.hold_producers([source, *columns])
    return list(out)


def soa_to_aos(
    columns: Sequence[Any], leaves: Sequence[FieldLeaf], itemsize: int, *, out: Any = None, stream: Any = None
) -> Any:
    """Return columns on a CUDA device as the records whose leaves they are: see :func:`aos_to_soa`.

    Parameters
    ----------
    columns : sequence of objects with ``__cuda_array_interface__``
        One per leaf, of shape ``(n, *leaf.shape)``, contiguous, of the leaf's type; aligned
        to its items at least.
    leaves, itemsize : sequence of FieldLeaf, int
        The leaves of a record, and its bytes. If leaves overlap, the last one determines the bytes,
        as with NumPy.
    out : object with ``__cuda_array_interface__``, optional
        Memory for the result: contiguous, n records of `itemsize` bytes, or as many bytes.

    Returns
    -------
    numba.cuda device array of uint8, shape (n * itemsize,)
        The records, with zero padding; or `out`.
    """
    leaves, on = tuple(leaves), Stream.of(stream)
    sources = _column_buffers(columns, leaves, SOA_TO_AOS, "columns", None)
    if not sources:
        raise UnsupportedConversionError(
            SOA_TO_AOS, "columns is empty", "pass one column per field", code="no-fields"
        )
    rows = sources[0].shape[0]
    target = None if out is None else _record_buffer(out, rows, itemsize)
    buffers = sources if target is None else [*sources, target]
    asked = SOA_TO_AOS if target is None else _SOA_OUT
    memory.refuse_other_devices(buffers, asked)
    if target is not None:
        _refuse_readonly(target, asked)
        memory.refuse_overlaps([target], sources, asked)
    device = next((b.device for b in buffers if b.nbytes), buffers[0].device)
    with _device(device):
        records = None
        if target is None:
            records = cuda.device_array(rows * itemsize, np.uint8)
            target = memory.device_buffer(records, "the records", asked)
            buffers = [*sources, target]  # Numba's memory: see _new_columns
        on.wait_for_producers(buffers)
        _launch(target, leaves, itemsize, rows, on, columns=sources, to_rows=True)
        on.hold_producers(buffers)
        if records is not None and on.bound:
            records = records.bind(on.to_numba(device))
    return out if records is None else records


# -- arguments --------------------------------------------------------------------


def _column_buffers(
    columns: Sequence[Any], leaves: tuple[FieldLeaf, ...], asked: str, name: str, rows: int | None
) -> list[DeviceBuffer]:
    """Return the buffers of some columns; raise unless they fit the leaves and have one length."""
    if len(columns) != len(leaves):
        why = f"{name} has {len(columns)} columns, but the records have {len(leaves)} fields"
        raise UnsupportedConversionError(asked, why, "pass one column per field", code="out-mismatch")
    buffers = []
    for leaf, column in zip(leaves, columns, strict=True):
        buffer = memory.device_buffer(column, f"{name}[{leaf.name!r}]", asked)
        if rows is None and buffer.shape:
            rows = buffer.shape[0]
        shape = (rows, *leaf.shape)
        if buffer.shape != shape:
            why = f"{buffer.name} has the shape {buffer.shape}, not {shape}"
            remedy = "pass columns of one length, each with the shape of its field"
            raise UnsupportedConversionError(asked, why, remedy, code="shape-mismatch")
        if buffer.typestr != leaf.dtype.str:
            why = f"{buffer.name} has the type {buffer.typestr}, not {leaf.dtype.str}"
            raise UnsupportedConversionError(asked, why, "cast it first", code="dtype-mismatch")
        buffers.append(buffer)
    return buffers


def _record_buffer(out: Any, rows: int, itemsize: int) -> DeviceBuffer:
    buffer = memory.device_buffer(out, "out", _SOA_OUT)
    allowed = ((rows,), itemsize), ((rows * itemsize,), 1)
    if (buffer.shape, np.dtype(buffer.typestr).itemsize) not in allowed:
        why = f"out has the shape {buffer.shape} and the type {buffer.typestr}"
        remedy = f"pass {rows} records of {itemsize} bytes, or {rows * itemsize} bytes of uint8"
        raise UnsupportedConversionError(_SOA_OUT, why, remedy, code="out-mismatch")
    return buffer


def _refuse_readonly(buffer: DeviceBuffer, asked: str) -> None:
    if buffer.readonly:
        raise UnsupportedConversionError(
            asked, f"{buffer.name} is read-only", "pass writable memory", code="read-only"
        )


# -- launches ---------------------------------------------------------------------


def _device(index: int) -> Any:
    return nullcontext() if SIMULATED else cuda.gpus[index]


def _new_columns(
    source: DeviceBuffer, leaves: tuple[FieldLeaf, ...], itemsize: int, rows: int, on: Stream
) -> list[Any]:
    """Allocate memory for all columns, fill it, and slice it while the device works."""
    pitch = -(-rows // _ALIGNMENT) * _ALIGNMENT
    with _device(source.device):
        bound = on.to_numba(source.device) if on.bound else 0
        # A pool may reuse memory to which work on Numba's default stream still writes, and reuses
        # this memory once the last column is freed. So the arena is ordered as an array of that stream.
        arena = cuda.device_array(pitch * sum(leaf.width for leaf in leaves), np.uint8)
        target = memory.device_buffer(arena, "the columns", AOS_TO_SOA)
        on.wait_for_producers([source, target])
        if target.nbytes:
            _launch(source, leaves, itemsize, rows, on, columns=[target], pitch=pitch)
        on.hold_producers([source, target])
        columns, start = [], 0
        for leaf in leaves:
            shape = (rows, *leaf.shape)
            if rows and leaf.width:
                column = arena[start : start + rows * leaf.width].view(leaf.dtype)
                column = (column.reshape(shape) if leaf.shape else column).bind(bound)
            else:
                column = memory.empty_array(shape, leaf.dtype, bound)
            columns.append(column)
            start += pitch * leaf.width
    return columns


def _launch(
    records: DeviceBuffer,
    leaves: tuple[FieldLeaf, ...],
    itemsize: int,
    rows: int,
    on: Stream,
    *,
    columns: list[DeviceBuffer],
    pitch: int = 0,
    to_rows: bool = False,
) -> None:
    """Launch the kernel that suits a record type.

    With a `pitch`, the columns are in one buffer, at the offsets that the plan defines.
    """
    if not records.nbytes or not columns:
        return
    head = records.address % 8
    low, size = memory.window_span(columns)
    offsets = None if pitch else tuple(b.address - low if b.nbytes else 0 for b in columns)
    alignments = None if offsets is None else tuple(offset % 8 for offset in offsets)
    plan = tile_plan(leaves, itemsize, head, alignments, to_rows)

    def windows(address: int, nbytes: int, *names: str) -> list[Any]:
        return [memory.window(address, nbytes, name, records.device) for name in names]

    stream, table = on.to_numba(records.device), device_table(plan, records.device, offsets)
    words = ("uint8", "uint64") if plan.shared else ("uint8", "uint16", "uint32")
    arguments = [
        *windows(records.address - head, head + records.nbytes, *words),
        *windows(low, size, "uint8", "uint32", "uint64"),
        table.array_for(on),
        rows,
        itemsize,
        *((head, *plan.swizzle, plan.rows, pitch, plan.has_padding) if plan.shared else (plan.rows, pitch)),
    ]
    kernel = {
        (True, False): kernels.to_columns,
        (True, True): kernels.to_rows,
        (False, False): kernels.to_columns_direct,
        (False, True): kernels.to_rows_direct,
    }[bool(plan.shared), to_rows]
    blocks = max(_MIN_GRID_BLOCKS, -(-rows // plan.rows))
    kernel[blocks, THREADS, stream, plan.shared](*arguments)
    table.used_on(on)
