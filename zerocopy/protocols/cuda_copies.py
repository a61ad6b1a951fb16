"""Asynchronous copies from the host to a CUDA device, and events that report their end."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable
from contextlib import suppress

from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.errors import DeviceError
from zerocopy.protocols import cuda_driver

_NON_BLOCKING = 1  # CUstream_flags, cuda.h: the legacy default stream does not wait for it
_NO_TIMING = 2  # CUevent_flags, cuda.h
_NOT_READY = 600  # CUresult, cuda.h


@functools.cache
def copy_stream(device: int) -> int:
    """Return the stream for copies to a device; it is not destroyed before the process ends."""
    stream = ctypes.c_void_p()
    cuda_driver.hold(device)
    with cuda_driver.on_device(device) as library:
        cuda_driver.call(library.cuStreamCreate, ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
    return int(stream.value or 0)


def copy_to_device(ptr: int, host: int, nbytes: int, device: int, stream: int) -> None:
    """Start a copy from the host to a device; the caller keeps both memories until the copy is done."""
    with cuda_driver.on_device(device) as library:
        cuda_driver.call(
            library.cuMemcpyHtoDAsync_v2,
            ctypes.c_uint64(ptr),
            ctypes.c_void_p(host),
            ctypes.c_size_t(nbytes),
            ctypes.c_void_p(stream),
        )


class CopyEvent:
    """An event of a device, for one point of one stream."""

    def __init__(self, device: int) -> None:
        self._device, self._pid, self._handle = device, os.getpid(), ctypes.c_void_p()
        with cuda_driver.on_device(device) as library:
            cuda_driver.call(library.cuEventCreate, ctypes.byref(self._handle), ctypes.c_uint(_NO_TIMING))

    def record(self, stream: int) -> None:
        """Mark the work that is now queued on a stream."""
        with cuda_driver.on_device(self._device) as library:
            cuda_driver.call(library.cuEventRecord, self._handle, ctypes.c_void_p(stream))

    def record_all(self) -> None:
        """Mark the work that is now queued on all streams of the device's context.

        Older drivers have no ``cuCtxRecordEvent``: then only on the streams for which the legacy default
        stream waits. While a stream is captured into a graph, the call ends the capture with an error.
        """
        with cuda_driver.on_device(self._device) as library:
            record, context = getattr(library, "cuCtxRecordEvent", None), ctypes.c_void_p()
            if record is None:
                cuda_driver.call(library.cuEventRecord, self._handle, ctypes.c_void_p(LEGACY_DEFAULT_STREAM))
                return
            cuda_driver.call(library.cuCtxGetCurrent, ctypes.byref(context))
            cuda_driver.call(record, context, self._handle)

    def delay(self, stream: int) -> None:
        """Make a stream wait for the marked work; the host does not wait."""
        cuda_driver.wait(stream, self._handle.value or 0, self._device)

    def is_done(self) -> bool:
        """Whether the marked work is done; does not wait."""
        with cuda_driver.on_device(self._device) as library:
            code = library.cuEventQuery(self._handle)
        if code == _NOT_READY:
            return False
        cuda_driver.check("cuEventQuery", code)
        return True

    def wait(self) -> None:
        """Make the host wait for the marked work."""
        cuda_driver.finish(self._handle.value or 0, self._device)

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not self._handle.value or is_exiting() or os.getpid() != self._pid:
            return
        # The driver keeps a destroyed event until all waits for it are done (cuEventDestroy).
        with suppress(DeviceError), cuda_driver.on_device(self._device) as library:
            library.cuEventDestroy_v2(self._handle)
