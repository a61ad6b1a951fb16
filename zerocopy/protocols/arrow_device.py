"""Arrow memory on a CUDA device: when it is ready, brought to the host, and lent to others.

"The Arrow C Device data interface": of ``struct ArrowDeviceArray`` only `buffers` point
to the device, and `sync_event`, on the host, points to a ``cudaEvent_t``: "the consumer
MUST wait" for it before it looks. Who makes the memory may say its stream instead.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.dtype import DType
from zerocopy.protocols import cuda_driver
from zerocopy.protocols.arrow_c import Memory
from zerocopy.strided_view import StridedView


def event_of(address: int) -> int:
    """Return the event that a `sync_event` points to; 0 for none."""
    return (ctypes.c_void_p.from_address(address).value or 0) if address else 0


def ready(memory: Memory) -> int | None:
    """Return a stream whose next work sees the memory finished; None where any does.

    After an event that is the legacy default stream, which is told to wait for it: the
    host does not wait (P8).
    """
    event = event_of(memory.sync_event)
    if not event:
        return memory.stream
    cuda_driver.wait(LEGACY_DEFAULT_STREAM, event, memory.device.id)
    return LEGACY_DEFAULT_STREAM


def fetch(memory: Memory, ptr: int, count: int, dtype: DType) -> np.ndarray[Any, Any]:
    """Return `count` elements at a device address as an array of the host, finished."""
    array = np.empty(count, dtype.storage)
    if array.nbytes:
        stream = ready(memory) or LEGACY_DEFAULT_STREAM
        cuda_driver.fetch(array.ctypes.data, ptr, array.nbytes, memory.device.id, stream)
    return array


class Lent:
    """A buffer of an Arrow array in the clothes of the CUDA Array Interface, version 3.

    It never says "read-only": consumers refuse that rather than mark their arrays, and
    the plan has told the caller already.

    Parameters
    ----------
    view : StridedView
        The buffer, on the device.
    memory : Memory
        The array that it is of, which is kept alive.
    """

    __slots__ = ("_memory", "_view")

    def __init__(self, view: StridedView, memory: Memory) -> None:
        self._view, self._memory = view, memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        view = self._view
        return {
            "shape": view.shape,
            "strides": view.strides,
            "typestr": view.dtype.storage.str,
            "data": (view.ptr if view.size else 0, False),
            "stream": ready(self._memory) if view.size else None,
            "version": 3,
        }
