"""TVM FFI tensors (``apache-tvm-ffi``): memory with any strides, described by DLPack."""

from __future__ import annotations

from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import HOST, Device
from zerocopy.dtype import REAL_NAMES, DType, by_name
from zerocopy.errors import Reason
from zerocopy.framework import Framework
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import tidy_strides, writable_alias
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView

# TVM FFI has no complex numbers (DLDataTypeToString refuses type code 5), and no dtypes of less than a byte
# through NumPy, which exports host memory for it.
_NAMES = (
    *REAL_NAMES, "bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip


class TvmFfi(Framework):
    """``tvm_ffi.Tensor`` on the host; as a source also on CUDA devices.

    It has no operators: compiled functions read and write its memory.
    """

    name = "tvm_ffi"
    aliases = ("tvm-ffi", "tvm")
    types = ("Tensor",)
    root_modules = ("tvm_ffi",)
    distribution = "apache-tvm-ffi"

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().Tensor)

    # -- source ---------------------------------------------------------------

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        import numpy as np

        if obj.dtype in REAL_NAMES and not (array := np.from_dlpack(obj)).flags.owndata:
            return array, by_name(obj.dtype)
        # NumPy lacks the dtype, or the address is NULL, for which NumPy allocates memory.
        capsule = obj.__dlpack__()
        view = dlpack.read(capsule, obj, HOST)
        return dlpack.as_ndarray(capsule, view), view.dtype

    def source(self, obj: Any) -> Source:
        if Device(*map(int, obj.__dlpack_device__())).is_host:
            return super().source(obj)
        view = dlpack.read(dlpack.request(obj, stream=None, max_version=None), obj)
        return Source(f"tvm_ffi.{type(obj).__name__}", view, _not_on_host, "dlpack", producer=obj)

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view, _NAMES, obstacles.pairs)
        return obstacles.element_reasons(view)  # compiled functions assume the alignment of C

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        capsule = dlpack.export(writable_alias(tidy_strides(array)), dtype)
        return self.module().from_dlpack(dlpack.Handover(capsule))


def _not_on_host() -> Array:
    raise BufferError("TVM FFI does not copy memory of a device to the host")


FRAMEWORK = TvmFfi()
