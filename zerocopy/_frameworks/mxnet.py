"""Apache MXNet 1.9: row-major memory that an engine writes to in its own time.

MXNet 1.9.1 is the last release, and imports with NumPy 1.23 and no later.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from zerocopy.device import CUDA, CUDA_HOST, HOST, LEGACY_DEFAULT_STREAM, Device
from zerocopy.dtype import UINT, DType, by_name, from_numpy
from zerocopy.errors import (
    DeviceError,
    FrameworkNotInstalledError,
    Reason,
    UnsupportedConversionError,
)
from zerocopy.framework import Array, Framework, Source, refuse_dtype, refuse_ndim
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import writable_alias
from zerocopy.strided_view import StridedView, contiguous_strides

# All that it exports and imports (mxnet/tensor_blob.h, DTypeTransform), as NDArray.dtype has them.
_NAMES = ("bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64", "bfloat16")
_MAX_NDIM = 32  # NumPy's before 2.0, which carries the memory; MXNet itself has no limit
_MAX_SIZE = 2**31 - 2  # where INT64_TENSOR_SIZE is off, as it is in the wheels
# The other frameworks want NumPy 2: in their environment this would break them.
_INSTALL = 'in an environment of its own: pip install mxnet==1.9.1 "numpy<1.24"'
_GPU, _PINNED = 2, 3  # Context.devtype2str


class MXNet(Framework):
    """``mxnet.nd.NDArray``, and ``mxnet.np.ndarray``, which is a subclass of it.

    ``to="mxnet"`` gives an ``mxnet.nd.NDArray``; ``x.as_np_ndarray()`` makes an
    ``mxnet.np.ndarray`` of the same memory. An object of either class comes back
    as it is, unless a copy is needed: that is an ``NDArray``.

    Notes
    -----
    MXNet runs its operators later, on threads of its own. A conversion waits for
    those that it has queued already; whoever goes on using both sides has to wait
    for the later ones: ``x.wait_to_read()`` before reading an alias of what MXNet
    wrote, ``mx.nd.waitall()`` before writing to an alias of what MXNet still reads.

    MXNet may rewrite memory that it only reads: with oneDNN (the default on CPUs)
    an inference by ``Convolution`` brings its weights into oneDNN's own layout in
    place, and an operator with ``out=x`` may leave `x` in such a layout. An alias
    of that memory then sees the same bytes in another order. For arrays that are
    to be used so, ask for ``copy=True``, or set ``MXNET_MKLDNN_ENABLED=0``.
    """

    name = "mxnet"
    root_modules = ("mxnet",)
    distribution = 'mxnet==1.9.1 "numpy<1.24" # own venv'
    device_kinds = ("cpu", "cuda")
    # `writable=False` of an NDArray stops `x += y` and its like, but neither x[:] = y
    # nor out=x: not enough to call an alias of immutable memory protected.
    marks_readonly = False
    # It has `copy_to_device`, but cannot be the carrier of other producers' device memory: the
    # wheel on PyPI is built without CUDA.
    can_copy_to_device = False

    # -- presence ---------------------------------------------------------------

    def module(self) -> ModuleType:
        asked = f"to={self.name!r}"
        if not self.installed():
            raise FrameworkNotInstalledError(asked, "mxnet is not installed", f"{_INSTALL}")
        try:
            return importlib.import_module(self.name)
        except (ImportError, AttributeError) as error:
            # AttributeError: it reads numpy.bool, which NumPy 1.24 removed.
            raise FrameworkNotInstalledError(asked, f"importing it failed: {error}", f"{_INSTALL}") from error

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().nd.NDArray)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        mx = self.module()
        name = _name(obj)
        refusal = _refusal(obj)
        if refusal is not None:
            raise UnsupportedConversionError(f"convert({name})", refusal.why, refusal.remedy)
        dtype, device = _dtype(obj), _device(obj)
        if not device.is_host and dtype.name == "bool":
            # Exported as an unsigned integer of 1 bit (mxnet/tensor_blob.h,
            # DTypeTransform), which every importer takes for packed bits or refuses.
            raise UnsupportedConversionError(
                f"convert({name})", "MXNet misnames booleans on a device", "x.astype('uint8')"
            )
        reasons = []
        try:
            view = _describe(obj, dtype, device)
        except mx.MXNetError as error:
            if "TBlob for MKLDNN" not in str(error):
                # Its operators run later, and so do their errors come out.
                raise UnsupportedConversionError(
                    f"convert({name})",
                    f"what MXNet had queued for it failed: {str(error).strip().splitlines()[-1]}",
                    "see the cause above",
                ) from error
            # What Convolution and others return, and weights after an inference.
            view = _unreadable(obj, dtype, device)
            reasons.append(
                Reason(
                    "MXNet keeps it in oneDNN's own layout, which is no strided one",
                    "x.copy() has row-major memory; MXNET_MKLDNN_ENABLED=0 keeps all arrays row-major",
                )
            )

        def host() -> Array:
            # Described again, and so waited for again: MXNet may have been given work
            # since then, or may have moved it.
            return _copy(obj, dtype) if reasons else _describe(obj, dtype, device).numpy()

        return Source(
            name,
            view,
            host,
            "dlpack",
            reasons,
            to_host=lambda stream: _copy(obj, dtype),
            producer=_OnDevice(obj, device),
            contiguous=lambda: _finished(obj.copy()),
        )

    # There are no `exports`: MXNet tells once that an operator failed, and on the fast
    # way, where any error means "look again", the second look would find no error and
    # hand out memory that nobody has written.

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        mx = self.module()
        if view.dtype.name not in _NAMES:
            raise refuse_dtype("mxnet", view.dtype)
        if view.ndim > _MAX_NDIM:
            raise refuse_ndim("mxnet", view, _MAX_NDIM)
        if (view.ndim == 0 or view.size == 0) and not mx.is_np_shape():
            # To MXNet's older semantics no dimensions, or a dimension of 0, mean "not
            # known yet": operators refuse such arrays, and some abort the process
            # (apache/mxnet#18271, apache/mxnet#20041).
            raise UnsupportedConversionError(
                "to='mxnet'",
                f"MXNet takes the shape {view.shape} for an unknown one",
                "mx.util.set_np_shape(True), or mx.npx.set_np(), or a shape such as (1,)",
            )
        if view.size > _MAX_SIZE and not mx.runtime.Features().is_enabled("INT64_TENSOR_SIZE"):
            raise UnsupportedConversionError(
                "to='mxnet'",
                f"the array has {view.size:,} elements and this build of MXNet takes {_MAX_SIZE:,} at most",
                "convert it in parts",
            )
        reasons = []
        if not view.c_contiguous:
            reasons.append(
                Reason("MXNet has no strides: its arrays are row-major", "pass numpy.ascontiguousarray(x)")
            )
        if not view.is_aligned(view.dtype.itemsize):
            reasons.append(Reason("the memory is not aligned to its item size", "copy it once at its source"))
        return reasons

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        # Not mx.nd.from_numpy: it marks the array that it is given as read-only, has no
        # int8, and a deleter that crashes the process if it is called late at exit.
        capsule = dlpack.export(writable_alias(array), dtype)
        if dtype.name == "bool":  # see `source`
            tensor = dlpack.tensor_of(capsule)
            tensor.code, tensor.bits = UINT, 1
        result = self.module().nd.from_dlpack(_with_the_gil(_canonical(capsule)))
        result.writable = bool(array.flags.writeable)
        return result if device.is_host else self.copy_to_device(result, device, stream)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        def ndarray(array: Any) -> Any:
            dtype = from_numpy(array.dtype)
            if (
                dtype is None
                or dtype.name not in _NAMES
                or not array.flags.carray
                or array.ndim == 0
                or not 0 < array.size <= _MAX_SIZE
            ):
                raise BufferError("not memory that MXNet can alias")
            return self.from_host(array, dtype, HOST, None)

        return {"ndarray": ndarray}

    # -- devices: written against the API, and run by nobody yet ----------------

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        if view.dtype.name == "bool":  # see `source`
            raise refuse_dtype("mxnet", view.dtype, "cast it to uint8, in the source framework")
        return self.copy_reasons(view)

    def from_device(self, source: Source, stream: int | None) -> Any:
        self.check_device(source.view.device)
        if not hasattr(type(source.producer), "__dlpack__"):
            raise UnsupportedConversionError(
                "to='mxnet'", f"{source.name} does not speak DLPack", "cupy.asarray(x) does, and aliases it"
            )
        # MXNet has streams of its own, which nobody outside can name. It makes them
        # with cudaStreamCreate (mshadow/stream_gpu-inl.h), so they wait for the legacy
        # default stream: what is ordered before that one is ordered before MXNet.
        capsule = dlpack.request(source.producer, stream=LEGACY_DEFAULT_STREAM, max_version=None)
        return self.module().nd.from_dlpack(_canonical(capsule))

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        mx = self.module()
        where = mx.cpu() if device.is_host else mx.gpu(device.id)
        # Waited for: the caller may write to the memory that is still being copied.
        return _finished(obj.copyto(where))

    def parse_device(self, spec: Any) -> Device:
        if isinstance(spec, self.module().Context):
            return _by_context(spec)
        return super().parse_device(spec)

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        count = 0 if device.is_host else self._count()
        if not device.is_host and device.id >= count:
            raise DeviceError(
                f"to='mxnet', device={str(device)!r}",
                f"MXNet sees {count} CUDA devices",
                "name one of them" if count else "install a build for CUDA, such as mxnet-cu112",
            )

    def devices(self) -> list[str]:
        return ["cpu", *(f"cuda:{i}" for i in range(self._count()))]

    def _count(self) -> int:
        mx = self.module()
        try:
            return int(mx.context.num_gpus())
        except mx.MXNetError:  # a build for CUDA on a machine without a driver
            return 0


class _OnDevice:
    """An NDArray in a device's memory, with the two dunders that MXNet lacks."""

    __slots__ = ("_array", "_device")

    def __init__(self, array: Any, device: Device) -> None:
        self._array, self._device = array, device

    def __dlpack__(self, **_options: Any) -> Any:
        # The host waits for MXNet's streams, whatever the consumer's is: nobody
        # outside can make a stream wait for them.
        return self._array.to_dlpack_for_write()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def _name(obj: Any) -> str:
    return f"mxnet.{'np' if type(obj).__module__ == 'mxnet.numpy' else 'nd'}.{type(obj).__name__}"


