"""TVM FFI tensors (``apache-tvm-ffi``): memory with any strides, described by DLPack."""

from __future__ import annotations

from collections.abc import Callable
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

    def source(self, obj: Any) -> Source:
        name = f"tvm_ffi.{type(obj).__name__}"
        device = Device(*map(int, obj.__dlpack_device__()))
        if not device.is_host:
            view = dlpack.read(dlpack.request(obj, stream=None, max_version=None), obj)
            return Source(name, view, _not_on_host, "dlpack", producer=obj)
        capsule = obj.__dlpack__()
        view = dlpack.read(capsule, obj, HOST)
        return Source(name, view, dlpack.HostImport(capsule, view), "dlpack")

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        if cls is not self.module().Tensor:
            return {}
        from_dlpack = np.from_dlpack

        def ndarray(tensor: Any) -> Any:
            array = from_dlpack(tensor)  # refuses device memory and the dtypes that NumPy lacks
            if array.flags.owndata:
                raise BufferError("at NULL, for which NumPy allocates memory")
            return array

        return {"ndarray": ndarray}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view, _NAMES, obstacles.pairs)
        return obstacles.element_reasons(view)  # compiled functions assume the alignment of C

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        capsule = dlpack.export(writable_alias(tidy_strides(array)), dtype)
        return self.module().from_dlpack(dlpack.Handover(capsule))

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        from_dlpack = self.module().from_dlpack
        types = frozenset(np.dtype(name).num for name in _NAMES if by_name(name).in_numpy)

        def ndarray(array: Any) -> Any:
            if not array.flags.behaved or array.dtype.num not in types:
                raise BufferError("read-only, misaligned, or of a dtype that TVM FFI lacks")
            return from_dlpack(array)

        return {"ndarray": ndarray}


def _not_on_host() -> Array:
    raise BufferError("TVM FFI does not copy memory of a device to the host")


FRAMEWORK = TvmFfi()
