"""Apache MXNet 1.9: row-major memory that its engine reads and writes asynchronously.

MXNet 1.9.1 is the last release, and needs NumPy 1.23 or older.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import sys
from collections.abc import Mapping
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import CUDA, CUDA_HOST, HOST, LEGACY_DEFAULT_STREAM, Device
from zerocopy.dtype import UINT, DType, by_name
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.framework import Framework, refuse_dtype
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import writable_alias
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides


def canonical(capsule: Any) -> Any:
    """Write the strides of a row-major capsule in the form that MXNet accepts.

    MXNet requires the row-major stride in every dimension (mxnet/tensor_blob.h, TBlob), even of
    size 1, where it is arbitrary in other frameworks; and it ignores the byte offset.
    """
    tensor = dlpack.tensor_of(capsule)
    if tensor.byte_offset:
        tensor.data, tensor.byte_offset = tensor.data + tensor.byte_offset, 0
    if tensor.strides:
        shape = tuple(tensor.shape[: tensor.ndim])
        for i, stride in enumerate(contiguous_strides(shape, 1)):
            tensor.strides[i] = stride
    return capsule


# MXNet drops arrays on its own threads without the GIL. NumPy's deleter takes the GIL since 1.24
# only (numpy/numpy#22507), which MXNet cannot import. This is therefore the only place where a
# capsule's deleter is Python code; ctypes takes the GIL for it. Law 7 is kept by removing all
# pending deleters before the interpreter exits, and by waiting for the threads that already run
# one; the operating system then frees the memory.

_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # called with the GIL held
_pending: dict[int, int] = {}  # NumPy's deleter by the address of its DLManagedTensor
_closed = False


def _release(address: int) -> None:
    deleter = _pending.pop(address, None)
    if deleter is not None:
        _Deleter(deleter)(address)


_release_with_gil = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_release)


def with_gil(capsule: Any) -> Any:
    """Replace the deleter of NumPy's legacy capsule by one that can be called without the GIL."""
    _at_exit()
    managed = _managed(ctypes.addressof(dlpack.tensor_of(capsule)))
    if _closed:
        managed.deleter = None
    else:
        _pending[ctypes.addressof(managed)] = managed.deleter
        managed.deleter = ctypes.cast(_release_with_gil, ctypes.c_void_p).value
    return capsule


def _managed(address: int) -> dlpack.DLManagedTensor:
    return dlpack.DLManagedTensor.from_address(address)  # its first member is the tensor


@functools.cache
def _at_exit() -> None:
    atexit.register(_close)


def _close() -> None:
    global _closed
    _closed = True
    while _pending:
        # Remove it from the table first, so that a deleter that already runs does not free the
        # struct to which the next line writes.
        address, _ = _pending.popitem()
        _managed(address).deleter = None
    # A thread of MXNet that has already read a deleter may still wait for the GIL. After this
    # function, CPython would end that thread, and its C++ frames would end the process
    # (python/cpython#87135). The deleter is part of an operation of MXNet's engine, for which
    # this waits without the GIL. The return value is the error of an operation of the caller.
    sys.modules["mxnet"].base._LIB.MXNDArrayWaitAll()


# The dtypes that MXNet exports and imports (mxnet/tensor_blob.h, DTypeTransform).
_NAMES = ("bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64", "bfloat16")
_MAX_SIZE = 2**31 - 2  # without INT64_TENSOR_SIZE, which the wheels lack
# In a separate environment, because other frameworks need NumPy 2.
_DISTRIBUTION = "mxnet==1.9.1 'numpy<1.24' # own venv"
_GPU, _PINNED = 2, 3  # Context.devtype2str


