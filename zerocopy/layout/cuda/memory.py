"""Memory on a CUDA device: descriptions of other objects' memory, and arrays over ranges of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numba import cuda

from zerocopy.device import (
    CUDA,
    LEGACY_DEFAULT_STREAM,
    NO_SYNC_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    Device,
    parse_stream,
)
from zerocopy.dtype import by_name
from zerocopy.errors import DeviceError, UnsupportedConversionError, ZeroCopyError
from zerocopy.layout.outputs import overlap_error
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.strided_view import StridedView

#: Whether Numba's simulator is on: device memory is then host memory, without streams.
SIMULATED = not hasattr(cuda, "as_cuda_array")

# Windows start at a multiple of the largest word that the kernels copy.
_WORD = 8


@dataclass(frozen=True, slots=True, eq=False)
class DeviceBuffer:
    """A contiguous range of device memory.

    Attributes
    ----------
    name : str
        For messages.
    shape : tuple of int
        Elements per dimension.
    typestr : str
        Their type, as in the interface.
    address, nbytes : int
        Start and size of the memory.
    readonly : bool
        Whether the producer declares it immutable.
    device : int
        Index of the device.
    stream : int or None
        The producer's stream; None: nothing to wait for.
    query_producer : bool
        Whether to request synchronisation through DLPack, because the interface has no stream.
    owner : object
        Keeps the memory alive.
    """

    name: str
    shape: tuple[int, ...]
    typestr: str
    address: int
    nbytes: int
    readonly: bool
    device: int
    stream: int | None
    query_producer: bool
    owner: Any

    @property
    def end(self) -> int:
        """The first address after the memory."""
        return self.address + self.nbytes


class _Octets:
    """An interface of bytes in place of records, for which tensors have no type."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


def device_buffer(obj: Any, name: str, asked: str) -> DeviceBuffer:
    """Describe the memory of an object with ``__cuda_array_interface__``; raise if it is not contiguous."""
    interface, is_numba = _interface(obj, name, asked)
    try:
        shape, typestr = tuple(int(n) for n in interface["shape"]), str(interface["typestr"])
        itemsize = np.dtype(typestr).itemsize
        strides = interface.get("strides")
        octets = {**interface, "shape": (prod(shape) * itemsize,), "typestr": "|u1", "strides": None}
    except (KeyError, TypeError, ValueError) as error:
        why = f"the interface of {name} could not be read ({type(error).__name__}: {error})"
        remedy = "expose shape, typestr, data and version, as version 3 of the interface specifies"
        raise UnsupportedConversionError(asked, why, remedy, code="invalid-producer") from error
    try:
        view, stream = cuda_array_interface.read(_Octets(octets))
    except ZeroCopyError as error:
        error.with_context(asked=asked, why=f"{name}: {error.why}")
        raise
    if strides is not None and not _row_major(shape, strides, itemsize):
        why = f"{name} is not contiguous: its strides are {tuple(strides)}, its shape {shape}"
        remedy = "copy it to contiguous memory first: x.copy(), or torch's x.contiguous()"
        raise UnsupportedConversionError(asked, why, remedy, code="not-contiguous")
    if SIMULATED and not is_numba:
        why = f"Numba's CUDA simulator is on, and it cannot access the memory of a {type(obj).__name__}"
        raise DeviceError(asked, why, "unset NUMBA_ENABLE_CUDASIM", code="other-device")
    return DeviceBuffer(
        name,
        shape,
        typestr,
        view.ptr,
        view.nbytes,
        view.readonly,
        _device_index(view.ptr, asked),
        stream,
        # torch's interface has version 2, which has no streams, and its current stream is not known.
        int(interface["version"]) < 3 and hasattr(type(obj), "__dlpack__"),
        obj,
    )


def _interface(obj: Any, name: str, asked: str) -> tuple[dict[str, Any], bool]:
    is_numba = getattr(type(obj), "__cuda_ndarray__", False) is True
    if is_numba and SIMULATED:
        interface = obj.__array_interface__
    else:
        interface = cuda_array_interface.of(obj, f"{asked}: {name}")
    if not isinstance(interface, dict):
        why = f"{name} is a {type(obj).__name__}, which has no __cuda_array_interface__"
        remedy = "copy it to a CUDA device first: numba.cuda.to_device(x)"
        raise UnsupportedConversionError(asked, why, remedy, code="not-an-array")
    if is_numba:
        # Numba's interface has two gaps. Without a bound stream it declares "no synchronisation", but
        # kernels run asynchronously on the default stream. And is_contiguous ignores strides of 0,
        # so a broadcast array has none: its consumer would read past its end.
        stream = None if SIMULATED else parse_stream(obj.stream or None) or default_stream()
        interface = {**interface, "strides": obj.strides, "stream": stream, "version": 3}
    return interface, is_numba


def _device_index(address: int, asked: str) -> int:
    """Return the device of an address; the current device for an empty array, whose address is 0."""
    if SIMULATED:
        return 0
    index = cuda_driver.ordinal(address)
    if index is None:
        reason = cuda_driver.missing()
        if reason is not None:
            raise DeviceError(asked, reason.why, reason.remedy, code=reason.code)
        index = int(cuda.get_current_device().id)
    return index


