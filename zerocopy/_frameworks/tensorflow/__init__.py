"""TensorFlow eager tensors and variables: immutable, row-major, aligned to 64 bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from zerocopy import registry
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._native import core
from zerocopy.device import HOST, LEGACY_DEFAULT_STREAM, NO_SYNC_STREAM, Device
from zerocopy.dtype import NATIVE_NAMES, DType, by_name, to_numpy
from zerocopy.errors import Fix, Reason
from zerocopy.framework import Framework, refuse_dtype
from zerocopy.protocols import cuda_driver, dlpack
from zerocopy.protocols.array_interface import ALIGNMENT, aligned_copy, writable_alias
from zerocopy.source import Array, Source
from zerocopy.strided_view import MAX_NDIM, StridedView

# TensorFlow has these dtypes without DLPack support: as a target it copies, as a source NumPy
# aliases them.
_BY_COPY = (
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float4_e2m1fn", "int2", "int4", "uint2", "uint4",
)  # fmt: skip
_SUPPORTED = frozenset((*NATIVE_NAMES, "bfloat16", *_BY_COPY))


_TEXT = [
    # A ragged tensor has no __array__.
    Fix("numpy.char.decode(numpy.asarray({x}.__array__(), bytes), 'utf-8')", "gives NumPy's text"),
    Fix("tensorflow.strings.unicode_decode({x}, 'UTF-8')", "gives code points"),
]


def _integers(dtype: Any) -> list[Fix]:
    """Return the fix for a quantized type: the integers that it stores."""
    return [Fix(f"tensorflow.bitcast({{x}}, '{dtype.name[1:]}')", "gives its integers")] * dtype.is_quantized


class TensorFlow(Framework):
    """``tf.Tensor`` in eager mode and ``tf.Variable`` (its current value)."""

    name = "tensorflow"
    aliases = ("tf",)
    types = ("Tensor", "EagerTensor")
    kinds: Mapping[str, Any] = {"RaggedTensor": "ragged", "SparseTensor": "sparse", "IndexedSlices": "sparse"}
    root_modules = ("tensorflow",)
    distribution = "tensorflow"
    max_ndim = MAX_NDIM  # NumPy's, which passes host memory on
    min_version = "2.20"  # the first whose tensors have __dlpack_device__
    device_kinds = ("cpu", "cuda")
    mutable = False
    can_copy_to_device = True
    actions: Mapping[str, Fix] = {
        "cast": Fix("tensorflow.cast({x}, '{type}')"),
        "join-lists": Fix("{x}.merge_dims(0, 1)"),
    }

    def owns(self, cls: type) -> bool:
        tf = self.module()
        return issubclass(cls, (tf.Tensor, tf.Variable, tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices))

    # -- source ---------------------------------------------------------------

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        import numpy as np

        tensor, dtype = self._tensor_of(obj)
        if tensor.__dlpack_device__()[0] != HOST.type:
            raise BufferError("not on the host")
        # The buffer protocol exports NumPy's dtypes read-only; __array__ exports the others
        # writable, although tensors are immutable.
        # NumPy gets a Python scalar, not memory, of a 0-d tensor of a dtype that NumPy lacks.
        # tf.reshape aliases.
        is_scalar = not dtype.in_numpy and tensor.shape.rank == 0
        array = np.asarray(self.module().reshape(tensor, (1,)) if is_scalar else tensor)
        array = (array.reshape(()) if is_scalar else array).view(dtype.storage)
        array.flags.writeable = False
        return array, dtype

    def source(self, obj: Any) -> Source:
        import numpy as np

        tf = self.module()
        tensor, dtype = self._tensor_of(obj)
        device = Device(*map(int, tensor.__dlpack_device__()))
        if device.is_host:
            return super().source(obj)
        # to_dlpack takes no stream: it waits until the memory is ready.
        capsule = tf.experimental.dlpack.to_dlpack(tensor)
        view = replace(dlpack.read(capsule), readonly=True)
        return Source(
            f"tf.{type(obj).__name__}",
            view,
            lambda: np.asarray(tensor).view(dtype.storage),
            "dlpack",
            to_host=lambda stream: np.asarray(tensor).view(dtype.storage),
            producer=dlpack.Handover(capsule, device),
            contiguous=lambda: self.copy_to_device(tensor, device, None),
        )

    def _tensor_of(self, obj: Any) -> tuple[Any, DType]:
        """Return a dense tensor with the values of `obj`, and their dtype; refuse other objects."""
        tf, tensor, name = self.module(), obj, f"tf.{type(obj).__name__}"
        cls: Any = type(obj)
        if not _is_eager(cls):
            obstacles.check_source(name, _refusal(tf, obj))
            tensor = obj.value() if isinstance(obj, tf.Variable) else obj
        if tensor.dtype.name not in _SUPPORTED:
            # to_dlpack of strings, resources and variants aborts the process (a CHECK that memcpy can
            # copy the dtype), so it is never called for them.
            raise obstacles.refuse_source_dtype(
                name,
                tensor.dtype.name,
                fixes=_TEXT if tensor.dtype == tf.string else _integers(tensor.dtype),
            )
        return tensor, by_name(tensor.dtype.name)

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        tf, forms = self.module(), super().fast_exporters(cls)
        if core is None or cls is not type(tf.constant(0)) or tf.config.list_physical_devices("GPU"):
            return forms  # with a GPU, each tensor's device must be checked
        # NumPy's arrays of quantized tensors have dtypes that do not show that the values are codes. A
        # comparison of TensorFlow's dtypes takes 0.8 us more than of numbers.
        codes = frozenset(t.as_datatype_enum for t in (tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32))
        ambiguous = [by_name(name) for name in ("int8", "uint8", "int16", "uint16", "int32")]
        refuse = (
            [(dtype.code, dtype.bits) for dtype in ambiguous],
            lambda tensor: tensor.dtype.as_datatype_enum in codes,
        )
        # An ndarray is faster than a capsule; and strings, for which to_dlpack ends the process, are refused.
        return forms | {"native": core.ArrayExporter(np.asarray, readonly=True, refuse=refuse)}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self._refuse(view)
        reasons = []
        if view.dtype.name in _BY_COPY:
            why = f"TensorFlow does not import {view.dtype} through DLPack"
            reasons.append(Reason(why, code="missing-dtype"))
        if not view.is_aligned(ALIGNMENT):
            # TensorFlow imports it, and aborts later in a kernel that assumes alignment (Eigen's aligned
            # maps, EIGEN_MAX_ALIGN_BYTES).
            reasons.append(obstacles.misaligned("TensorFlow", view, ALIGNMENT))
        if not view.c_contiguous:
            reasons.append(obstacles.layout("TensorFlow", "row-major memory"))
        return reasons

    def device_copy_reasons(self, view: StridedView) -> list[Reason]:
        self._refuse(view)
        if view.dtype.name in _BY_COPY:
            raise refuse_dtype("tensorflow", view.dtype, "pass device='cpu'")
        reasons = [] if view.c_contiguous else [obstacles.layout("TensorFlow", "row-major memory")]
        if not view.is_aligned(ALIGNMENT):
            # from_dlpack ends the process: CHECK(IsAligned()), tensorflow/core/framework/tensor.cc.
            reasons.append(obstacles.misaligned("TensorFlow", view, ALIGNMENT))
        return reasons

    def _refuse(self, view: StridedView) -> None:
        self.check_view(view, _SUPPORTED)  # TensorFlow itself has up to 254 dimensions
        if view.dtype.name in _BY_COPY:
            tf = self.module()
            known = {*dir(tf.dtypes), *dir(getattr(tf.dtypes, "experimental", None))}
            if view.dtype.name not in known:
                raise refuse_dtype("tensorflow", view.dtype)

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        tf = self.module()
        if dtype.name not in _BY_COPY:
            return tf.experimental.dlpack.from_dlpack(dlpack.export(writable_alias(array), dtype))
        extended = to_numpy(dtype)
        assert extended is not None  # TensorFlow depends on ml_dtypes
        with tf.device("/CPU:0"):
            return tf.constant(array.view(extended))

    def from_device(self, source: Source, stream: int | None) -> Any:
        tf = self.module()
        where = source.view.device
        self.check_device(where)
        producer = registry.dlpack_producer(source)
        ready = LEGACY_DEFAULT_STREAM if stream is None else stream
        with cuda_driver.on_device(where.id):  # some producers export from the current device only
            capsule = dlpack.as_cuda(dlpack.request_on_device(producer, ready))
            # The host waits: TensorFlow does not name its streams, and creates them as non-blocking
            # (CU_STREAM_NON_BLOCKING in XLA's stream executor), so that they wait for no default stream.
            if ready != NO_SYNC_STREAM:
                cuda_driver.finish_stream(ready, where.id)
        return tf.experimental.dlpack.from_dlpack(capsule)

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        tf = self.module()
        source = self.source(obj)
        if source.view.device.is_host and device.is_host:
            # NumPy copies, because tf.identity aliases and DeepCopy lacks the small dtypes.
            return self.of_ndarray(aligned_copy(source.host()), source.view.dtype)
        with tf.device("/CPU:0" if device.is_host else f"/GPU:{device.id}"):
            tensor = obj.value() if isinstance(obj, tf.Variable) else obj
            same = source.view.device.kind == device.kind and source.view.device.id == device.id
            return tf.raw_ops.DeepCopy(x=tensor) if same else tf.identity(tensor)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        forms = super().fast_importers()
        if core is None:
            return forms
        types = [by_name(name) for name in _SUPPORTED if name not in _BY_COPY]
        native = core.CapsuleImporter(
            self.module().experimental.dlpack.from_dlpack,
            dtypes=[(dtype.code, dtype.bits) for dtype in types],
            alignment=ALIGNMENT,
            layout="row-major",
            arguments=(),
        )
        return forms | {"native": native}

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
        count = len(self.module().config.list_logical_devices("GPU"))
        remedy = "install tensorflow[and-cuda], and check the driver with nvidia-smi"
        obstacles.check_index("tensorflow", device, count, "TensorFlow sees no GPU", remedy)

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, self.module().errors.ResourceExhaustedError)

    def devices(self) -> list[str]:
        tf = self.module()
        if not tf.test.is_built_with_cuda():
            return ["cpu"]
        return ["cpu", *obstacles.cuda_devices(lambda: len(tf.config.list_physical_devices("GPU")))]


@lru_cache(maxsize=64)
def _is_eager(cls: Any) -> bool:
    """Whether a type is TensorFlow's own type of dense tensors with values; isinstance() takes 2 us."""
    own = cls.__name__ == "EagerTensor" and cls.__module__.startswith("tensorflow.")
    return own and hasattr(cls, "numpy")


def _refusal(tf: Any, obj: Any) -> Reason | None:
    """Return why an object is not a dense tensor with values; None if it is one."""
    if isinstance(obj, tf.RaggedTensor):
        return Reason(
            "it is ragged",
            code="not-an-array",
            fixes=[Fix("{x}.to_tensor()", "pads its rows"), Fix("[{x}.flat_values, *{x}.nested_row_splits]")],
        )
    if isinstance(obj, (tf.SparseTensor, tf.IndexedSlices)):
        slices = isinstance(obj, tf.IndexedSlices)
        dense = "tensorflow.convert_to_tensor({x})" if slices else "tensorflow.sparse.to_dense({x})"
        fixes = [Fix(dense, "makes it dense"), Fix("[{x}.indices, {x}.values]", "converts its parts")]
        text = " text" if obj.dtype == tf.string else ""
        return Reason(f"it is sparse{text}", code="sparse", fixes=fixes)
    if not isinstance(obj, tf.Variable) and not hasattr(obj, "numpy"):
        return Reason(
            "it is symbolic and has no values yet",
            "convert it outside tf.function, or use zc.bridge(function, to='tensorflow')",
            code="traced",
        )
    return None


FRAMEWORK = TensorFlow()
