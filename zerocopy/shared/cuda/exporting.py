"""The owner's side: the handle of an array in CUDA memory, and how long the owner keeps the array."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from zerocopy import forks
from zerocopy.describe import describe_array
from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM
from zerocopy.dtype import to_numpy
from zerocopy.errors import DeviceError, HandleFormatError, UnsupportedConversionError
from zerocopy.frames.arrays import array_header, dense_order
from zerocopy.protocols import cuda_array_interface, cuda_ipc, dlpack
from zerocopy.protocols.cuda_ipc import HANDLE_BYTES, UUID_BYTES
from zerocopy.shared.blocks import Block, LargeBlocks
from zerocopy.shared.broker import Offer, ensure_broker
from zerocopy.shared.cuda.releases import releases
from zerocopy.shared.handle import DEVICE, Handle, Location
from zerocopy.source import Source
from zerocopy.strided_view import StridedView

_MAGIC = b"ZCCU"
_DESCRIPTOR = struct.Struct(f"<4s{UUID_BYTES}s{HANDLE_BYTES}s{HANDLE_BYTES}sQQQ")
_lock = forks.lock()
#: The pools of this process, while an array of them is shared.
_offers: WeakValueDictionary[tuple[int, int], Offer] = WeakValueDictionary()
#: The exports of this process, by their locations: the driver does not open a process's own handles.
_exports: WeakValueDictionary[Location, Export] = WeakValueDictionary()


class Descriptor(NamedTuple):
    """An array in an allocation of another process.

    Attributes
    ----------
    uuid : bytes
        The device's.
    memory, event : bytes
        The driver's handles of the allocation, and of the event after which the array has its values. In a
        pool `memory` is the allocation's export data.
    size, offset : int
        Bytes of the allocation, and those before the array.
    pool : int
        The number of the pool's offer (`zerocopy.shared.broker.Offer`); 0 for memory of ``cudaMalloc``.
    """

    uuid: bytes
    memory: bytes
    event: bytes
    size: int
    offset: int
    pool: int = 0

    def pack(self) -> bytes:
        """Return the descriptor as bytes."""
        return _DESCRIPTOR.pack(_MAGIC, *self)

    @classmethod
    def unpack(cls, data: bytes, nbytes: int) -> Descriptor:
        """Return the descriptor of an array of `nbytes`.

        Raises
        ------
        HandleFormatError
            The bytes are not a descriptor, or the array leaves its allocation.
        """
        if len(data) != _DESCRIPTOR.size or data[:4] != _MAGIC:
            raise HandleFormatError("", "its descriptor of CUDA memory is damaged", "share the array again")
        descriptor = cls(*_DESCRIPTOR.unpack(data)[1:])
        if descriptor.offset + nbytes > descriptor.size:
            start, size = descriptor.offset, descriptor.size
            why = f"it names {nbytes:,} bytes from byte {start:,} of an allocation of {size:,}"
            raise HandleFormatError("", why, "share the array again")
        return descriptor


class Export:
    """An array that is shared, its event, and the host block that readers lease."""

    def __init__(self, array: Any, device: int, event: int, block: Block, offer: Offer | None) -> None:
        self.array = array
        self._device = device
        self._event = event
        self._block = block
        self._offer = offer  # of the pool that has the array; None for memory of cudaMalloc
        self._pid = os.getpid()

    # In a forked child the array is the parent's. At interpreter exit the driver frees it.
    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_exiting() or self._pid != os.getpid():
            return
        device, event, block = self._device, self._event, self._block
        segment, kept = block.segment, [self.array, block, self._offer]
        # From now on no reader takes a lease and finds the block unchanged.
        segment.set_generation(block.start, block.generation + 1)

        def release() -> bool:
            if segment.is_open() and not segment.claim(kept[1].generation + 2):
                return False
            kept.clear()
            cuda_ipc.destroy_event(device, event)
            return True

        releases.add(release)


def own_array(location: Location) -> Any:
    """Return the array of a location in this process, or None."""
    export = _exports.get(location)
    return None if export is None else export.array


def share_array(obj: Any, name: str, blocks: LargeBlocks) -> tuple[Handle, Export, int]:
    """Return the handle of an array in CUDA memory, its export, and the copied bytes.

    Raises
    ------
    UnsupportedConversionError
        The memory is not CUDA memory, or the driver has no handle for it.
    DeviceError
        The driver returned an error, also in a child that was forked after CUDA was used.
    """
    source = describe_array(obj)
    if source.view.device.type != CUDA or source.reasons or source.refusal is not None:
        raise _refused(f"its memory is on {source.view.device} and cannot be shared as it is")
    kept, copied = obj, 0
    order = _order(source.view)
    if order is None:
        if source.contiguous is None:
            raise _refused("its elements have gaps, and its framework has no copy without gaps")
        kept = source.contiguous()
        source, copied = describe_array(kept), source.view.nbytes
        order = ()
    view = source.view
    if not view.size:
        raise _refused("it has no elements, and so no memory")
    device = view.device.id
    base, size = cuda_ipc.allocation(device, view.ptr)
    memory, offer = _memory(device, base)
    event, event_handle = cuda_ipc.record_event(device, _ready_stream(source))
    number = 0 if offer is None else offer.number
    uuid = cuda_ipc.device_uuid(device)
    descriptor = Descriptor(uuid, memory, event_handle, size, view.ptr - base, number)
    data = np.frombuffer(descriptor.pack(), np.uint8)
    try:
        block = blocks.take(data.nbytes, [(0, data)])
    except BaseException:
        cuda_ipc.destroy_event(device, event)
        raise
    location = block.own_location()
    dtype = to_numpy(view.dtype) or view.dtype.storage
    header = array_header(name, dtype, view.dtype, view.shape, order)
    handle = Handle(location, DEVICE, block.data, data.nbytes, view.nbytes, header)
    export = _exports[location] = Export(kept, device, event, block, offer)
    return handle, export, copied


def _order(view: StridedView) -> tuple[int, ...] | None:
    """Return the axes by decreasing stride, empty for row-major; None if the elements have gaps."""
    if view.c_contiguous:
        return ()
    # The strides of an array without memory: one element, which is never read.
    element = np.empty(1, view.dtype.storage)
    shaped = np.lib.stride_tricks.as_strided(element, view.shape, view.strides)
    return dense_order(shaped) or None


def _ready_stream(source: Source) -> int:
    """Return a stream on which the array has its values; the producer's work comes before it."""
    producer = source.producer
    if hasattr(type(producer), "__dlpack__"):
        # The capsule is dropped: exporting makes the stream wait for the producer's work.
        dlpack.request(producer, stream=LEGACY_DEFAULT_STREAM)
        return LEGACY_DEFAULT_STREAM
    _, stream = cuda_array_interface.read(producer, source.view.device.id)
    return LEGACY_DEFAULT_STREAM if stream is None else stream


