"""ONNX Runtime's ``OrtValue``: row-major tensors of numbers, the inputs and outputs of sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import HOST, Device
from zerocopy.dtype import REAL_NAMES, DType, by_name
from zerocopy.errors import Fix, Reason
from zerocopy.framework import Framework, version_numbers
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import tidy_strides, writable_alias
from zerocopy.source import Array, Source
from zerocopy.strided_view import MAX_NDIM, StridedView

# GetOrtElementTypeFromDlpack (onnxruntime/core/dlpack/dlpack_converter.cc); no complex numbers.
_NAMES = (*REAL_NAMES, "bfloat16")
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
#: The first version whose DLPack has float8 and booleans. Older ones refuse capsules of booleans, and export
#: booleans as uint8 (GetOrtValueDataType and GetDlpackDataType in that file).
_HAS_ALL_TYPES = (1, 32)
#: ONNX's names of the types that NumPy has, and NumPy's.
_TYPES = {f"tensor({name})": by_name(name).storage.str for name in _NAMES if by_name(name).in_numpy}
_TYPES |= {"tensor(float)": "<f4", "tensor(double)": "<f8"}


class _Memory:
    """The memory of an OrtValue, which is kept alive with the array that the value was made of.

    Capsules hold the C value only: memory of ``ortvalue_from_numpy`` is freed with the Python object.
    """

    __slots__ = ("__array_interface__", "value")

    def __init__(self, value: Any) -> None:
        shape, kind = tuple(value.shape()), _TYPES[value.data_type()]
        data = (value.data_ptr(), False)
        self.__array_interface__ = {"shape": shape, "typestr": kind, "data": data, "version": 3}
        self.value = value


class _Booleans(dlpack.Handover):
    """A producer of one capsule of bytes, with the dtype by which ``from_dlpack`` knows booleans."""

    __slots__ = ()
    dtype = "bool"


class OnnxRuntime(Framework):
    """``onnxruntime.OrtValue`` on the host; sessions take it through ``run_with_ort_values``."""

    name = "onnxruntime"
    aliases = ("ort", "onnx")
    types = ("OrtValue",)
    root_modules = ("onnxruntime",)
    distribution = "onnxruntime"
    min_version = "1.26"  # the first whose OrtValue has from_dlpack
    max_ndim = MAX_NDIM  # NumPy's, which passes the memory on

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().OrtValue)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        name = f"onnxruntime.{type(obj).__name__}"
        obstacles.check_source(name, _refusal(obj))
        read = dlpack.read(obj.__dlpack__(), obj, HOST)
        dtype = by_name("bool") if obj.data_type() == "tensor(bool)" else read.dtype
        view = StridedView(read.ptr, read.shape, read.strides, dtype, HOST, False, obj)
        return Source(name, view, view.numpy, "dlpack")

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        if cls is not self.module().OrtValue:
            return {}
        as_array = np.asarray

        def ndarray(value: Any) -> Any:
            if value.device_name() != "cpu":
                raise BufferError("not on the host")
            return as_array(_Memory(value))

        return {"ndarray": ndarray}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view, self._names(), obstacles.pairs)
        reasons = []
        if not view.c_contiguous:
            reasons.append(obstacles.layout("ONNX Runtime", "row-major memory"))
        if not view.is_aligned(view.dtype.itemsize):
            reasons.append(obstacles.MISALIGNED)  # its kernels assume alignment
        return reasons

    def _has_all_types(self) -> bool:
        return version_numbers(self.module().__version__) >= _HAS_ALL_TYPES

    def _names(self) -> tuple[str, ...]:
        return (*_NAMES, *_FLOAT8) if self._has_all_types() else _NAMES

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        from_dlpack, array = self.module().OrtValue.from_dlpack, writable_alias(tidy_strides(array))
        if dtype.name == "bool" and not self._has_all_types():
            return from_dlpack(_Booleans(dlpack.export(array.view("u1"), by_name("uint8"))))
        return from_dlpack(dlpack.export(array, dtype))

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        from_dlpack = self.module().OrtValue.from_dlpack
        names = _NAMES if self._has_all_types() else [name for name in _NAMES if name != "bool"]
        types = frozenset(np.dtype(name).num for name in names if by_name(name).in_numpy)

        def ndarray(array: Any) -> Any:
            flags = array.flags
            if not (flags.behaved and flags.c_contiguous and array.dtype.num in types):
                raise BufferError(
                    "read-only, misaligned, not row-major, or of a dtype that ONNX Runtime lacks"
                )
            return from_dlpack(array)

        return {"ndarray": ndarray}


def _refusal(obj: Any) -> Reason | None:
    """Return why an OrtValue is not a dense tensor in host memory; None if it is one."""
    if not obj.has_value():
        return Reason("it has no value", "run the session first", code="no-memory")
    if obj.is_sparse_tensor():
        fix = Fix("{x}.as_sparse_tensor().values()", "converts its values")
        return Reason("it is sparse", code="sparse", fixes=[fix])
    if not obj.is_tensor():
        return Reason("it is a sequence or a map", "convert each of its tensors", code="not-an-array")
    if obj.data_type() == "tensor(string)":
        fix = Fix("{x}.numpy()", "gives Python strings", alone=True)
        return Reason("it is a tensor of strings", code="missing-dtype", fixes=[fix])
    if obj.device_name() != "cpu":
        fix = Fix("{x}.numpy()", "copies it to the host")
        return Reason(f"it is on {obj.device_name()}", code="other-device", fixes=[fix])
    return None


FRAMEWORK = OnnxRuntime()
