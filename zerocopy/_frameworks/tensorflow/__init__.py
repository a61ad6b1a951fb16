"""TensorFlow eager tensors and variables: immutable, row-major, aligned to 64 bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zerocopy.device import HOST, Device
from zerocopy.dtype import NATIVE_NAMES, DType, from_numpy, to_numpy
from zerocopy.errors import DeviceError, Reason, UnsupportedConversionError
from zerocopy.framework import Array, Framework, Source, refuse_dtype, refuse_ndim
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import ALIGNMENT, address, aligned_copy, misalignment, writable_alias
from zerocopy.strided_view import StridedView

_MAX_NDIM = 64  # NumPy's, which carries host memory; TensorFlow's own is 254
# TensorFlow has these and exports none of them through DLPack: in by a copy, out
# by an alias.
_BY_COPY = (
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
    "int2",
    "int4",
    "uint2",
    "uint4",
)


class TensorFlow(Framework):
    """``tf.Tensor`` in eager mode and ``tf.Variable`` (its value at this moment)."""

    name = "tensorflow"
    pool_hook = "zerocopy._frameworks.tensorflow.pool:TensorFlowHook"
    root_modules = ("tensorflow",)
    distribution = "tensorflow"
    device_kinds = ("cpu", "cuda")
    mutable = False
    can_copy_to_device = True

    def owns(self, cls: type) -> bool:
        tf = self.module()
        return issubclass(cls, (tf.Tensor, tf.Variable, tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        import numpy as np

        tf = self.module()
        name = f"tf.{type(obj).__name__}"
        refusal = _refusal(tf, obj)
        if refusal is not None:
            raise UnsupportedConversionError(f"convert({name})", refusal.why, refusal.remedy)
        tensor = obj.value() if isinstance(obj, tf.Variable) else obj
        dtype = from_numpy(np.dtype(tensor.dtype.as_numpy_dtype))
        if dtype is None or tensor.dtype.name not in {*NATIVE_NAMES, "bfloat16", *_BY_COPY}:
            # to_dlpack of strings, resources and variants aborts the process
            # (a CHECK that the type can be copied by memcpy), so nothing is tried.
            raise UnsupportedConversionError(
                f"convert({name})",
                f"{tensor.dtype.name} tensors have no counterpart elsewhere",
                "decode or encode them as numbers first: tf.io.decode_raw, tf.strings.to_number",
            )
        device = Device(*map(int, tensor.__dlpack_device__()))
        if device.is_host:
            # Native types come read-only through the buffer protocol; the others
            # through __array__, which forgets that tensors are immutable.
            array = np.asarray(tensor)
            array = array.view(dtype.storage)
            array.flags.writeable = False
            view = StridedView(address(array), array.shape, array.strides, dtype, HOST, True, array)
            return Source(name, view, lambda: array, "buffer")
        # TensorFlow takes no stream: to_dlpack waits until the memory is ready.
        capsule = tf.experimental.dlpack.to_dlpack(tensor)
        view = replace(dlpack.read(capsule), readonly=True)
        return Source(
            name,
            view,
            lambda: np.asarray(tensor).view(dtype.storage),
            "dlpack",
            to_host=lambda stream: np.asarray(tensor).view(dtype.storage),
            producer=dlpack.Handover(capsule, device),
            contiguous=lambda: self.copy_to_device(tensor, device, None),
        )

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        tf = self.module()
        if cls is not type(tf.constant(0)) or tf.config.list_physical_devices("GPU"):
            return {}  # with a GPU in the process each tensor's device is looked at
        ndarray, to_capsule, is_unsafe = _as_ndarray(tf), _to_capsule(tf), _is_unsafe(tf)

        def capsule(tensor: Any) -> Any:
            if is_unsafe(tensor):
                raise BufferError("to_dlpack aborts the process")
            return to_capsule(tensor)

        return {"ndarray": ndarray, "readonly": ndarray, "capsule": capsule, "aligned": capsule}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self._refuse(view)
        reasons = []
        if view.dtype.name in _BY_COPY:
            reasons.append(Reason(f"TensorFlow imports no {view.dtype} through DLPack", ""))
        if not view.is_aligned(ALIGNMENT):
            # Accepted at import, aborts later in a kernel that trusts it
            # (Eigen's aligned maps, EIGEN_MAX_ALIGN_BYTES).
            reasons.append(
                Reason(
                    f"TensorFlow needs memory at multiples of 64 bytes, and this is at {view.ptr % 64}",
                    "allocate it so where the data are made (torch, JAX and Arrow do), or let it be copied",
                )
            )
        if not view.c_contiguous:
            reasons.append(
                Reason(
                    "TensorFlow takes row-major memory only",
                    "make it contiguous where the data are made: numpy.ascontiguousarray(x)",
                )
            )
        return reasons

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        self._refuse(view)
        if view.dtype.name in _BY_COPY:
            raise refuse_dtype("tensorflow", view.dtype, "bring it to the host first: device='cpu'")
        if not view.c_contiguous:
            return [Reason("TensorFlow takes row-major memory only", "make it contiguous first")]
        return []

    def _refuse(self, view: StridedView) -> None:
        if view.ndim > _MAX_NDIM:
            raise refuse_ndim("tensorflow", view, _MAX_NDIM)
        if view.dtype.name not in NATIVE_NAMES and view.dtype.name not in ("bfloat16", *_BY_COPY):
            raise refuse_dtype("tensorflow", view.dtype)
        if view.dtype.name in _BY_COPY:
            tf = self.module()
            known = {*dir(tf.dtypes), *dir(getattr(tf.dtypes, "experimental", None))}
            if view.dtype.name not in known:
                raise refuse_dtype("tensorflow", view.dtype)

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        tf = self.module()
        if dtype.name in _BY_COPY:
            extended = to_numpy(dtype)
            assert extended is not None  # TensorFlow depends on ml_dtypes
            with tf.device("/CPU:0"):
                tensor = tf.constant(array.view(extended))
        else:
            capsule = dlpack.export(writable_alias(array), dtype)
            tensor = tf.experimental.dlpack.from_dlpack(capsule)
        return tensor if device.is_host else self.copy_to_device(tensor, device, stream)

    def from_device(self, source: Source, stream: int | None) -> Any:
        tf = self.module()
        self.check_device(source.view.device)
        # TensorFlow has streams of its own that nobody can name: the legacy default
        # stream orders the producer's work before them.
        capsule = dlpack.request(source.producer, stream=stream or 1, max_version=None)
        return tf.experimental.dlpack.from_dlpack(capsule)

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        tf = self.module()
        source = self.source(obj)
        if source.view.device.is_host and device.is_host:
            # tf.identity aliases, and DeepCopy lacks the small types: NumPy copies.
            return self.from_host(aligned_copy(source.host()), source.view.dtype, device, stream)
        with tf.device("/CPU:0" if device.is_host else f"/GPU:{device.id}"):
            tensor = obj.value() if isinstance(obj, tf.Variable) else obj
            same = source.view.device.kind == device.kind and source.view.device.id == device.id
            return tf.raw_ops.DeepCopy(x=tensor) if same else tf.identity(tensor)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        return _imports(self.module())

    # -- devices --------------------------------------------------------------

    def parse_device(self, spec: Any) -> Device:
        if isinstance(spec, str) and "/" in spec:  # "/GPU:0", "/job:localhost/.../device:CPU:0"
            parts = spec.lower().replace("device:", "").rpartition("/")[2]
            return super().parse_device(parts if not parts.startswith("cpu") else "cpu")
        return super().parse_device(spec)

    def check_device(self, device: Device) -> None:
        super().check_device(device)
        if device.is_host:
            return
        found = self.module().config.list_logical_devices("GPU")
        if device.id >= len(found):
            raise DeviceError(
                f"to='tensorflow', device={str(device)!r}",
                f"TensorFlow sees {len(found)} GPUs",
                "install tensorflow[and-cuda], and check the driver with nvidia-smi",
            )

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, self.module().errors.ResourceExhaustedError)

    def devices(self) -> list[str]:
        gpus = self.module().config.list_physical_devices("GPU")
        return ["cpu", *(f"cuda:{i}" for i in range(len(gpus)))]


def _refusal(tf: Any, obj: Any) -> Reason | None:
    """Return why an object is no dense tensor with values, if so."""
    if isinstance(obj, tf.RaggedTensor):
        return Reason("it is ragged", "x.to_tensor(), or convert x.values and x.row_splits")
    if isinstance(obj, (tf.SparseTensor, tf.IndexedSlices)):
        return Reason("it is sparse", "tf.sparse.to_dense(x), or convert its indices and values")
    if not isinstance(obj, tf.Variable) and not hasattr(obj, "numpy"):
        return Reason(
            "it is symbolic and has no values yet",
            "convert outside of tf.function, or call back with tf.py_function",
        )
    return None


# The public functions wrap one C++ call each: from_dlpack looks the context up twice
# and initialises it (200 ns of 700), Tensor.dtype makes an enum an object (100 ns of
# 400). Where these versions have the bare calls, they are used (law 6; compared in
# test_routes).
_KNOWN = ((2, 16), (2, 24))


def _private(tf: Any) -> Any:
    version = tuple(int(n) for n in tf.__version__.split(".")[:2])
    if not _KNOWN[0] <= version < _KNOWN[1]:
        return None
    try:
        from tensorflow.python import pywrap_tfe
    except ImportError:
        return None
    return pywrap_tfe


def _imports(tf: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the fast importers; the bare call is written out in each, since a call of ours takes 50 ns."""
    bare = getattr(_private(tf), "TFE_FromDlpackCapsule", None)
    public = tf.experimental.dlpack.from_dlpack
    if bare is None:
        return {"aligned": public}
    from tensorflow.python.eager import context

    context.context().ensure_initialized()

    # The context is asked for each time: one that was reset leaves a dangling handle.
    def aligned(capsule: Any) -> Any:
        return bare(capsule, context._context._handle)

    def ndarray(array: Any) -> Any:
        if misalignment(array):
            raise BufferError("misaligned: it would abort later")
        return bare(array.__dlpack__(), context._context._handle)  # refuses gaps, read-only memory

    def readonly(array: Any) -> Any:
        if misalignment(array):
            raise BufferError("misaligned: it would abort later")
        return bare(writable_alias(array).__dlpack__(), context._context._handle)

    return {"aligned": aligned, "readonly": readonly, "ndarray": ndarray}


