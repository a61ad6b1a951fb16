"""CuPy arrays, on CUDA devices only: ``to="cupy"`` transfers host memory to a device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._native import core
from zerocopy.casting.values import fits
from zerocopy.device import (
    CUDA,
    LEGACY_DEFAULT_STREAM,
    NO_SYNC_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    ROCM,
    Device,
)
from zerocopy.dtype import (
    COMPLEX,
    NATIVE_NAMES,
    SUBBYTE_NAMES,
    DType,
    by_name,
    from_numpy,
    native_numbers,
    to_numpy,
)
from zerocopy.errors import DeviceError, Fix, Reason
from zerocopy.framework import Framework, refuse_dtype
from zerocopy.protocols import cuda_array_interface, cuda_driver, dlpack
from zerocopy.protocols.array_interface import address
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView

#: Bytes up to which an array is copied on the host, so that the call need not wait for the device.
_SMALL = 1 << 16
_SPARSE = Reason("it is sparse", code="sparse", fixes=[Fix("{x}.toarray()", "makes it dense")])
_INSTALL = "pip install cupy-cuda13x, or cupy-cuda12x: nvidia-smi shows the CUDA version"


def is_sparse_type(cls: type) -> bool:
    """Whether a type is one of CuPy's sparse matrices; compared by name, to import nothing."""
    return cls.__module__.startswith("cupyx.scipy.sparse") and hasattr(cls, "toarray")


