"""``DeviceCopies``: copies batches to a CUDA device while the consumer uses earlier ones.

The order of one batch:

1. Its arrays are written to page-locked host memory.
2. The framework allocates the device's arrays, in the order of the consumer's current stream.
3. The loader's own stream waits for the consumer's stream, because the allocator may return memory
   that pending work of that stream still uses. Then the loader's stream copies, and an event marks the end.
4. On delivery, the consumer's current stream waits for the event. The host does not wait.
5. The loader reuses host memory, and releases device arrays that were not delivered, after the event.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerocopy import forks
from zerocopy._engine.target import resolve
from zerocopy.errors import DeviceError, ZeroCopyError
from zerocopy.framework import Framework, hook_of
from zerocopy.loading.buffers import BufferCache, empty_columns, is_staging, ordinary_memory
from zerocopy.loading.hook import LoadingHook
from zerocopy.loading.options import LoaderOptions
from zerocopy.pool.host.page_locked import CudaHostMemory
from zerocopy.protocols import cuda_driver
from zerocopy.protocols.array_interface import ALIGNMENT, address
from zerocopy.protocols.cuda_copies import CopyEvent, copy_stream, copy_to_device
from zerocopy.source import Array


class LockedMemory:
    """Page-locked host memory, or ordinary memory if the system refuses it."""

    def __init__(self, device: int) -> None:
        self._source = CudaHostMemory(device)
        #: Why memory is not page-locked.
        self.warnings: tuple[str, ...] = ()

    def allocate(self, nbytes: int) -> Array:
        """Return uninitialised memory: uint8 of shape (nbytes,), at a multiple of 64 bytes."""
        if not self.warnings and nbytes:
            try:
                return np.asarray(_Block(self._source, nbytes))
            except MemoryError as error:
                self.warnings = (
                    f"host memory is not page-locked, so copies to the device are slower: {error} "
                    "(see ulimit -l and the container's limit)",
                )
        return ordinary_memory(nbytes)


class _Block:
    """Page-locked memory as the base of an array, which frees it."""

    __slots__ = ("__array_interface__", "_nbytes", "_pid", "_ptr", "_source")

    def __init__(self, source: CudaHostMemory, nbytes: int) -> None:
        self._source, self._nbytes, self._pid, self._ptr = source, nbytes, os.getpid(), 0
        self._ptr = source.allocate(nbytes)
        self.__array_interface__ = {
            "data": (self._ptr, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self, is_exiting: Any = sys.is_finalizing) -> None:
        # At shutdown the driver may be unloaded; the operating system reclaims the memory.
        if self._ptr and not is_exiting() and os.getpid() == self._pid:
            with suppress(DeviceError):
                self._source.free(self._ptr, self._nbytes)


#: Larger windows are not page-locked: their batches are copied to a page-locked buffer first.
_LOCKED_WINDOW = 256 << 20


@dataclass(eq=False, slots=True)
class Transfer:
    """The copies of one batch, whose end `event` marks.

    Attributes
    ----------
    stream : int
        The consumer's stream, in whose order the arrays were allocated.
    hosts : list of numpy.ndarray
        Host arrays that the copies read.
    arrays : list
        Device arrays that the copies write; empty after delivery.
    """

    event: CopyEvent
    stream: int
    hosts: list[Array]
    arrays: list[Any]


class DeviceCopies:
    """Starts copies of batches to a device; used in the consumer's thread."""

    def __init__(self, framework: Framework, device: int, options: LoaderOptions, batch_bytes: int) -> None:
        self._framework, self._device = framework, device
        self._hook: LoadingHook = hook_of(framework, LoadingHook)
        #: Number of batches that are copied before the consumer asks for them.
        self.ahead: int = options.prefetch
        self.memory: LockedMemory = LockedMemory(device)
        self._staging = BufferCache(batch_bytes, options.prefetch + 2, self.memory.allocate)
        #: Several threads may iterate over one loader, and share `_started`.
        self._lock = forks.lock()
        self._started: deque[Transfer] = deque()
        self._latest = threading.local()
        weakref.finalize(self, _drain, self._started, os.getpid())

    def window_cache(self, nbytes: int, keep: int) -> BufferCache:
        """Return buffers for windows whose rows are batches."""
        return BufferCache(nbytes, keep, self.memory.allocate if nbytes <= _LOCKED_WINDOW else None)

    def host_arrays(self, specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> list[Array]:
        """Return uninitialised page-locked arrays of some shapes and dtypes, for the columns of a batch."""
        return empty_columns(specs, lambda nbytes: self._staging.take())

    def place(self, arrays: Sequence[Array]) -> list[Any]:
        """Return the arrays of one batch on the device, and start their copies; see `take_latest`."""
        self._release(self.ahead + 2)
        hosts = self._staged(arrays)
        stream = copy_stream(self._device)
        fresh = [self._empty(host) for host in hosts]
        # After the allocation, because queued work of the consumer's stream may still use the memory.
        consumer = self._hook.current_stream(self._device)
        cuda_driver.order(consumer, stream, self._device)
        transfer = Transfer(CopyEvent(self._device), consumer, hosts, [array for array, _ in fresh])
        self._started.append(transfer)
        try:
            for host, (_, ptr) in zip(hosts, fresh, strict=True):
                if host.nbytes:
                    copy_to_device(ptr, address(host), host.nbytes, self._device, stream)
        finally:
            transfer.event.record(stream)
        self._latest.transfer = transfer
        return transfer.arrays

    def take_latest(self) -> Transfer | None:
        """Return the transfer of the last `place` of this thread, once; None if there was none."""
        transfer: Transfer | None = getattr(self._latest, "transfer", None)
        self._latest.transfer = None
        return transfer

    def deliver(self, transfer: Transfer) -> bool:
        """Make the consumer's current stream wait for a transfer.

        Return False if that stream is not the one in whose order the arrays were allocated. The framework's
        allocator would not wait for work on the new stream, so the batch must be copied again.
        """
        if self._hook.current_stream(self._device) != transfer.stream:
            return False
        transfer.event.delay(transfer.stream)
        transfer.arrays = []
        return True

    def _staged(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the arrays in page-locked memory of the loader; others are copied to it."""
        if all(is_staging(array) and array.flags.c_contiguous and array.dtype.isnative for array in arrays):
            return list(arrays)
        hosts = self.host_arrays([(array.shape, array.dtype.newbyteorder("=")) for array in arrays])
        for host, array in zip(hosts, arrays, strict=True):
            np.copyto(host, array)
        return hosts

    def _empty(self, host: Array) -> tuple[Any, int]:
        try:
            return self._hook.empty(host.shape, host.dtype, self._device)
        except Exception as error:
            out_of_memory = not isinstance(error, MemoryError) and self._framework.is_out_of_memory(error)
            if not out_of_memory:
                raise
            raise MemoryError(f"device='cuda:{self._device}': {self._framework.name}: {error}") from error

    def _release(self, limit: int) -> None:
        """Drop finished transfers; wait for the oldest ones if more than `limit` are left."""
        with self._lock:
            while self._started and (len(self._started) > limit or self._started[0].event.is_done()):
                self._started[0].event.wait()
                self._started.popleft()


def device_copies(options: LoaderOptions, row_bytes: int, fields: int) -> DeviceCopies | None:
    """Return the copies to the target's device; None on the host, or if the framework cannot allocate."""
    framework = resolve(options.to)
    if not hook_of(framework, LoadingHook).can_allocate:
        return None
    if options.device is not None:
        device = framework.parse_device(options.device)
    elif framework.device_kinds[0] == "cuda":
        device = framework.parse_device("cuda")
    else:
        return None
    if device.kind != "cuda":
        return None
    batch_bytes = options.batch_size * row_bytes + ALIGNMENT * (fields + 1)  # each array starts at a multiple
    return DeviceCopies(framework, device.id, options, batch_bytes)


def _drain(started: deque[Transfer], pid: int) -> None:
    """Wait for the copies before their memory is freed."""
    while started and os.getpid() == pid:
        with suppress(ZeroCopyError):
            started[0].event.wait()
        started.popleft()
