"""NVIDIA Warp: arrays of one to four dimensions with any strides, of scalars, vectors and matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import CUDA, CUDA_HOST, Device
from zerocopy.dtype import REAL_NAMES, DType, by_name
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.protocols import cuda_array_interface
from zerocopy.protocols.array_interface import writable_alias
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides

# Kernels read sizes and strides as 32-bit integers; larger ones abort the process (NVIDIA/warp#1673).
_INT32 = 2**31
_WIDE_STRIDES = Reason(
    "a stride is 2 GiB or more, and Warp's kernels read strides as 32-bit integers",
    code="too-many-elements",
    fixes=[obstacles.CONTIGUOUS],
)


class Warp(Framework):
    """``warp.array``: scalars, and vectors and matrices, whose components are its last dimensions.

    An array of ``warp.vec3`` and shape ``(n,)`` converts to shape ``(n, 3)``, as ``x.numpy()`` does. The
    result of ``to="warp"`` is an array of scalars; ``warp.array(ptr=x.ptr, ...)`` aliases it as vectors.
    """

    name = "warp"
    aliases = ("wp", "warp-lang", "nvidia-warp")
    types = ("array",)
    root_modules = ("warp",)
    distribution = "warp-lang"
    max_ndim = 4  # ARRAY_MAX_DIMS (warp/native/array.h)
    can_copy_to_device = True
    actions: Mapping[str, Fix] = {"contiguous": Fix("{x}.contiguous()"), "copy": Fix("warp.clone({x})")}

    _started: ModuleType | None = None

    def module(self) -> ModuleType:
        wp = super().module()
        if self._started is not wp:
            _start(wp)
            self._started = wp
        return wp

    def owns(self, cls: type) -> bool:
        # Indexed and fabric arrays too, so that `source` refuses them with a fix.
        wp = self.module()
        return issubclass(cls, (wp.array, wp.indexedarray, wp.fabricarray, wp.indexedfabricarray))

    # -- source ---------------------------------------------------------------

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        dtype = _dtype(self.module(), obj)
        if not obj.device.is_cpu:
            raise BufferError("not on the host")
        # NumPy reads the memory as the storage type: the array interface declares bfloat16 as uint16.
        return _as_ndarray(obj, dtype), dtype

    def source(self, obj: Any) -> Source:
        wp = self.module()
        dtype = _dtype(wp, obj)
        if obj.device.is_cpu:
            source = super().source(obj)
            if obj.pinned:
                source.view = replace(source.view, device=Device(CUDA_HOST, 0))
            return source
        # Written against the API, not yet run on hardware. The interface has no stream, so the
        # consumer would not wait for the kernels that Warp has queued on the device's stream.
        interface = obj.__cuda_array_interface__
        device = Device(CUDA, obj.device.ordinal)
        view = StridedView(
            interface["data"][0], interface["shape"], interface["strides"], dtype, device, False, obj
        )
        return Source(
            f"warp.{type(obj).__name__}",
            view,
            lambda: obj.numpy().view(dtype.storage),
            "cuda-array-interface",
            to_host=lambda stream: obj.numpy().view(dtype.storage),
            producer=cuda_array_interface.Handover(view, obj.device.stream.cuda_stream, obj),
            contiguous=lambda: wp.clone(obj),
        )

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view, _names(self.module()), obstacles.pairs)
        if view.ndim == 0:
            raise UnsupportedConversionError(
                "to='warp'",
                "a warp.array has at least one dimension",
                code="too-few-dimensions",
                fixes=[Fix("numpy.atleast_1d({x})")],
            )
        if max(view.shape) >= _INT32 or _is_wide(contiguous_strides(view.shape, view.dtype.itemsize)):
            raise UnsupportedConversionError(
                "to='warp'",
                f"kernels of Warp read sizes and strides as 32-bit integers, and shape {view.shape} "
                f"of {view.dtype} needs more",
                "convert it in parts, or flatten it",
                code="too-many-elements",
            )
        reasons = []
        if _is_wide(view.strides):
            # A kernel would truncate them, and read and write elsewhere.
            reasons.append(_WIDE_STRIDES)
        return reasons + obstacles.element_reasons(view)  # kernels compiled by Clang assume alignment

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        wp = self.module()
        # The constructor keeps the ndarray alive. Without a copy it takes uint16 for bfloat16.
        return wp.array(
            writable_alias(array), dtype=getattr(wp, dtype.name), device=wp.get_device("cpu"), copy=False
        )

    def copy_to_device(self, obj: Any, device: Device, stream: int | None) -> Any:
        return self.module().clone(obj, device="cpu")  # row-major, of the same vectors or matrices


def _start(wp: Any) -> None:
    """Initialise Warp without the messages that it prints at its default log level."""
    # Documented at warp.config.log_level; a level that the user has chosen is kept.
    if getattr(wp.config, "log_level", None) == getattr(wp, "LOG_INFO", 0):
        with wp.ScopedLogLevel(wp.LOG_WARNING):
            wp.init()
    else:
        wp.init()


@cache
def _names(wp: Any) -> frozenset[str]:
    """Return the names of Warp's scalar types; bfloat16 since Warp 1.13."""
    return frozenset(name for name in (*REAL_NAMES, "bfloat16") if hasattr(wp, name))


@cache
def _dtypes(wp: Any) -> dict[Any, DType]:
    return {getattr(wp, name): by_name(name) for name in _names(wp)}


def _dtype(wp: Any, obj: Any) -> DType:
    """Return the type of an array's scalars; refuse arrays without memory, and those of structures."""
    name = f"warp.{type(obj).__name__}"
    obstacles.check_source(name, _refusal(wp, obj))
    # A type of vectors, matrices, quaternions or transformations is a ctypes array of its scalars.
    scalar = getattr(obj.dtype, "_wp_scalar_type_", obj.dtype) if wp.types.type_is_value(obj.dtype) else None
    dtype = _dtypes(wp).get(scalar)
    if dtype is None:
        raise _refuse_elements(name, obj)
    return dtype


def _as_ndarray(obj: Any, dtype: DType) -> Array:
    """Return an alias of an array in host memory, in ``dtype.storage``."""
    import numpy as np

    if obj.size == 0 and not obj.ptr:  # NumPy before 2.4 cannot read it (numpy/numpy#26037)
        interface = obj.__array_interface__
        return np.empty(interface["shape"], dtype.storage)
    array: Array = np.asarray(obj)
    return array


def _refusal(wp: Any, obj: Any) -> Reason | None:
    """Return why no block of memory holds an array's values; None if one does."""
    if not isinstance(obj, wp.array):
        fix = Fix("{x}.contiguous()", "copies the elements into one block")
        return Reason("its elements are chosen by indices", code="not-strided", fixes=[fix])
    if obj.device is None:
        return Reason(
            "it is a type annotation and has no memory", "create it with warp.zeros", code="no-memory"
        )
    return None


def _refuse_elements(name: str, obj: Any) -> UnsupportedConversionError:
    struct = hasattr(obj.dtype, "numpy_dtype")
    fixes = [Fix("{x}.numpy()", "gives a structured NumPy array")] if struct else []
    shown = "a structure" if struct else getattr(obj.dtype, "__name__", obj.dtype)
    remedy = "" if struct else "convert an array of numbers"
    return obstacles.refuse_source_dtype(name, shown, remedy, fixes=fixes)


def _is_wide(numbers: tuple[int, ...]) -> bool:
    """Whether a size or stride does not fit 32 bits."""
    return any(not -_INT32 <= number < _INT32 for number in numbers)


FRAMEWORK = Warp()