class CuPy(Framework):
    """``cupy.ndarray`` and its subclasses, with the dtypes of ``ml_dtypes`` stored as NumPy stores them."""

    name = "cupy"
    aliases = ("cp",)
    types = ("ndarray",)
    kinds: Mapping[str, Any] = {"spmatrix": "sparse"}
    root_modules = ("cupy", "cupyx")
    distribution = "cupy-cuda13x"  # "pip install cupy" builds from source
    install_hint = _INSTALL
    device_kinds = ("cuda",)
    can_copy_to_device = True
    can_export_dlpack = True
    can_cast = True

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().ndarray) or is_sparse_type(cls)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        cupy = self.module()
        name = f"cupy.{type(obj).__name__}"
        if is_sparse_type(type(obj)):
            raise obstacles.refuse_source(f"cupyx.scipy.sparse.{type(obj).__name__}", _SPARSE)
        dtype = from_numpy(obj.dtype)
        if dtype is None:
            raise obstacles.refuse_source_dtype(
                name, obj.dtype, "cast it to a number, or view its bytes: x.view('uint8')"
            )
        kind = ROCM if cupy.cuda.runtime.is_hip else CUDA
        device = Device(kind, obj.data.device_id)
        view = StridedView(obj.data.ptr, obj.shape, obj.strides, dtype, device, readonly=False, owner=obj)

        def to_host(stream: int | None) -> Array:
            with _on(cupy, device.id, stream, after_own=True):
                plain = obj if _plain(view) else _row_major(cupy, obj, view)
                # get() waits for the copy, on the stream made current here.
                array: Array = _as_storage(plain, dtype).get()
                # With CUPY_ENABLE_UMP=1, get() aliases memory that the host can read.
                return array.copy() if address(array) == plain.data.ptr else array

        def contiguous() -> Any:
            with cupy.cuda.Device(device.id):
                return _row_major(cupy, obj, view)

        return Source(
            name,
            view,
            lambda: to_host(None),
            "dlpack",
            to_host=to_host,
            producer=obj if dtype.in_numpy else _retyped(obj, dtype),
            contiguous=contiguous,
        )

    def allocation(self, obj: Any, address: int) -> tuple[int, int]:
        memory = obj.data.mem
        return memory.ptr, memory.ptr + memory.size

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        cupy = self.module()
        runtime = cupy.cuda.runtime
        forms: dict[str, Any] = {"host_copy": self.host_copier(cls)}
        if core is None or cls is not cupy.ndarray or runtime.is_hip:
            return forms

        def device_of(array: Any) -> int:
            index: int = array.data.device_id
            # CuPy's exporter orders a stream of the current device.
            if index != runtime.getDevice():
                raise BufferError("not on the current device")
            return index

        device = 0 if cuda_driver.count() == 1 else device_of
        return forms | {"native": core.DeviceExporter(cls.__dlpack__, device)}

    def host_copier(self, cls: type) -> Callable[[Any], Array | None] | None:
        cupy, numbers = self.module(), native_numbers()
        runtime = cupy.cuda.runtime
        if cls is not cupy.ndarray or runtime.is_hip or _is_unified():
            return None  # get() may alias unified memory

        def copy_to_host(array: Any) -> Array:
            is_plain = array.dtype.num in numbers and array.flags.c_contiguous
            if not is_plain or array.data.device_id != runtime.getDevice():
                raise BufferError("not on the current device, or a dtype or a layout that needs a kernel")
            host: Array = array.get()  # waits for the copy
            return host

        return copy_to_host

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view)
        name = view.dtype.name
        if name in SUBBYTE_NAMES or to_numpy(view.dtype) is None:
            raise obstacles.refuse_extended_dtype("cupy", view.dtype)
        if _plain(view):
            return []
        # A kernel that reads misaligned memory fails with "misaligned address", after which the
        # process cannot use its CUDA context again.
        return [obstacles.UNSAFE_FOR_KERNELS]

    def can_relay(self, view: StridedView) -> bool:
        # Every layout is safe: _row_major copies misaligned memory byte by byte.
        return view.ndim <= self.max_ndim and to_numpy(view.dtype) is not None

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        cupy = self.module()
        with _on(cupy, device.id, stream):
            # Blocking: a copy from pinned memory would still read the source after this returns, when
            # its owner may change it.
            fresh = cupy.array(array, order="C", blocking=True)
            if fresh.data.ptr == address(array):  # with CUPY_ENABLE_UMP=1, CuPy aliases host memory
                fresh = fresh.copy(order="C")
        return fresh if dtype.in_numpy else fresh.view(to_numpy(dtype))

    def from_device(self, source: Source, stream: int | None) -> Any:
        cupy = self.module()
        with cupy.cuda.Device(source.view.device.id):
            consumer = _handle(cupy.cuda.get_current_stream()) if stream is None else stream
            if hasattr(type(source.producer), "__dlpack__"):
                # The producer orders its work before the consumer's stream (DLPack Python
                # specification, "stream").
                capsule = dlpack.request_on_device(source.producer, consumer)
                return _imported(cupy, capsule, source.view.dtype)
            return _aliased(cupy, source, consumer)

    def fill(self, obj: Any) -> Callable[[Any], Any]:
        def write(value: Any) -> None:
            with self.module().cuda.Device(obj.data.device_id):
                obj[...] = value

        return write

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        cupy = self.module()
        view = self.source(obj).view
        if view.device.id == device.id:
            with _on(cupy, device.id, stream, after_own=True):
                return _row_major(cupy, obj, view)
        with cupy.cuda.Device(view.device.id):
            there = obj if view.c_contiguous and _plain(view) else _row_major(cupy, obj, view)
            own = cupy.cuda.get_current_stream()
            ready = own.record()
        with _on(cupy, device.id, stream) as current:
            current.wait_event(ready)
            fresh = cupy.empty(view.shape, view.dtype.storage)
            fresh.data.copy_from_device_async(there.data, view.nbytes, current)
            copied = current.record()
        with cupy.cuda.Device(view.device.id):
            # CuPy's pool must not reuse the source's block before the copy has read it.
            own.wait_event(copied)
        return fresh if view.dtype.in_numpy else fresh.view(obj.dtype)

    def cast(self, obj: Any, dtype: DType) -> tuple[Any, bool]:
        cupy, view = self.module(), self.source(obj).view
        for missing in (view.dtype, dtype):
            if not missing.in_numpy:
                raise refuse_dtype("cupy", missing, "cast it on the host: convert it to numpy first")
        with cupy.cuda.Device(view.device.id):
            plain = obj if _plain(view) else _row_major(cupy, obj, view)
            real = plain.real if view.dtype.code == COMPLEX and dtype.code != COMPLEX else plain
            result = real.astype(dtype.storage, order="C")
            return result, fits(cupy, plain, result, view.dtype, dtype)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        cupy = self.module()
        cuda, one_device = cupy.cuda, cuda_driver.count() == 1
        forms: dict[str, Any] = {"device_copy": self.device_copier}
        if core is None or cuda.runtime.is_hip:
            return forms

        def stream_on(index: int) -> int:
            if not one_device and index != cuda.runtime.getDevice():
                raise BufferError("not on the current device")
            return _handle(cuda.get_current_stream())

        types = [by_name(name) for name in NATIVE_NAMES]
        on_device = core.CapsuleImporter(
            cupy.from_dlpack,
            dtypes=[(dtype.code, dtype.bits) for dtype in types],
            alignment=0,
            layout="strided",
            arguments=(),
            stream=stream_on,
        )
        return forms | {"native_device": on_device}

    def device_copier(self, device: Device | None) -> Callable[[Array], Any] | None:
        cupy, numbers = self.module(), native_numbers()
        if device is not None or cupy.cuda.runtime.is_hip or _is_unified():
            return None  # CuPy may alias unified memory
        import numpy as np

        array = cupy.array

        def copy_ndarray(ndarray: Array) -> Any:
            if ndarray.dtype.num not in numbers or not ndarray.dtype.isnative:
                raise BufferError("CuPy lacks its dtype, or its bytes are swapped")
            if ndarray.nbytes > _SMALL:
                return array(ndarray, order="C", blocking=True)  # blocking: see from_host
            # CUDA reads pageable memory before the call returns ("API synchronization behavior" in its
            # documentation), but not page-locked memory, which NumPy's is under some pools.
            pageable = np.ndarray(ndarray.shape, ndarray.dtype, bytearray(ndarray.nbytes))
            pageable[...] = ndarray
            return array(pageable, order="C")

        return copy_ndarray

    # -- devices --------------------------------------------------------------

    def parse_device(self, spec: Any) -> Device:
        if isinstance(spec, self.module().cuda.Device):
            return Device(CUDA, spec.id)
        return super().parse_device(spec)

    def default_device(self, view: StridedView) -> Device:
        if view.device.kind == "cuda":
            return view.device
        cupy = self.module()
        return Device(CUDA, cupy.cuda.runtime.getDevice() if cupy.cuda.is_available() else 0)

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        asked = f"to='cupy', device={str(device)!r}"
        cuda_driver.require(asked)
        runtime = self.module().cuda.runtime
        try:
            count = runtime.getDeviceCount()
        except runtime.CUDARuntimeError as error:
            raise DeviceError(
                asked, f"the CUDA runtime does not answer: {error}", _INSTALL, code="driver-error"
            ) from error
        if device.id >= count:
            raise obstacles.refuse_index("cupy", device, count)

    def devices(self) -> list[str]:
        return obstacles.cuda_devices(self.module().cuda.runtime.getDeviceCount) or ["cuda (no device)"]