class MXNet(Framework):
    """``mxnet.nd.NDArray``, and its subclass ``mxnet.np.ndarray``.

    ``to="mxnet"`` returns an ``mxnet.nd.NDArray``; ``x.as_np_ndarray()`` is an ``mxnet.np.ndarray``
    of the same memory. An object of either class is returned unchanged; if a copy is needed, the copy is
    an ``NDArray``.

    Notes
    -----
    MXNet runs its operators asynchronously, on its own threads. A conversion waits for operators
    that are already queued. The caller must wait for later ones: ``x.wait_to_read()`` before reading
    an alias of memory that MXNet writes, ``mx.nd.waitall()`` before writing to an alias of memory
    that MXNet reads.

    MXNet may rewrite memory that it only reads: with oneDNN (the default on CPUs), an inference by
    ``Convolution`` reorders its weights in place into oneDNN's layout, and an operator with ``out=x``
    may leave `x` in such a layout. An alias then has the values in another order. For such arrays,
    pass ``copy=True`` or set ``MXNET_MKLDNN_ENABLED=0``.
    """

    name = "mxnet"
    aliases = ("mx",)
    types = ("nd.NDArray", "nd", "NDArray")
    kinds: Mapping[str, Any] = {"BaseSparseNDArray": "sparse"}
    root_modules = ("mxnet",)
    distribution = _DISTRIBUTION
    max_ndim = 32  # NumPy's before 2.0, which passes the memory on; MXNet itself has no limit
    install_hint = f"pip install {_DISTRIBUTION}"
    device_kinds = ("cpu", "cuda")
    # NDArray.writable = False prevents x += y, but neither x[:] = y nor out=x.
    marks_readonly = False
    # It has `copy_to_device`, but cannot relay device memory: PyPI's wheel is built without CUDA.
    can_copy_to_device = False

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().nd.NDArray)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        mx = self.module()
        name = _name(obj)
        obstacles.check_source(name, _refusal(obj))
        dtype, device = _dtype(obj), _device(obj)
        if not device.is_host and dtype.name == "bool":
            # MXNet exports them as unsigned integers of 1 bit (mxnet/tensor_blob.h, DTypeTransform), which
            # importers refuse or read as packed bits.
            why = "MXNet exports booleans on a device with a wrong dtype"
            raise obstacles.refuse_source(name, Reason(why, "x.astype('uint8')", code="missing-dtype"))
        reasons = []
        try:
            view = _describe(obj, dtype, device)
        except mx.MXNetError as error:
            if "TBlob for MKLDNN" not in str(error):
                # Operators run asynchronously, so an earlier one's error is raised here.
                why = f"an operator that MXNet queued for it failed: {str(error).strip().splitlines()[-1]}"
                raise obstacles.refuse_source(
                    name, Reason(why, "see the cause above", code="producer-raised")
                ) from error
            # Results of Convolution and others, and weights after an inference.
            view = _unreadable(obj, dtype, device)
            reasons.append(
                Reason(
                    "MXNet stores it in oneDNN's layout, which has no strides",
                    "x.copy() has row-major memory; MXNET_MKLDNN_ENABLED=0 keeps all arrays row-major",
                    code="not-strided",
                )
            )

        def host() -> Array:
            # Describe it again, which waits again: MXNet may have queued work or moved the array.
            return _copy(obj, dtype) if reasons else _describe(obj, dtype, device).numpy()

        return Source(
            name,
            view,
            host,
            "dlpack",
            reasons,
            to_host=lambda stream: _copy(obj, dtype),
            # It blocks the host until MXNet's work is done: MXNet does not expose its streams.
            producer=dlpack.Producer(lambda **options: obj.to_dlpack_for_write(), device),
            contiguous=lambda: _finished(obj.copy()),
        )

    # No `as_ndarray`, hence no fast exporters: MXNet reports an operator's failure only once. The fast path
    # would discard that error, and the slow path would then export memory that was never written.

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        mx = self.module()
        self.check_view(view, _NAMES)
        if (view.ndim == 0 or view.size == 0) and not mx.is_np_shape():
            # In MXNet's older semantics, () and sizes of 0 mean "unknown": operators refuse
            # such arrays, and some abort the process (apache/mxnet#18271, apache/mxnet#20041).
            raise UnsupportedConversionError(
                "to='mxnet'",
                f"MXNet reads the shape {view.shape} as unknown",
                "call mx.util.set_np_shape(True) or mx.npx.set_np(), or use a shape such as (1,)",
                code="option-value",
            )
        if view.size > _MAX_SIZE and not mx.runtime.Features().is_enabled("INT64_TENSOR_SIZE"):
            raise UnsupportedConversionError(
                "to='mxnet'",
                f"the array has {view.size:,} elements and this build of MXNet takes {_MAX_SIZE:,} at most",
                "convert it in parts",
                code="too-many-elements",
            )
        reasons = []
        if not view.c_contiguous:
            reasons.append(obstacles.layout("MXNet", "row-major memory"))
        if not view.is_aligned(view.dtype.itemsize):
            reasons.append(obstacles.MISALIGNED)
        return reasons

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        # Not mx.nd.from_numpy: it marks its argument read-only, lacks int8, and its deleter crashes the
        # process at interpreter exit.
        capsule = dlpack.export(writable_alias(array), dtype)
        if dtype.name == "bool":  # see `source`
            tensor = dlpack.tensor_of(capsule)
            tensor.code, tensor.bits = UINT, 1
        result = self.module().nd.from_dlpack(with_gil(canonical(capsule)))
        result.writable = bool(array.flags.writeable)
        return result

    # -- devices: written against the API, not yet run on hardware ----------------

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        if view.dtype.name == "bool":  # see `source`
            raise refuse_dtype("mxnet", view.dtype, "cast it to uint8, in the source framework")
        return self.copy_reasons(view)

    def from_device(self, source: Source, stream: int | None) -> Any:
        self.check_device(source.view.device)
        if not hasattr(type(source.producer), "__dlpack__"):
            raise UnsupportedConversionError(
                "to='mxnet'",
                f"{source.name} does not export DLPack",
                "pass cupy.asarray(x), which aliases it and exports DLPack",
                code="no-protocol",
            )
        # MXNet does not expose its streams. It creates them with cudaStreamCreate
        # (mshadow/stream_gpu-inl.h), so they wait for the legacy default stream.
        capsule = dlpack.request(source.producer, stream=LEGACY_DEFAULT_STREAM, max_version=None)
        return self.module().nd.from_dlpack(canonical(capsule))

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        mx = self.module()
        where = mx.cpu() if device.is_host else mx.gpu(device.id)
        # Wait: the caller may write to the source after this returns.
        return _finished(obj.copyto(where))

    def parse_device(self, spec: Any) -> Device:
        if isinstance(spec, self.module().Context):
            return _device_of_context(spec)
        return super().parse_device(spec)

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        if not device.is_host:
            remedy = "install a build for CUDA, such as mxnet-cu112"
            obstacles.check_index("mxnet", device, self._count(), "MXNet sees no CUDA device", remedy)

    def devices(self) -> list[str]:
        return ["cpu", *(f"cuda:{i}" for i in range(self._count()))]

    def _count(self) -> int:
        mx = self.module()
        try:
            return int(mx.context.num_gpus())
        except mx.MXNetError:  # a build for CUDA on a machine without a driver
            return 0


