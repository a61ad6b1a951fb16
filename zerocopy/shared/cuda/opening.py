"""The reader's side: memory of another process, mapped while a result uses it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from zerocopy import forks, registry
from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM, Device
from zerocopy.dtype import from_numpy
from zerocopy.errors import DeviceError, HandleAccessError, HandleFormatError, StaleHandleError
from zerocopy.frames.arrays import parse_array
from zerocopy.framework import Framework
from zerocopy.protocols import cuda_driver, cuda_ipc
from zerocopy.protocols.cuda_array_interface import interface
from zerocopy.shared.cuda.exporting import Descriptor, own_array
from zerocopy.shared.cuda.releases import releases
from zerocopy.shared.handle import Handle, Location
from zerocopy.shared.reading import Mapping, mapping
from zerocopy.shared.segment_file import request_offer
from zerocopy.source import Source
from zerocopy.strided_view import StridedView, contiguous_strides

_lock = forks.lock()
#: The allocations that results use. Not weak: a garbage collection clears weak references first.
_allocations: dict[tuple[int, int, bytes], Allocation] = {}
#: The pools of other processes, by the numbers of their offers, while an allocation of them is open.
_pools: dict[int, _Pool] = {}


class _Pool:
    """An asynchronous pool of another process, and how many open allocations it has here."""

    def __init__(self, device: int, location: Location, number: int) -> None:
        fd = _receive(location, number)
        try:
            self.handle = cuda_ipc.import_pool(device, fd)
        finally:
            os.close(fd)
        self._device, self._number, self.uses = device, number, 0
        _pools[number] = self

    def drop(self) -> None:
        """End the use by one allocation, within the lock, after the allocation has been freed."""
        self.uses -= 1
        if not self.uses:
            del _pools[self._number]
            cuda_ipc.destroy(self._device, self.handle)


def _receive(location: Location, number: int) -> int:
    """Return the file descriptor of an offer from its owner's broker."""
    try:
        fd = request_offer(location, number)
    except FileNotFoundError as error:
        why = f"its owner, process {location.pid}, has closed the array"
        raise StaleHandleError("", why, "keep the Shared until it is opened") from error
    if fd is None:
        raise HandleAccessError(
            "",
            f"no broker of process {location.pid} answers, which sends the file of the array's memory pool",
            "run the reader as the owner's user and in its network namespace, and do not call "
            "stop_broker() in the owner; or set ZEROCOPY_BROKER=/volume in both",
        )
    return fd


class Allocation:
    """An allocation of another process, mapped here; all arrays in it share one mapping."""

    def __init__(self, device: int, descriptor: Descriptor, location: Location) -> None:
        cuda_driver.hold(device)  # otherwise the mapping ends with the context, before a framework uses it
        self._key = device, descriptor.pool, descriptor.memory
        self.device = device
        self.leases: list[Mapping] = []  # of its uses: reachable, so that no garbage collection ends them
        number = descriptor.pool
        self._pool = (_pools.get(number) or _Pool(device, location, number)) if number else None
        if self._pool is not None:
            self._pool.uses += 1
        try:
            if self._pool is None:
                self.base: int = cuda_ipc.open_memory(device, descriptor.memory)
            else:
                self.base = cuda_ipc.import_pointer(device, self._pool.handle, descriptor.memory)
        except BaseException:
            if self._pool is not None:
                self._pool.drop()
            raise

    def drop(self, lease: Mapping) -> None:
        """End one use, within the lock; the last one unmaps the memory before its lease ends."""
        try:
            if len(self.leases) == 1:
                self._close()
        finally:
            self.leases.remove(lease)

    def _close(self) -> None:
        del _allocations[self._key]
        if self._pool is None:
            cuda_ipc.close_memory(self.device, self.base)
        else:
            try:
                cuda_ipc.free(self.device, self.base)
            finally:
                self._pool.drop()