def _row_major(shape: tuple[int, ...], strides: Sequence[int], itemsize: int) -> bool:
    if 0 in shape:
        return True
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def refuse_overlaps(written: Iterable[DeviceBuffer], read: Iterable[DeviceBuffer], asked: str) -> None:
    """Raise if memory that is written overlaps with other memory that is written or read."""
    flagged = [(b, True) for b in written] + [(b, False) for b in read]
    flagged = sorted(((b, target) for b, target in flagged if b.nbytes), key=lambda item: item[0].address)
    # The buffer with the largest end, among all preceding ones and among those that are written.
    last: DeviceBuffer | None = None
    last_written: DeviceBuffer | None = None
    for b, target in flagged:
        before = last if target else last_written
        if before is not None and before.end > b.address:
            raise overlap_error(asked, before.name, b.name)
        if last is None or b.end > last.end:
            last = b
        if target and (last_written is None or b.end > last_written.end):
            last_written = b


def refuse_other_devices(buffers: Sequence[DeviceBuffer], asked: str) -> None:
    """Raise if the buffers are on different devices."""
    for a, b in pairwise([b for b in buffers if b.nbytes]):
        if a.device != b.device:
            why = f"{a.name} is on cuda:{a.device}, {b.name} on cuda:{b.device}"
            raise DeviceError(asked, why, "copy them to one device first", code="other-device")


# -- windows ----------------------------------------------------------------------


@lru_cache(maxsize=512)
def window(address: int, nbytes: int, name: str, device: int) -> Any:
    """Return an array of the type `name` over a range of memory.

    Kernels take arrays, not addresses. A window does not own or keep alive its memory, so the cache
    returns the same one for the next call with the same memory.
    """
    dtype = by_name(name)
    count = nbytes // dtype.itemsize
    if SIMULATED:
        from ctypes import c_char

        from numba.cuda.cudadrv.devicearray import FakeCUDAArray

        memory = (c_char * max(1, nbytes)).from_address(address) if nbytes else bytearray(8)
        return FakeCUDAArray(np.frombuffer(memory, dtype.storage, count))  # type: ignore[arg-type]
    view = StridedView(address, (count,), (dtype.itemsize,), dtype, Device(CUDA, device), False, None)
    return cuda.as_cuda_array(cuda_array_interface.Handover(view, None, None), sync=False)


def window_span(buffers: Sequence[DeviceBuffer]) -> tuple[int, int]:
    """Return the start and size of a window over all buffers; the start is a multiple of 8.

    The kernels do not access the memory between the buffers.
    """
    filled = [b for b in buffers if b.nbytes]
    if not filled:
        return 0, 0
    low = min(b.address for b in filled) // _WORD * _WORD
    return low, max(b.end for b in filled) - low


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
    """Return a device array without bytes: of no rows, or of a type of size 0."""
    if SIMULATED or 0 in shape:
        return cuda.device_array(shape, dtype, stream=stream)
    # Not device_array, which would request 0 bytes from the driver, which is an error.
    interface = {"shape": shape, "typestr": dtype.str, "data": (0, False), "strides": None, "version": 3}
    return cuda.as_cuda_array(_Octets(interface), sync=False)


# -- streams ----------------------------------------------------------------------


def default_stream() -> int:
    """Return the stream that Numba uses by default.

    Numba has no current stream. With NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM it calls the
    driver's per-thread variants throughout.
    """
    per_thread = os.environ.get("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0")
    return PER_THREAD_DEFAULT_STREAM if per_thread else LEGACY_DEFAULT_STREAM


@lru_cache(maxsize=128)
def numba_stream(handle: int, device: int) -> Any:
    """Return a Numba stream of the current device: the same object for the same handle.

    Numba caches launch configurations by the identity of the stream: a lookup takes 0.4 us, a new
    configuration 15 us.
    """
    if SIMULATED:
        return 0
    if handle == LEGACY_DEFAULT_STREAM:
        return cuda.legacy_default_stream()
    if handle == PER_THREAD_DEFAULT_STREAM:
        return cuda.per_thread_default_stream()
    return cuda.external_stream(handle)


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream on which a conversion runs.

    Attributes
    ----------
    handle : int
        As DLPack numbers streams.
    bound : bool
        Whether the caller passed it; the results are then bound to it.
    ordered : bool
        Whether it synchronises with the producers' streams.
    """

    handle: int
    bound: bool
    ordered: bool

    @classmethod
    def of(cls, stream: Any) -> Stream:
        """Return the stream for a caller's ``stream=``."""
        handle = parse_stream(stream)
        if handle is None or handle == NO_SYNC_STREAM:
            return cls(default_stream(), False, handle is None)
        return cls(handle, True, True)

    def to_numba(self, device: int) -> Any:
        """Return it as a Numba stream; `device` must be current."""
        return numba_stream(self.handle, device)

    def wait_for_producers(self, buffers: Iterable[DeviceBuffer]) -> None:
        """Make the stream wait for the producers' work on the buffers; the host does not wait."""
        if SIMULATED or not self.ordered:
            return
        buffers = list(buffers)
        for b in buffers:
            if b.query_producer and b.nbytes:
                dlpack.request(b.owner, stream=self.handle)
        for handle, device in _other_streams(buffers, self.handle):
            cuda_driver.order(handle, self.handle, device)

    def hold_producers(self, buffers: Iterable[DeviceBuffer]) -> None:
        """Make the producers' streams wait for this one.

        Later work on a producer's stream may change or free the memory read here, and read the
        memory written here, as if the conversion had run on that stream.
        """
        if SIMULATED or not self.ordered:
            return
        for handle, device in _other_streams(buffers, self.handle):
            cuda_driver.order(self.handle, handle, device)


def _other_streams(buffers: Iterable[DeviceBuffer], handle: int) -> set[tuple[int, int]]:
    return {(b.stream, b.device) for b in buffers if b.nbytes and b.stream not in (None, handle)}  # type: ignore[misc]