def _name(obj: Any) -> str:
    return f"mxnet.{'np' if type(obj).__module__ == 'mxnet.numpy' else 'nd'}.{type(obj).__name__}"


def _refusal(obj: Any) -> Reason | None:
    """Return why no block of memory holds an array's values; None if one does."""
    if obj.handle is None:  # all other attributes would read through a NULL handle
        return Reason("it has no handle, so it has no memory", "create it with mx.nd.array", code="no-memory")
    if obj.stype == "undefined":
        return Reason("it has no values yet", "create it with mx.nd.array, or fill it", code="no-memory")
    if obj.stype != "default":
        # to_dlpack exports the stored values with the shape of the whole array.
        return Reason(f"it is sparse ({obj.stype})", "x.tostype('default') makes it dense", code="sparse")
    return None


def _dtype(obj: Any) -> DType:
    import numpy as np

    dtype = np.dtype(obj.dtype)
    # MXNet represents a dtype that NumPy lacks as a structured one.
    return by_name("bfloat16") if dtype.names == ("bfloat16",) else by_name(dtype.name)


def _device(obj: Any) -> Device:
    return _device_of_context(obj.context)


def _device_of_context(context: Any) -> Device:
    if context.device_typeid == _GPU:
        return Device(CUDA, context.device_id)
    return Device(CUDA_HOST, 0) if context.device_typeid == _PINNED else HOST


def _describe(obj: Any, dtype: DType, device: Device) -> StridedView:
    """Wait until MXNet neither reads nor writes the memory, and describe it."""
    # For writing, not reading: queued operators may still read the memory, and the alias's owner may
    # write to it.
    capsule = obj.to_dlpack_for_write()
    # Drop the capsule here: its destructor is Python code of MXNet, which crashes the process if it
    # runs after the module is unloaded. The NDArray keeps the memory alive.
    tensor = dlpack.tensor_of(capsule)
    shape, ptr = tuple(obj.shape), (tensor.data or 0) + tensor.byte_offset
    strides = contiguous_strides(shape, dtype.itemsize)
    return StridedView(ptr, shape, strides, dtype, device, not obj.writable, obj)


def _unreadable(obj: Any, dtype: DType, device: Device) -> StridedView:
    """Describe the row-major copy of an array whose memory has no strides."""
    shape = tuple(obj.shape)
    return StridedView(0, shape, contiguous_strides(shape, dtype.itemsize), dtype, device, False, obj)


def _copy(obj: Any, dtype: DType) -> Array:
    array: Array = obj.asnumpy()
    return array if dtype.in_numpy else array.view(dtype.storage)


def _finished(obj: Any) -> Any:
    obj.wait_to_read()
    return obj


FRAMEWORK = MXNet()