class _Use:
    """A result's use of an allocation, under a lease; the owner of the result's memory."""

    def __init__(self, allocation: Allocation, lease: Mapping) -> None:
        allocation.leases.append(lease)
        self._allocation, self._lease = allocation, lease
        self._pid = os.getpid()
        self.exported: bool = False

    # A garbage collection may call the finalizers of a whole cycle in any order: only this one acts.
    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_exiting() or self._pid != os.getpid():
            return
        allocation, lease, exported = self._allocation, self._lease, self.exported

        def release() -> bool:
            try:
                if exported:
                    cuda_ipc.synchronize(allocation.device)  # kernels that were launched may still read it
            finally:
                with _lock:  # no thread opens the allocation while it is closed
                    allocation.drop(lease)
            return True

        releases.add(release)


class OpenedArray:
    """An array of another process, as an object with the CUDA Array Interface."""

    __slots__ = ("_use", "view")

    def __init__(self, view: StridedView, use: _Use) -> None:
        self.view: StridedView = view
        self._use = use

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._use.exported = True
        return interface(self.view, LEGACY_DEFAULT_STREAM)


class OpenedArrays(Framework):
    """Makes opened arrays sources of ``convert``, with the types that the interface lacks."""

    name = "zerocopy.cuda"
    kind = "source"
    root_modules: tuple[str, ...] = (__name__.partition(".")[0],)

    def owns(self, cls: type) -> bool:
        return issubclass(cls, OpenedArray)

    def source(self, obj: Any) -> Source:
        source = Source("zerocopy.Shared", obj.view, _not_on_host, "cuda-array-interface", producer=obj)
        source.to_host = registry.RelayedCopy(source)
        return source


registry.add(OpenedArrays())


def _not_on_host() -> Any:
    raise AssertionError("device memory has no host alias")


def open_device_array(handle: Handle) -> Any:
    """Return the array of a handle: in its own process the array itself, elsewhere an `OpenedArray`.

    Raises
    ------
    StaleHandleError, OtherHostError, HandleAccessError, HandleFormatError
    DeviceError
        This process does not see the device, or the driver returned an error.
    """
    own = own_array(handle.location)
    if own is not None:
        return own
    lease = mapping(handle.location)
    if handle.location.pid == os.getpid():
        raise StaleHandleError(
            "", "its array was closed in this process", "keep the Shared until it is opened"
        )
    described = parse_array(handle.header)
    if described.nbytes != handle.nbytes:
        raise HandleFormatError("", "its header and its size differ", "share the array again")
    data = lease.part(handle.first, handle.length).tobytes()
    descriptor = Descriptor.unpack(data, described.nbytes)
    device = _device(descriptor.uuid)
    with _lock:
        allocation = _allocations.get((device, descriptor.pool, descriptor.memory))
        if allocation is None:
            allocation = Allocation(device, descriptor, handle.location)
            _allocations[device, descriptor.pool, descriptor.memory] = allocation
        use = _Use(allocation, lease)
    cuda_ipc.wait_for(device, LEGACY_DEFAULT_STREAM, descriptor.event)
    dtype = described.standard or from_numpy(described.dtype)
    if dtype is None:
        raise HandleFormatError("", f"arrays on a device do not have the type {described.dtype}", "")
    strides = _strides(described.shape, described.order, dtype.itemsize)
    ptr = allocation.base + descriptor.offset
    view = StridedView(ptr, described.shape, strides, dtype, Device(CUDA, device), False, use)
    return OpenedArray(view, use)


def _strides(shape: tuple[int, ...], order: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides of an array whose elements have no gaps in the order of its axes."""
    if not order:
        return contiguous_strides(shape, itemsize)
    dense = contiguous_strides(tuple(shape[axis] for axis in order), itemsize)
    return tuple(dense[order.index(axis)] for axis in range(len(shape)))


def _device(uuid: bytes) -> int:
    cuda_driver.require("")
    for index in range(cuda_driver.count()):
        if cuda_ipc.device_uuid(index) == uuid:
            return index
    raise DeviceError(
        "",
        "the array is on a GPU that this process does not see",
        "add the GPU to CUDA_VISIBLE_DEVICES of this process",
        code="no-device",
    )