def _refusal(obj: Any) -> Reason | None:
    """Return why an array has no block of memory with its values, if so."""
    if obj.handle is None:  # everything else reads through the handle, and so through NULL
        return Reason("it has no handle, and so no memory", "make it by mx.nd.array")
    if obj.stype == "undefined":
        return Reason("it holds nothing yet", "make it by mx.nd.array, or wait for what fills it")
    if obj.stype != "default":
        # to_dlpack hands out the stored values under the shape of the whole.
        return Reason(f"it is sparse ({obj.stype})", "x.tostype('default') makes it dense")
    return None


def _dtype(obj: Any) -> DType:
    import numpy as np

    dtype = np.dtype(obj.dtype)
    # Structured: MXNet's way of saying what NumPy has no name for.
    return by_name("bfloat16") if dtype.names == ("bfloat16",) else by_name(dtype.name)


def _device(obj: Any) -> Device:
    return _by_context(obj.context)


def _by_context(context: Any) -> Device:
    if context.device_typeid == _GPU:
        return Device(CUDA, context.device_id)
    return Device(CUDA_HOST, 0) if context.device_typeid == _PINNED else HOST


def _describe(obj: Any, dtype: DType, device: Device) -> StridedView:
    """Wait until MXNet neither reads nor writes the memory, and say where it is."""
    # For writing, not reading: operators that are queued still read the memory, and
    # whoever gets the alias may write to it.
    capsule = obj.to_dlpack_for_write()
    # The capsule must not live on: its destructor is Python code of MXNet's, and
    # crashes the process if the module goes first. The NDArray keeps the memory.
    tensor = dlpack.tensor_of(capsule)
    shape, ptr = tuple(obj.shape), (tensor.data or 0) + tensor.byte_offset
    strides = contiguous_strides(shape, dtype.itemsize)
    return StridedView(ptr, shape, strides, dtype, device, not obj.writable, obj)


