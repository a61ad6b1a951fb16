"""ONNX Runtime's ``OrtValue``: row-major tensors of numbers, the inputs and outputs of sessions."""

from __future__ import annotations

from functools import cache
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.dtype import REAL_NAMES, DType, by_name
from zerocopy.errors import Fix, Reason
from zerocopy.framework import Framework, version_numbers
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import tidy_strides, writable_alias
from zerocopy.source import Array
from zerocopy.strided_view import MAX_NDIM, StridedView

# GetOrtElementTypeFromDlpack (onnxruntime/core/dlpack/dlpack_converter.cc); no complex numbers.
_NAMES = (*REAL_NAMES, "bfloat16")
_ALL_NAMES = (
    *_NAMES, "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"
)  # fmt: skip
#: The first version whose DLPack has float8 and booleans. Older ones refuse capsules of booleans, and export
#: booleans as uint8 (GetOrtValueDataType and GetDlpackDataType in that file).
_HAS_ALL_TYPES = (1, 32)
#: ONNX's names of the types.
_TYPES = {f"tensor({name.replace('_', '')})": by_name(name) for name in _ALL_NAMES}
_TYPES |= {"tensor(float)": by_name("float32"), "tensor(double)": by_name("float64")}
_TYPES["tensor(float8e8m0)"] = by_name("float8_e8m0fnu")


class _Memory:
    """The memory of an OrtValue, which is kept alive with the array that the value was made of.

    Capsules hold the C value only: memory of ``ortvalue_from_numpy`` is freed with the Python object.
    """

    __slots__ = ("__array_interface__", "value")

    def __init__(self, value: Any, dtype: DType) -> None:
        shape, data = tuple(value.shape()), (value.data_ptr(), False)
        kind = dtype.storage.str
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

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        import numpy as np

        obstacles.check_source(f"onnxruntime.{type(obj).__name__}", _refusal(obj))
        dtype = _TYPES[obj.data_type()]
        return np.asarray(_Memory(obj, dtype)), dtype

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view, _names(self.module().__version__), obstacles.pairs)
        reasons = []
        if not view.c_contiguous:
            reasons.append(obstacles.layout("ONNX Runtime", "row-major memory"))
        if not view.is_aligned(view.dtype.itemsize):
            reasons.append(obstacles.MISALIGNED)  # its kernels assume alignment
        return reasons

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        from_dlpack, array = self.module().OrtValue.from_dlpack, writable_alias(tidy_strides(array))
        if dtype.name == "bool" and len(_names(self.module().__version__)) == len(_NAMES):
            return from_dlpack(_Booleans(dlpack.export(array.view("u1"), by_name("uint8"))))
        return from_dlpack(dlpack.export(array, dtype))


@cache
def _names(version: str) -> tuple[str, ...]:
    return _ALL_NAMES if version_numbers(version) >= _HAS_ALL_TYPES else _NAMES


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
    if obj.data_type() not in _TYPES:
        why = f"{obj.data_type()} has no counterpart in other frameworks"
        return Reason(why, "cast it in the model", code="missing-dtype")
    return None


FRAMEWORK = OnnxRuntime()
