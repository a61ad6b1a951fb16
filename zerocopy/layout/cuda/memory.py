"""Memory on a CUDA device: what an object says of its own, and arrays over stretches of it."""

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
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.strided_view import StridedView

#: Under Numba's simulator device memory is host memory, and there are no streams.
SIMULATED = not hasattr(cuda, "as_cuda_array")

# A window begins at a multiple of this: so does each word that the kernels move.
_WORD = 8


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """A contiguous block of device memory, whatever it holds.

    Attributes
    ----------
    name : str
        For messages.
    shape : tuple of int
        Elements a dimension.
    typestr : str
        Their type, as the interface says it.
    address, nbytes : int
        Where it is, and how long.
    readonly : bool
        Whether its producer calls it immutable.
    device : int
        Whose memory.
    stream : int or None
        Its producer's stream; None: there is nothing to wait for.
    asks : bool
        Whether to ask its producer for the order: its interface cannot say a stream.
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
    asks: bool
    owner: Any

    @property
    def end(self) -> int:
        """The first address after it."""
        return self.address + self.nbytes


class _Octets:
    """An array's interface without its type: tensors have no counterpart of a record's."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, said: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = said


def block(obj: Any, name: str, asked: str) -> Block:
    """Describe the memory of an object with ``__cuda_array_interface__``.

    Raises
    ------
    UnsupportedConversionError
        It has no such interface, or a malformed one; it is not contiguous.
    LossyConversionError
        It has a mask.
    DeviceError
        The simulator is on, and it is not one of its arrays.
    """
    said, own = _said(obj, name, asked)
    try:
        shape, typestr = tuple(int(n) for n in said["shape"]), str(said["typestr"])
        itemsize = np.dtype(typestr).itemsize
        strides = said.get("strides")
        octets = {
            **said,
            "shape": (prod(shape) * itemsize,),
            "typestr": "|u1",
            "strides": None,
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedConversionError(
            asked,
            f"the interface of {name} could not be read ({type(error).__name__}: {error})",
            "expose shape, typestr, data and version, as version 3 of the interface says",
        ) from error
    try:
        view, stream = cuda_array_interface.read(_Octets(octets))
    except ZeroCopyError as error:
        raise type(error)(asked, f"{name}: {error.why}", error.remedy) from error
    if strides is not None and not _row_major(shape, strides, itemsize):
        raise UnsupportedConversionError(
            asked,
            f"{name} is not contiguous: its strides are {tuple(strides)}, its shape {shape}",
            "copy it to contiguous memory first: x.copy(), or torch's x.contiguous()",
        )
    if SIMULATED and not own:
        raise DeviceError(
            asked,
            f"Numba's CUDA simulator is on, and it cannot reach the memory of a {type(obj).__name__}",
            "unset NUMBA_ENABLE_CUDASIM",
        )
    return Block(
        name,
        shape,
        typestr,
        view.ptr,
        view.nbytes,
        view.readonly,
        _ordinal(view.ptr, asked),
        stream,
        # torch's interface is of version 2, from before streams; its current one may be any.
        int(said["version"]) < 3 and hasattr(type(obj), "__dlpack__"),
        obj,
    )


def _said(obj: Any, name: str, asked: str) -> tuple[dict[str, Any], bool]:
    """Return an object's interface, and whether it is Numba's own array."""
    own = getattr(type(obj), "__cuda_ndarray__", False) is True
    said = obj.__array_interface__ if own and SIMULATED else cuda_array_interface.of(obj, f"{asked}: {name}")
    if not isinstance(said, dict):
        raise UnsupportedConversionError(
            asked,
            f"{name} is a {type(obj).__name__}, which has no __cuda_array_interface__",
            "bring it to a CUDA device first: numba.cuda.to_device(x)",
        )
    if own:
        # An array that is bound to no stream says "nothing to wait for". But kernels that are
        # launched without one run on the default stream, and return before they are done. And
        # is_contiguous skips strides of 0, which broadcast arrays have: a consumer would read
        # past their end.
        stream = None if SIMULATED else parse_stream(obj.stream or None) or default_stream()
        said = {**said, "strides": obj.strides, "stream": stream, "version": 3}
    return said, own


def _ordinal(address: int, asked: str) -> int:
    """Return whose memory an address is in; of an empty array, whose address is 0, the current one."""
    if SIMULATED:
        return 0
    found = cuda_driver.ordinal(address)
    if found is None:
        reason = cuda_driver.missing()
        if reason is not None:
            raise DeviceError(asked, reason.why, reason.remedy)
        found = int(cuda.get_current_device().id)
    return found


def _row_major(shape: tuple[int, ...], strides: Sequence[int], itemsize: int) -> bool:
    if 0 in shape:
        return True
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != expected:
            return False
        expected *= extent
    return True


def refuse_overlaps(written: Iterable[Block], read: Iterable[Block], asked: str) -> None:
    """Raise if memory to write to overlaps with other such memory, or with what is read."""
    named = [(b, True) for b in written] + [(b, False) for b in read]
    named = sorted(((b, target) for b, target in named if b.nbytes), key=lambda item: item[0].address)
    # The block that ends last of those so far, and of those that are written.
    last: Block | None = None
    last_written: Block | None = None
    for b, target in named:
        before = last if target else last_written
        if before is not None and before.end > b.address:
            raise UnsupportedConversionError(
                asked, f"{before.name} and {b.name} overlap in memory", "write to memory of its own"
            )
        if last is None or b.end > last.end:
            last = b
        if target and (last_written is None or b.end > last_written.end):
            last_written = b


def refuse_other_devices(blocks: Sequence[Block], asked: str) -> None:
    """Raise if not all memory is on one device."""
    for a, b in pairwise([b for b in blocks if b.nbytes]):
        if a.device != b.device:
            raise DeviceError(
                asked,
                f"{a.name} is on cuda:{a.device}, {b.name} on cuda:{b.device}",
                "bring them to one device first",
            )


# -- windows ----------------------------------------------------------------------


@lru_cache(maxsize=512)
def window(address: int, nbytes: int, name: str, device: int) -> Any:
    """Return an array over a stretch of memory: of whole elements of a type, by its name.

    Kernels take arrays and no addresses. A window owns nothing and keeps nothing alive, so
    that the next call for the same memory takes the same one.
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


def windows(blocks: Sequence[Block]) -> tuple[int, int]:
    """Return where a window over all these blocks begins, and its bytes.

    It begins at a multiple of 8; what lies between the blocks, and before the first one, is
    only ever counted.
    """
    filled = [b for b in blocks if b.nbytes]
    if not filled:
        return 0, 0
    low = min(b.address for b in filled) // _WORD * _WORD
    return low, max(b.end for b in filled) - low


def no_bytes(shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
    """Return a device array that has no bytes: of no rows, or of a type of none."""
    if SIMULATED or 0 in shape:
        return cuda.device_array(shape, dtype, stream=stream)
    # Which Numba would ask the driver for, that has no memory of 0 bytes.
    said = {"shape": shape, "typestr": dtype.str, "data": (0, False), "strides": None, "version": 3}
    return cuda.as_cuda_array(_Octets(said), sync=False)


# -- streams ----------------------------------------------------------------------


def default_stream() -> int:
    """Return the stream on which Numba puts what is given none.

    Numba has no current stream. With NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM it calls the
    driver's per-thread variants throughout.
    """
    per_thread = os.environ.get("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0")
    return PER_THREAD_DEFAULT_STREAM if per_thread else LEGACY_DEFAULT_STREAM


@lru_cache(maxsize=128)
def numba_stream(handle: int, device: int) -> Any:
    """Return a stream as Numba takes it, its device being current: the same object each time.

    Numba keeps the settings of a launch, by the stream's identity. With an object made anew for
    each launch it made them anew, in 15 us; with the same one it finds them in 0.4 us.
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
    """The stream that the work is put on.

    Attributes
    ----------
    handle : int
        As DLPack numbers them.
    bound : bool
        Whether it was asked for by name; the results are then bound to it.
    ordered : bool
        Whether other streams wait for it, and it for them.
    """

    handle: int
    bound: bool
    ordered: bool

    @classmethod
    def of(cls, stream: Any) -> Stream:
        """Return the stream that somebody asks for."""
        handle = parse_stream(stream)
        if handle is None or handle == NO_SYNC_STREAM:
            return cls(default_stream(), False, handle is None)
        return cls(handle, True, True)

    def numbas(self, device: int) -> Any:
        """Return it as Numba takes it, `device` being current."""
        return numba_stream(self.handle, device)

    def wait_for(self, blocks: Iterable[Block]) -> None:
        """Have the stream wait for what their producers have been given; the host waits for nothing."""
        if SIMULATED or not self.ordered:
            return
        blocks = list(blocks)
        for b in blocks:
            if b.asks and b.nbytes:
                dlpack.request(b.owner, stream=self.handle)
        for handle, device in _others(blocks, self.handle):
            cuda_driver.order(handle, self.handle, device)

    def release(self, blocks: Iterable[Block]) -> None:
        """Have their producers' streams wait for this one.

        Who owns memory that is read here may then change or free it, and who owns what is
        written may read it, as if the work had been done on the owner's stream.
        """
        if SIMULATED or not self.ordered:
            return
        for handle, device in _others(blocks, self.handle):
            cuda_driver.order(self.handle, handle, device)


def _others(blocks: Iterable[Block], handle: int) -> set[tuple[int, int]]:
    return {(b.stream, b.device) for b in blocks if b.nbytes and b.stream not in (None, handle)}  # type: ignore[misc]