def _unreadable(obj: Any, dtype: DType, device: Device) -> StridedView:
    """Describe an array whose memory has no strides, by what its copy will be."""
    shape = tuple(obj.shape)
    return StridedView(0, shape, contiguous_strides(shape, dtype.itemsize), dtype, device, False, obj)


def _copy(obj: Any, dtype: DType) -> Array:
    array: Array = obj.asnumpy()
    return array if dtype.in_numpy else array.view(dtype.storage)


def _finished(obj: Any) -> Any:
    obj.wait_to_read()
    return obj


def _canonical(capsule: Any) -> Any:
    """Write the strides of a row-major capsule as MXNet wants them.

    It compares every stride with the row-major one (mxnet/tensor_blob.h, TBlob),
    those of dimensions of size 1 too, where others put what they like; and it reads
    no byte offset.
    """
    tensor = dlpack.tensor_of(capsule)
    if tensor.byte_offset:
        tensor.data, tensor.byte_offset = tensor.data + tensor.byte_offset, 0
    if tensor.strides:
        shape = tuple(tensor.shape[: tensor.ndim])
        for i, stride in enumerate(contiguous_strides(shape, 1)):
            tensor.strides[i] = stride
    return capsule


# -- giving memory back ---------------------------------------------------------
# MXNet drops arrays without the GIL and on threads of its own, and NumPy's deleter
# takes the GIL from 1.24 on only (numpy/numpy#22507), which MXNet cannot import. So
# here, and nowhere else, a capsule's deleter is Python code, since ctypes takes the
# GIL for it; and law 7's reason is met otherwise: before the interpreter goes, all
# deleters that are still due are taken out, and the memory goes with the process.

