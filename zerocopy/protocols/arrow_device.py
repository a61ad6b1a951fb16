"""Arrow memory on a CUDA device: waiting for it, copying it to the host, exporting its buffers.

In ``struct ArrowDeviceArray`` ("The Arrow C Device data interface") only `buffers` point to device
memory. `sync_event` is a host pointer to a ``cudaEvent_t`` for which "the consumer MUST wait".
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.dtype import DType
from zerocopy.protocols import cuda_driver
from zerocopy.protocols.arrow_c import Memory
from zerocopy.protocols.cuda_array_interface import interface
from zerocopy.source import Array
from zerocopy.strided_view import StridedView


def event_of(address: int) -> int:
    """Return the event at the address `sync_event`; 0 for none."""
    return (ctypes.c_void_p.from_address(address).value or 0) if address else 0


def ready(memory: Memory) -> int | None:
    """Return a stream on which the memory is ready; None if it is ready on all streams.

    If there is an event, the legacy default stream waits for it and is returned. The host does not
    wait (P8).
    """
    event = event_of(memory.sync_event)
    if not event:
        return memory.stream
    cuda_driver.wait(LEGACY_DEFAULT_STREAM, event, memory.device.id)
    return LEGACY_DEFAULT_STREAM


def fetch(memory: Memory, ptr: int, count: int, dtype: DType) -> Array:
    """Copy `count` elements at a device address to the host, and wait for the copy."""
    array = np.empty(count, dtype.storage)
    if array.nbytes:
        stream = ready(memory) or LEGACY_DEFAULT_STREAM
        cuda_driver.fetch(array.ctypes.data, ptr, array.nbytes, memory.device.id, stream)
    return array


class BufferProducer:
    """Exports a buffer of `memory`, and keeps it alive, through the CUDA Array Interface, version 3.

    It is never marked read-only, because consumers refuse read-only memory; the plan warns about it.
    """

    __slots__ = ("_memory", "_view")

    def __init__(self, view: StridedView, memory: Memory) -> None:
        self._view, self._memory = view, memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return interface(self._view, ready(self._memory) if self._view.size else None)
