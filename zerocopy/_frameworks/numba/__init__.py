"""Numba's device arrays, on CUDA devices, and under its CUDA simulator on the host."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from zerocopy.device import (
    CUDA,
    HOST,
    LEGACY_DEFAULT_STREAM,
    NO_SYNC_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    Device,
    parse_stream,
)
from zerocopy.dtype import SUBBYTE_NAMES, DType, by_name, from_numpy, to_numpy
from zerocopy.errors import DeviceError, FrameworkNotInstalledError, Reason, UnsupportedConversionError
from zerocopy.framework import Array, Framework, Source, refuse_dtype, refuse_ndim
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.strided_view import StridedView

_MAX_NDIM = 64
_INSTALL = "pip install 'numba-cuda[cu13]', or [cu12]: nvidia-smi says which"


class Numba(Framework):
    """``numba.cuda`` device arrays: of the ``numba-cuda`` package, or of Numba's own older target.

    Under the simulator (``NUMBA_ENABLE_CUDASIM=1``) a device array is host memory, and
    is described as that: ``view(x).device`` is the CPU, and NumPy aliases it. Simulated
    are the transfer to the device, which copies, and copies on it. There are no streams,
    no aliasing of other frameworks' device memory, and one device, ``cuda:0``; naming it
    with ``device=`` copies, as its arrays do not lie there.
    """

    name = "numba"
    pool_hook = "zerocopy._frameworks.numba.pool:NumbaHook"
    root_modules = ("numba",)
    distribution = "'numba-cuda[cu13]'"
    device_kinds = ("cuda",)
    can_copy_to_device = True

    def module(self) -> ModuleType:
        try:
            module = super().module()
            if "numba.cuda" not in sys.modules:
                import_module("numba.cuda")
        except FrameworkNotInstalledError as error:
            error.remedy = _INSTALL
            error.args = (error.asked, error.why, error.remedy)
            raise
        except ImportError as error:
            raise FrameworkNotInstalledError(
                "to='numba'", f"importing numba.cuda failed: {error}", _INSTALL
            ) from error
        return module

    def variant(self, form: str) -> Framework | None:
        return self if form == "cuda" else None  # to="numba.cuda", which people write too

    def owns(self, cls: type) -> bool:
        # Managed and mapped arrays are ndarrays too, and host memory: those are NumPy's.
        array = _array_class()
        return array is not None and issubclass(cls, array)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        name = f"numba.{type(obj).__name__}"
        dtype = from_numpy(obj.dtype)
        if dtype is None:
            raise UnsupportedConversionError(
                f"convert({name})",
                f"tensors have no counterpart of {obj.dtype}",
                "convert the fields of a record, or x.view('int64') for dates",
            )
        if _simulated():
            return _simulated_source(obj, name, dtype)
        cuda = self.module().cuda
        pointer = obj.__cuda_array_interface__["data"][0]
        index = cuda_driver.ordinal(pointer)
        device = Device(CUDA, cuda.get_current_device().id if index is None else index)
        # The strides are the array's own: its interface leaves them out of a broadcast
        # array, whose zero strides numba.cuda.cudadrv.devicearray.is_contiguous skips,
        # and a consumer would read past the end.
        view = StridedView(
            pointer, tuple(obj.shape), tuple(obj.strides), dtype, device, readonly=False, owner=obj
        )
        own = _own_stream(obj)

        def to_host(stream: int | None) -> Array:
            return _fetch(cuda, view, own, stream)

        return Source(
            name,
            view,
            lambda: to_host(None),
            "cuda-array-interface",
            to_host=to_host,
            producer=cuda_array_interface.Handover(view, own, obj),
            contiguous=lambda: _row_major(cuda, obj, view, own),
        )

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        if view.ndim > _MAX_NDIM:
            raise refuse_ndim("numba", view, _MAX_NDIM)
        name = view.dtype.name
        if name in SUBBYTE_NAMES or to_numpy(view.dtype) is None:
            nowhere = name in SUBBYTE_NAMES or name == "float4_e2m1fn_x2"
            raise refuse_dtype(
                "numba", view.dtype, "" if nowhere else "pip install ml_dtypes, which adds it to NumPy"
            )
        reasons = []
        if view.has_negative_strides:
            # copy_to_host refuses them, and Numba computes a negative size for the memory.
            reasons.append(
                Reason("Numba cannot fetch memory that is walked backwards", "flip it inside the kernel")
            )
        if view.has_fractional_strides or not view.is_aligned(view.dtype.itemsize):
            reasons.append(
                Reason(
                    "the memory is not aligned to its item size, and CUDA kernels fault on such memory",
                    "align the record where it is made: numpy.dtype(..., align=True)",
                )
            )
        return reasons

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        if _simulated() and not view.device.is_host:
            raise DeviceError(
                "to='numba'",
                f"Numba's CUDA simulator is on, and it cannot reach memory on {view.device}",
                "unset NUMBA_ENABLE_CUDASIM, or bring the array to the host first",
            )
        return self.copy_reasons(view)

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        cuda = self.module().cuda
        # to_device takes memory in row- or column-major order and no other.
        array = array if array.flags.forc else array.copy()
        if _simulated():
            fresh = cuda.to_device(array)
        else:
            with _on(cuda, device.id, stream) as asked:
                if stream is None or stream == NO_SYNC_STREAM:
                    fresh = cuda.to_device(array)
                else:
                    fresh = cuda.device_array_like(array, stream=asked)
                    # Where its memory was last used: allocators order on the default stream.
                    _order(cuda, _default(), stream)
                    fresh.copy_to_device(array, stream=asked)
                    # From pinned memory the copy runs on after to_device has returned,
                    # and the source's owner may change it then.
                    asked.synchronize()
        return fresh if dtype.in_numpy else fresh.view(to_numpy(dtype))

    def from_device(self, source: Source, stream: int | None) -> Any:
        cuda = self.module().cuda
        view, producer = source.view, source.producer
        consumer = _default() if stream is None else stream
        with cuda.gpus[view.device.id]:
            if hasattr(type(producer), "__dlpack__"):
                # Numba imports no DLPack. The capsule is read, and held unconsumed for as
                # long as the array lives: its own destructor then runs its deleter.
                capsule = dlpack.request(producer, stream=consumer)
                view, owner = dlpack.read(capsule, producer), capsule
            else:
                _, ready = cuda_array_interface.read(producer, view.device.id)
                owner = producer
                _order(cuda, ready, consumer)
            # sync=False: the order is made above, by an event, where Numba would have the
            # host wait. The stream becomes the array's own, as Numba's imports have it.
            bound = None if stream in (None, NO_SYNC_STREAM) else stream
            array = cuda.as_cuda_array(cuda_array_interface.Handover(view, bound, owner), sync=False)
        return array if view.dtype.in_numpy else array.view(to_numpy(view.dtype))

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        cuda = self.module().cuda
        source = self.source(obj)
        if source.view.device == device:
            return _row_major(cuda, obj, source.view, _own_stream(obj), stream)
        # Numba has no copy from one device to another: by way of the host.
        return self.from_host(source.host(), source.view.dtype, device, stream)

    # -- devices --------------------------------------------------------------

    def default_device(self, view: StridedView) -> Device:
        if view.device.kind == "cuda":
            return view.device
        cuda = self.module().cuda
        simulated = _simulated() or cuda_driver.missing() is not None
        return Device(CUDA, 0 if simulated else cuda.get_current_device().id)

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        asked = f"to='numba', device={str(device)!r}"
        cuda = self.module().cuda
        if not _simulated():
            reason = cuda_driver.missing()
            if reason is not None:
                raise DeviceError(asked, reason.why, reason.remedy)
            error = cuda.cuda_error()
            if error is not None:
                raise DeviceError(asked, f"Numba cannot use the driver: {error}", _INSTALL)
        if device.id >= len(cuda.gpus):
            raise DeviceError(asked, f"Numba sees {len(cuda.gpus)} CUDA devices", "name one of them")

    def is_out_of_memory(self, error: Exception) -> bool:
        driver = sys.modules.get("numba.cuda.cudadrv.driver")
        raised: Any = getattr(driver, "CudaAPIError", None)
        # 2: CUDA_ERROR_OUT_OF_MEMORY (cuda.h, CUresult).
        return raised is not None and isinstance(error, raised) and int(error.code) == 2  # type: ignore[attr-defined]

    def devices(self) -> list[str]:
        if "numba.cuda" not in sys.modules:
            return list(self.device_kinds)
        if _simulated():
            return ["cuda:0 (simulated)"]
        return [f"cuda:{i}" for i in range(cuda_driver.count())] or ["cuda (no device)"]


def _array_class() -> type | None:
    """Return the class of device arrays, if ``numba.cuda`` is imported.

    Under the simulator the module is replaced by one that has ``FakeCUDAArray``.
    """
    module = sys.modules.get("numba.cuda.cudadrv.devicearray")
    found: type | None = getattr(module, "DeviceNDArray", None) or getattr(module, "FakeCUDAArray", None)
    return found


def _simulated() -> bool:
    return not hasattr(sys.modules.get("numba.cuda"), "as_cuda_array")


def _simulated_source(obj: Any, name: str, dtype: DType) -> Source:
    # The class passes __array_interface__ on from the ndarray that it wraps; the type
    # in it is none that NumPy can read back where it is one of ml_dtypes.
    pointer, readonly = obj.__array_interface__["data"]
    view = StridedView(pointer, tuple(obj.shape), tuple(obj.strides), dtype, HOST, readonly, obj)
    return Source(name, view, view.numpy, "array-interface")


# -- streams ------------------------------------------------------------------


def _default() -> int:
    """Return the stream on which Numba puts what is given none.

    Numba has no current stream. With NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM it calls the
    driver's per-thread variants throughout.
    """
    per_thread = os.environ.get("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0")
    return PER_THREAD_DEFAULT_STREAM if per_thread else LEGACY_DEFAULT_STREAM


def _own_stream(obj: Any) -> int:
    """Return the stream that work on an array is on.

    An array bound to none says "nothing to wait for" in its interface. But kernels that
    are launched without a stream run on the default one, and return before they are done.
    """
    own = parse_stream(obj.stream or None)
    return _default() if own is None or own == LEGACY_DEFAULT_STREAM else own


def _stream(cuda: Any, handle: int) -> Any:
    if handle == LEGACY_DEFAULT_STREAM:
        return cuda.legacy_default_stream()
    if handle == PER_THREAD_DEFAULT_STREAM:
        return cuda.per_thread_default_stream()
    return cuda.external_stream(handle)


def _order(cuda: Any, first: int | None, then: int) -> None:
    """Have one stream wait for what the other has been given so far; the host waits for neither."""
    if first is None or then in (NO_SYNC_STREAM, first):
        return
    event = cuda.event(timing=False)
    event.record(_stream(cuda, first))
    event.wait(_stream(cuda, then))


@contextmanager
def _on(cuda: Any, index: int, stream: int | None) -> Iterator[Any]:
    """Make a device current, and yield the stream as Numba takes it: 0 is none, and synchronous."""
    with cuda.gpus[index]:
        yield 0 if stream is None or stream == NO_SYNC_STREAM else _stream(cuda, stream)


# -- copies -------------------------------------------------------------------


def _fetch(cuda: Any, view: StridedView, own: int, stream: int | None) -> Array:
    """Bring memory of any layout to the host, finished.

    As one block of bytes, gaps included: copy_to_host does that too, but refuses negative
    strides.
    """
    import numpy as np

    if view.size == 0:
        return np.empty(view.shape, view.dtype.storage)
    low, high = view.bounds
    block = StridedView(low, (high - low,), (1,), by_name("uint8"), view.device, False, view.owner)
    handle = own if stream is None or stream == NO_SYNC_STREAM else stream
    with _on(cuda, view.device.id, handle) as on:
        _order(cuda, own, handle)
        octets = cuda.as_cuda_array(cuda_array_interface.Handover(block, None, view.owner), sync=False)
        raw = octets.copy_to_host(stream=on)
        on.synchronize()  # with a stream copy_to_host returns before the copy is done
    return np.ndarray(view.shape, view.dtype.storage, raw, view.ptr - low, view.strides)


def _row_major(cuda: Any, obj: Any, view: StridedView, own: int, stream: int | None = None) -> Any:
    """Return a fresh row-major copy on the same device, bound to no stream."""
    dtype = view.dtype
    if view.has_fractional_strides or not view.is_aligned(dtype.itemsize):
        # No kernel may read it, so it goes by way of the host.
        return FRAMEWORK.from_host(_fetch(cuda, view, own, stream).copy(), dtype, view.device, None)
    handle = own if stream is None or stream == NO_SYNC_STREAM else stream
    with _on(cuda, view.device.id, handle) as on:
        # As unsigned integers where Numba may have no such type to compile a kernel for.
        plain = obj if dtype.in_numpy else obj.view(dtype.storage)
        fresh = cuda.device_array(view.shape, dtype.storage)
        # After what makes the array, and after whatever used the new memory before, which
        # allocators order on the default stream.
        for first in dict.fromkeys((own, _default())):
            _order(cuda, first, handle)
        if view.size and view.c_contiguous:
            fresh.copy_to_device(plain, stream=on)
        elif view.size:
            fresh.setitem(slice(None), plain, stream=on)
        # The copy is bound to no stream, so what comes next is on the default one.
        _order(cuda, handle, _default())
    return fresh if dtype.in_numpy else fresh.view(obj.dtype)


FRAMEWORK = Numba()