_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # called with the GIL held
_due: dict[int, int] = {}  # NumPy's deleter, by the address of the struct that had it
_closed = False


def _give_back(address: int) -> None:
    deleter = _due.pop(address, None)
    if deleter is not None:
        _Deleter(deleter)(address)


_give_back_with_the_gil = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_give_back)


def _with_the_gil(capsule: Any) -> Any:
    """Give a legacy capsule of NumPy's a deleter that may be called without the GIL."""
    _at_exit()
    managed = _managed(ctypes.addressof(dlpack.tensor_of(capsule)))
    if _closed:
        managed.deleter = None
    else:
        _due[ctypes.addressof(managed)] = managed.deleter
        managed.deleter = ctypes.cast(_give_back_with_the_gil, ctypes.c_void_p).value
    return capsule


def _managed(address: int) -> dlpack.DLManagedTensor:
    return dlpack.DLManagedTensor.from_address(address)  # its first member is the tensor


@functools.cache
def _at_exit() -> None:
    atexit.register(_close)


def _close() -> None:
    global _closed
    _closed = True
    while _due:
        # Out of the table first: then a deleter that is running already leaves the
        # struct, to which this writes, where it is.
        address, _ = _due.popitem()
        _managed(address).deleter = None


FRAMEWORK = MXNet()