def _retyped(array: Any, dtype: DType) -> dlpack.Producer:
    """Return a producer that exports unsigned integers, and writes the true dtype into the capsule.

    CuPy's exporter supports bfloat16 since version 14, and does not support float8 (cupy/cupy#9480).
    """
    plain = array.view(dtype.storage)
    export = lambda **options: dlpack.retype(plain.__dlpack__(**options), dtype)  # noqa: E731
    return dlpack.Producer(export, plain.__dlpack_device__())


class _Foreign:
    """A stream's handle with CUDA Python's stream protocol, for CuPy."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _is_unified() -> bool:
    """Whether CuPy allocates memory that the host can address too."""
    return os.environ.get("CUPY_ENABLE_UMP", "0") not in ("", "0")


def _plain(view: StridedView) -> bool:
    """Whether kernels can read the memory: it is aligned to its item size."""
    return view.is_aligned(view.dtype.itemsize) and not view.has_fractional_strides


def _as_storage(array: Any, dtype: DType) -> Any:
    return array if dtype.in_numpy else array.view(dtype.storage)


def _row_major(cupy: Any, array: Any, view: StridedView) -> Any:
    """Return a row-major copy, made on the current stream.

    As unsigned integers if NumPy lacks the dtype, since CuPy compiles no kernels for most of
    these; byte by byte if the memory is misaligned.
    """
    dtype = view.dtype
    if _plain(view):
        fresh = _as_storage(array, dtype).copy(order="C")
        return fresh if dtype.in_numpy else fresh.view(array.dtype)
    octets = cupy.ndarray(
        (*view.shape, dtype.itemsize), "uint8", memptr=array.data, strides=(*view.strides, 1)
    )
    return octets.copy(order="C").view(array.dtype).reshape(view.shape)


def _imported(cupy: Any, capsule: Any, dtype: DType) -> Any:
    if dtype.in_numpy:
        return cupy.from_dlpack(capsule)
    # As unsigned integers: for an unknown dtype, CuPy 13 frees the capsule in a way that aborts
    # the process (cupy/cupy#8801).
    unsigned = from_numpy(dtype.storage)
    assert unsigned is not None
    return cupy.from_dlpack(dlpack.retype(capsule, unsigned)).view(to_numpy(dtype))


def _aliased(cupy: Any, source: Source, consumer: int) -> Any:
    """Return an array over memory that the CUDA Array Interface describes."""
    view = source.view
    _, producer = cuda_array_interface.read(source.producer, view.device.id)
    if producer is not None and consumer not in (NO_SYNC_STREAM, producer):
        # Wait with an event: cupy.asarray would block the host until the producer's stream is done.
        _stream(cupy, consumer).wait_event(_stream(cupy, producer).record())
    low, high = view.bounds
    memory = cupy.cuda.UnownedMemory(low, high - low, source.producer, view.device.id)
    pointer = cupy.cuda.MemoryPointer(memory, view.ptr - low)
    return cupy.ndarray(view.shape, to_numpy(view.dtype), memptr=pointer, strides=view.strides)


def _handle(stream: Any) -> int:
    """Return a stream's number in DLPack; CuPy gives the legacy default stream the number 0."""
    return int(stream.ptr) or LEGACY_DEFAULT_STREAM