def _offer_pool(device: int, pool: int) -> Offer:
    """Offer a pool's file to readers, through the broker of this process."""
    with _lock:
        offer = _offers.get((device, pool))
        if offer is None:
            offer = _offers[device, pool] = Offer(cuda_ipc.export_pool(device, pool))
    # /proc/PID/fd would make a new file description. With ptrace_scope 1, Ubuntu's default, pidfd_getfd
    # serves only readers that are ancestors of the owner.
    ensure_broker()
    return offer


def _memory(device: int, base: int) -> tuple[bytes, Offer | None]:
    """Return the driver's handle of an allocation, or its export data and the offer of its pool."""
    try:
        has_handle = cuda_ipc.has_handle(device, base)
        pool = 0 if has_handle else cuda_ipc.pool_of(device, base)
    except DeviceError as error:
        raise _refused(f"the driver does not describe its memory: {error.why}") from error
    if has_handle:
        return cuda_ipc.memory_handle(device, base), None
    if pool:
        try:
            offer = _offer_pool(device, pool)
        except DeviceError as error:
            raise _refused(
                f"its memory is of an asynchronous pool that cannot be exported: {error.why}",
                "allocate it with cudaMalloc, or from "
                "zc.install_pool(resource=rmm.mr.CudaAsyncMemoryResource(enable_ipc=True))",
            ) from error
        except OSError as error:
            raise _refused(
                f"the broker, which sends its pool's file to readers, does not start: {error}"
            ) from error
        return cuda_ipc.export_pointer(device, base), offer
    raise _refused(
        "the driver has no handle for its memory, which is mapped by virtual memory management, "
        "as expandable segments are"
    )


def _refused(why: str, allocate: str = "allocate it with cudaMalloc") -> UnsupportedConversionError:
    remedy = f"{allocate}; or share a copy in host memory: zc.share(zc.convert(x, to='numpy'))"
    return UnsupportedConversionError("", why, remedy, code="no-device-handle")
