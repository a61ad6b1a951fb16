"""PaddlePaddle: dense eager tensors of up to nine dimensions, with any strides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import Device
from zerocopy.dtype import NATIVE_NAMES, DType
from zerocopy.errors import Fix, Reason
from zerocopy.framework import Framework
from zerocopy.protocols import dlpack
from zerocopy.protocols.array_interface import address, aligned_copy
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView

_NAMES = NATIVE_NAMES | {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
# The constructor refuses two of them, and reads NumPy's uint16 as bfloat16; x.view() has all three.
_AS_SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}
_GRAD = Reason(
    "it requires grad (stop_gradient is False), and no other framework keeps the graph",
    code="requires-grad",
    fixes=[Fix("{x}.detach()", "aliases it without the graph", sample="{x}.detach()")],
)


class Paddle(Framework):
    """``paddle.Tensor`` and its subclasses, on the host; as a source also on CUDA devices.

    Notes
    -----
    Paddle 3.3 leaks 80 bytes for each tensor that it makes of other memory; the memory itself is freed.
    """

    name = "paddle"
    aliases = ("paddlepaddle", "pp")
    types = ("Tensor",)
    kinds: Mapping[str, Any] = {
        "Tensor": lambda x: "sparse" if x.is_sparse() or x.is_sparse_csr() else "array"
    }
    root_modules = ("paddle",)
    distribution = "paddlepaddle"
    min_version = "3.0"
    max_ndim = 9  # DDim::kMaxRank (paddle/common/ddim.h)
    can_copy_to_device = True
    actions: Mapping[str, Fix] = {
        "contiguous": Fix("{x}.contiguous()"),
        "copy": Fix("{x}.clone()"),
        "cast": Fix("{x}.astype('{type}')"),
        "flatten": Fix("{x}.reshape([-1])"),
    }

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().Tensor)

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        name = f"paddle.{type(obj).__name__}"
        obstacles.check_source(name, _refusal(obj))
        # Not x.numpy(), which copies, and returns uint16 for bfloat16 and int8 for float8. The capsule
        # keeps the memory if the tensor is given other memory.
        capsule = self.module().utils.dlpack.to_dlpack(obj)
        view = dlpack.read(capsule)
        return Source(
            name,
            view,
            dlpack.HostImport(capsule, view),
            "dlpack",
            refusal=None if obj.stop_gradient else _GRAD,
            to_host=lambda stream: self.source(obj.detach().cpu()).host(),
            producer=None if view.device.is_host else _producer(obj.detach(), view.device),
            contiguous=lambda: obj.detach().clone().contiguous(),  # of device memory alone
        )

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        paddle = self.module()
        if cls is not paddle.Tensor or _has_devices(paddle):
            return {}  # each tensor's place must be checked
        # It refuses sparse tensors, those that require grad, and bfloat16.
        return {"ndarray": np.from_dlpack}

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view, _NAMES)
        return obstacles.element_reasons(view)

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        paddle = self.module()
        name = dtype.name
        if name in _AS_SIGNED:
            array = array.view(_AS_SIGNED[name])
        plain = array if array.flags.c_contiguous else _flattened(array)
        tensor = _alias(paddle, plain)
        if plain is not array:
            strides = [stride // dtype.itemsize for stride in array.strides]
            offset = address(array) - address(plain)  # bytes
            tensor = paddle.as_strided(tensor, array.shape, strides, offset)  # it lacks uint32 and uint64
        viewed = name in _AS_SIGNED or name.startswith("float8")
        return tensor.view(getattr(paddle, name)) if viewed else tensor

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        # Not x.clone(), which Paddle lacks for unsigned integers of more than 8 bits.
        source = self.source(obj.detach().cpu())
        return self.of_ndarray(aligned_copy(source.host()), source.view.dtype)


def _alias(paddle: Any, array: Array) -> Any:
    """Return a tensor over a row-major ndarray; of bfloat16 for NumPy's uint16.

    Not ``paddle.from_dlpack``: Paddle 3.3 holds one mutex for all tensors while it runs a capsule's
    deleter. If that frees another such tensor, or waits for the GIL, the process waits forever.
    """
    return paddle.Tensor(array, place=paddle.CPUPlace(), zero_copy=True)


def _flattened(array: Array) -> Array:
    """Return the block of memory that a strided array spans, gaps included, as one dimension."""
    import numpy as np

    lowest = array[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in array.strides)]
    span = sum((n - 1) * stride for n, stride in zip(lowest.shape, lowest.strides, strict=True))
    count = span // array.itemsize + 1
    return np.lib.stride_tricks.as_strided(
        lowest, (count,), (array.itemsize,), writeable=array.flags.writeable
    )


def _producer(tensor: Any, device: Device) -> dlpack.Producer:
    """Return a producer of device memory, not yet run on hardware: Paddle's own has the index None."""
    return dlpack.Producer(lambda stream=None, **options: tensor.__dlpack__(stream=stream), device)


def _has_devices(paddle: Any) -> bool:
    """Whether this build has tensors in device memory."""
    return any(
        (
            paddle.is_compiled_with_cuda(),
            paddle.is_compiled_with_xpu(),
            bool(paddle.device.get_all_custom_device_type()),
        )
    )


def _refusal(obj: Any) -> Reason | None:
    """Return why no block of memory holds a tensor's values; None if one does."""
    if obj.is_dense():
        if obj.size and not obj.data_ptr():
            return Reason("it has no memory yet", "fill it first", code="no-memory")
        return None
    if obj.is_sparse() or obj.is_sparse_csr():
        parts = "[{x}.crows(), {x}.cols(), {x}.values()]" if obj.is_sparse_csr() else ""
        parts = parts or "[{x}.indices(), {x}.values()]"
        fixes = [Fix("{x}.to_dense()", "makes it dense"), Fix(parts, "converts its parts")]
        return Reason("it is sparse", code="sparse", fixes=fixes)
    return Reason("it is not a dense tensor", "convert its local or dense values", code="not-strided")


FRAMEWORK = Paddle()