def _stream(cupy: Any, handle: int) -> Any:
    if handle == LEGACY_DEFAULT_STREAM:
        return cupy.cuda.Stream.null
    if handle == PER_THREAD_DEFAULT_STREAM:
        return cupy.cuda.Stream.ptds
    if hasattr(cupy.cuda.Stream, "from_external"):  # CuPy 14 deprecates ExternalStream
        return cupy.cuda.Stream.from_external(_Foreign(handle))
    return cupy.cuda.ExternalStream(handle)


@contextmanager
def _on(cupy: Any, index: int, stream: int | None, *, after_own: bool = False) -> Iterator[Any]:
    """Make a device and a stream current; None and -1 leave the device's own current stream.

    With `after_own`, the stream waits for the work on the device's own current stream, which
    creates the array; afterwards that stream waits in turn, since CuPy's pool orders the reuse
    of the array's block on it alone.
    """
    with cupy.cuda.Device(index):
        own = cupy.cuda.get_current_stream()
        if stream is None or stream in (NO_SYNC_STREAM, _handle(own)):
            yield own
            return
        current = _stream(cupy, stream)
        if after_own:
            current.wait_event(own.record())
        with current:
            yield current
        if after_own:
            own.wait_event(current.record())


FRAMEWORK = CuPy()