def _to_capsule(tf: Any) -> Callable[[Any], Any]:
    """Return ``tf.Tensor -> legacy capsule``, with no check of the data type."""
    bare = getattr(_private(tf), "TFE_ToDlpackCapsule", None)
    return bare or tf.experimental.dlpack.to_dlpack  # type: ignore[no-any-return]


def _as_ndarray(tf: Any) -> Callable[[Any], Any]:
    """Return ``tf.Tensor -> ndarray``, a read-only alias of a number tensor's memory."""
    import numpy as np

    if _private(tf) is not None and hasattr(tf.constant(0), "_numpy_internal"):

        def private(tensor: Any) -> Any:
            # What __array__ and the buffer protocol wrap; they take 180 ns more.
            array = tensor._numpy_internal()
            if array.base is None:
                raise BufferError("a scalar, or strings made into objects: no alias")
            array.setflags(False)  # it forgets that tensors are immutable
            return array

        return private

    def public(tensor: Any) -> Any:
        array = np.asarray(tensor)
        number = array.dtype.num
        # NumPy's own numbers are 0 to 16, and 23 is float16. Strings come as objects
        # (17); bfloat16 and the like (256 and more) come without the mark that tensors
        # are immutable.
        if number > 16 and number != 23:
            raise BufferError("not a native number")
        return array

    return public


def _is_unsafe(tf: Any) -> Callable[[Any], bool]:
    """Return a test for tensors that abort the process in to_dlpack."""
    unsafe = (tf.string, tf.resource, tf.variant)
    if _private(tf) is not None and hasattr(tf.constant(0), "_datatype_enum"):
        numbers = frozenset(dtype.as_datatype_enum for dtype in unsafe)

        def by_number(tensor: Any) -> bool:
            return tensor._datatype_enum() in numbers

        return by_number
    return lambda tensor: tensor.dtype in unsafe


FRAMEWORK = TensorFlow()
