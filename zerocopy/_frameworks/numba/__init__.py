"""Numba's device arrays: on CUDA devices, or on the host under its CUDA simulator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from operator import attrgetter
from types import ModuleType
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._native import core
from zerocopy.device import (
    CUDA,
    HOST,
    LEGACY_DEFAULT_STREAM,
    NO_SYNC_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    Device,
    parse_stream,
)
from zerocopy.dtype import NATIVE_NAMES, SUBBYTE_NAMES, DType, by_name, from_numpy, native_numbers, to_numpy
from zerocopy.errors import DeviceError, FrameworkNotInstalledError, Reason
from zerocopy.forks import is_imported
from zerocopy.framework import Framework, while_forks_wait
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView

_INSTALL = "pip install 'numba-cuda[cu13]', or [cu12]: nvidia-smi shows the CUDA version"


class Numba(Framework):
    """``numba.cuda`` device arrays of the ``numba-cuda`` package, or of Numba's older built-in target.

    Under the simulator (``NUMBA_ENABLE_CUDASIM=1``) a device array is host memory:
    ``view(x).device`` is the CPU, and NumPy aliases it. Transfers to the device and copies on it
    are simulated. There are no streams, and other frameworks' device memory cannot be aliased, and the
    one device is ``cuda:0``; ``device="cuda:0"`` copies, since the memory is not on it.
    """

    name = "numba"
    root_modules = ("numba",)
    distribution = "'numba-cuda[cu13]'"
    install_hint = _INSTALL
    device_kinds = ("cuda",)
    can_copy_to_device = True

    def module(self) -> ModuleType:
        module = super().module()
        if not is_imported("numba.cuda"):  # another thread may be importing it
            try:
                while_forks_wait(partial(import_module, "numba.cuda"))
            except Exception as error:
                raise FrameworkNotInstalledError(
                    "to='numba'", f"importing numba.cuda failed: {error}", _INSTALL, code="not-installed"
                ) from error
        return module

    def variant(self, form: str) -> Framework | None:
        return self if form == "cuda" else None  # to="numba.cuda"

    def owns(self, cls: type) -> bool:
        # Not managed and mapped arrays: they are ndarrays in host memory, which NumPy owns.
        array = _array_class()
        return array is not None and issubclass(cls, array)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        name = f"numba.{type(obj).__name__}"
        dtype = from_numpy(obj.dtype)
        if dtype is None:
            raise obstacles.refuse_source_dtype(
                name, obj.dtype, "convert the fields of a record, or x.view('int64') for dates"
            )
        if _simulated():
            return _simulated_source(obj, name, dtype)
        cuda = self.module().cuda
        pointer = obj.__cuda_array_interface__["data"][0]
        index = cuda_driver.ordinal(pointer)
        device = Device(CUDA, cuda.get_current_device().id if index is None else index)
        # obj.strides, not those of its interface: is_contiguous (numba.cuda.cudadrv.devicearray)
        # ignores strides of zero, so the interface of a broadcast array has none, and a consumer
        # would read past the end.
        view = StridedView(
            pointer, tuple(obj.shape), tuple(obj.strides), dtype, device, readonly=False, owner=obj
        )
        source_stream = _source_stream(obj)

        def to_host(stream: int | None) -> Array:
            return _fetch(cuda, view, source_stream, stream)

        return Source(
            name,
            view,
            lambda: to_host(None),
            "cuda-array-interface",
            to_host=to_host,
            producer=cuda_array_interface.Handover(view, source_stream, obj),
            contiguous=lambda: _row_major(cuda, obj, view, source_stream),
        )

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        forms: dict[str, Any] = {"host_copy": self.host_copier(cls)}
        if core is None or _simulated():
            return forms
        # The strides are those of the array: see source().
        exporter = core.DeviceInterfaceExporter(
            attrgetter("gpu_data.context.device.id"), cuda_driver.order, stream=_default(), has_strides=True
        )
        return forms | {"native": exporter}

    def host_copier(self, cls: type) -> Callable[[Any], Array | None] | None:
        if _simulated():
            return None
        cuda, numbers, one_device = self.module().cuda, native_numbers(), cuda_driver.count() == 1

        def copy_to_host(array: Any) -> Array:
            # On a stream, copy_to_host does not wait.
            if array.stream or array.dtype.num not in numbers:
                raise BufferError("on a stream, or a dtype that NumPy stores in another way")
            if not one_device and array.gpu_data.context.device.id != cuda.get_current_device().id:
                raise BufferError("not on the current device")
            host: Array = array.copy_to_host()
            return host

        return copy_to_host

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view)
        name = view.dtype.name
        if name in SUBBYTE_NAMES or to_numpy(view.dtype) is None:
            raise obstacles.refuse_extended_dtype("numba", view.dtype)
        reasons = []
        if view.has_negative_strides:
            # copy_to_host refuses them, and Numba computes a negative size for the memory.
            why, remedy = "Numba does not support negative strides", "flip the array in the kernel"
            reasons.append(Reason(why, remedy, code="negative-strides"))
        if view.has_fractional_strides or not view.is_aligned(view.dtype.itemsize):
            reasons.append(obstacles.UNSAFE_FOR_KERNELS)
        return reasons

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        if _simulated() and not view.device.is_host:
            raise DeviceError(
                "to='numba'",
                f"Numba's CUDA simulator is on, and it cannot access memory on {view.device}",
                "unset NUMBA_ENABLE_CUDASIM, or copy the array to the host first",
                code="other-device",
            )
        return self.copy_reasons(view)

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        cuda = self.module().cuda
        # to_device takes row- or column-major memory only.
        array = array if array.flags.forc else array.copy()
        if _simulated():
            fresh = cuda.to_device(array)
        else:
            with _on(cuda, device.id, stream) as current:
                if stream is None or stream == NO_SYNC_STREAM:
                    fresh = cuda.to_device(array)
                else:
                    fresh = cuda.device_array_like(array, stream=current)
                    # The new memory may still be in use: allocators order on the default stream.
                    _order(_default(), stream, device.id)
                    fresh.copy_to_device(array, stream=current)
                    # A copy from pinned memory would still read the source after this returns, when
                    # its owner may change it.
                    current.synchronize()
        return fresh if dtype.in_numpy else fresh.view(to_numpy(dtype))

    def from_device(self, source: Source, stream: int | None) -> Any:
        cuda = self.module().cuda
        view, producer = source.view, source.producer
        consumer = _default() if stream is None else stream
        with cuda.gpus[view.device.id]:
            if hasattr(type(producer), "__dlpack__"):
                # Numba does not import DLPack: read the capsule, and hold it unconsumed while the
                # array lives. Its destructor then runs the deleter.
                capsule = dlpack.request_on_device(producer, consumer)
                view, owner = dlpack.read(capsule, producer), capsule
            else:
                _, ready = cuda_array_interface.read(producer, view.device.id)
                owner = producer
                _order(ready, consumer, view.device.id)
            # sync=False: the event above orders the streams; Numba would block the host. The stream
            # becomes the array's own, as in Numba's imports.
            bound = None if stream in (None, NO_SYNC_STREAM) else stream
            array = cuda.as_cuda_array(cuda_array_interface.Handover(view, bound, owner), sync=False)
        return array if view.dtype.in_numpy else array.view(to_numpy(view.dtype))

    def fill(self, obj: Any) -> Callable[[Any], Any]:
        copy: Callable[[Any], Any] = obj.copy_to_device
        return copy

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        cuda = self.module().cuda
        source = self.source(obj)
        if source.view.device == device:
            return _row_major(cuda, obj, source.view, _source_stream(obj), stream)
        # Numba cannot copy between devices: copy through the host.
        return self.from_host(source.host(), source.view.dtype, device, stream)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        cuda = self.module().cuda
        if core is None or _simulated():
            return {"device_copy": self.device_copier}

        def stream_on(index: int) -> int:
            if index != cuda.get_current_device().id:
                raise BufferError("not on the current device")
            return _default()

        types = [by_name(name) for name in NATIVE_NAMES]
        importer = core.DeviceInterfaceImporter(
            cuda.from_cuda_array_interface,
            _default() if cuda_driver.count() == 1 else stream_on,
            [(dtype.code, dtype.bits) for dtype in types],
        )
        return {"native_device": importer, "device_copy": self.device_copier}

    def device_copier(self, device: Device | None) -> Callable[[Array], Any] | None:
        if device is not None or _simulated():
            return None
        to_device, numbers = self.module().cuda.to_device, native_numbers()

        def copy_ndarray(array: Array) -> Any:
            if array.dtype.num not in numbers or not (array.dtype.isnative and array.flags.forc):
                raise BufferError("a dtype or a layout that Numba lacks")
            return to_device(array)  # without a stream, it waits

        return copy_ndarray

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
            cuda_driver.require(asked)
            error = cuda.cuda_error()
            if error is not None:
                raise DeviceError(
                    asked, f"Numba cannot use the driver: {error}", _INSTALL, code="driver-error"
                )
        if device.id >= len(cuda.gpus):
            raise obstacles.refuse_index("numba", device, len(cuda.gpus))

    def is_out_of_memory(self, error: Exception) -> bool:
        driver = sys.modules.get("numba.cuda.cudadrv.driver")
        raised: Any = getattr(driver, "CudaAPIError", None)
        # CUDA_ERROR_OUT_OF_MEMORY is 2 (cuda.h, CUresult).
        return raised is not None and isinstance(error, raised) and int(error.code) == 2  # type: ignore[attr-defined]

    def devices(self) -> list[str]:
        if not is_imported("numba.cuda"):
            return list(self.device_kinds)
        if _simulated():
            return ["cuda:0 (simulated)"]
        return obstacles.cuda_devices(cuda_driver.count) or ["cuda (no device)"]


def _array_class() -> type | None:
    """Return the class of device arrays if ``numba.cuda`` is imported: FakeCUDAArray in the simulator."""
    module = sys.modules.get("numba.cuda.cudadrv.devicearray")
    cls: type | None = getattr(module, "DeviceNDArray", None) or getattr(module, "FakeCUDAArray", None)
    return cls


def _simulated() -> bool:
    return not hasattr(sys.modules.get("numba.cuda"), "as_cuda_array")


def _simulated_source(obj: Any, name: str, dtype: DType) -> Source:
    # FakeCUDAArray forwards the interface of the ndarray that it wraps. Only its address is used:
    # NumPy cannot parse its descr for a dtype of ml_dtypes.
    pointer, readonly = obj.__array_interface__["data"]
    view = StridedView(pointer, tuple(obj.shape), tuple(obj.strides), dtype, HOST, readonly, obj)
    return Source(name, view, view.numpy, "array-interface")


# -- streams ------------------------------------------------------------------


def _default() -> int:
    """Return the stream that Numba uses by default; it has no current stream.

    With NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM Numba calls the driver's per-thread functions.
    """
    per_thread = os.environ.get("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "0") not in ("", "0")
    return PER_THREAD_DEFAULT_STREAM if per_thread else LEGACY_DEFAULT_STREAM


def _source_stream(obj: Any) -> int:
    """Return the stream of the pending work on an array.

    The interface of an array without a stream states that there is nothing to wait for. But
    kernels launched without a stream run asynchronously on the default one.
    """
    source_stream = parse_stream(obj.stream or None)
    return _default() if source_stream is None or source_stream == LEGACY_DEFAULT_STREAM else source_stream


def _stream(cuda: Any, handle: int) -> Any:
    if handle == LEGACY_DEFAULT_STREAM:
        return cuda.legacy_default_stream()
    if handle == PER_THREAD_DEFAULT_STREAM:
        return cuda.per_thread_default_stream()
    return cuda.external_stream(handle)


def _order(first: int | None, then: int, device: int) -> None:
    """Make the stream `then` wait for the work on `first`; the host does not wait.

    By the driver's events: an event of Numba frees the memory that waits to be freed, and the driver then
    waits for the device (``numba.cuda.cudadrv.driver``, ``_PendingDeallocs``).
    """
    if first is not None and then not in (NO_SYNC_STREAM, first):
        cuda_driver.order(first, then, device)


@contextmanager
def _on(cuda: Any, index: int, stream: int | None) -> Iterator[Any]:
    """Make a device current, and yield the stream for Numba: 0 is the default one, and synchronous."""
    with cuda.gpus[index]:
        yield 0 if stream is None or stream == NO_SYNC_STREAM else _stream(cuda, stream)


# -- copies -------------------------------------------------------------------


def _fetch(cuda: Any, view: StridedView, source_stream: int, stream: int | None) -> Array:
    """Copy memory of any layout to the host, and wait for the copy.

    Copies one block of bytes, gaps included, because copy_to_host refuses negative strides.
    """
    import numpy as np

    if view.size == 0:
        return np.empty(view.shape, view.dtype.storage)
    low, high = view.bounds
    block = StridedView(low, (high - low,), (1,), by_name("uint8"), view.device, False, view.owner)
    handle = source_stream if stream is None or stream == NO_SYNC_STREAM else stream
    with _on(cuda, view.device.id, handle) as on:
        _order(source_stream, handle, view.device.id)
        block_array = cuda.as_cuda_array(cuda_array_interface.Handover(block, None, view.owner), sync=False)
        raw = block_array.copy_to_host(stream=on)
        on.synchronize()  # with a stream, copy_to_host is asynchronous
    return np.ndarray(view.shape, view.dtype.storage, raw, view.ptr - low, view.strides)


def _row_major(cuda: Any, obj: Any, view: StridedView, source_stream: int, stream: int | None = None) -> Any:
    """Return a row-major copy on the same device, bound to no stream."""
    dtype = view.dtype
    if view.has_fractional_strides or not view.is_aligned(dtype.itemsize):
        # No kernel can read it: copy through the host.
        return FRAMEWORK.from_host(_fetch(cuda, view, source_stream, stream).copy(), dtype, view.device, None)
    handle = source_stream if stream is None or stream == NO_SYNC_STREAM else stream
    with _on(cuda, view.device.id, handle) as on:
        # As unsigned integers for dtypes for which Numba may be unable to compile a kernel.
        plain = obj if dtype.in_numpy else obj.view(dtype.storage)
        fresh = cuda.device_array(view.shape, dtype.storage)
        # Wait for the work on the array, and for earlier uses of the new memory, which allocators
        # order on the default stream.
        for first in dict.fromkeys((source_stream, _default())):
            _order(first, handle, view.device.id)
        if view.size and view.c_contiguous:
            fresh.copy_to_device(plain, stream=on)
        elif view.size:
            fresh.setitem(slice(None), plain, stream=on)
        # The copy is bound to no stream, so later work on it runs on the default one.
        _order(handle, _default(), view.device.id)
    return fresh if dtype.in_numpy else fresh.view(obj.dtype)


FRAMEWORK = Numba()
