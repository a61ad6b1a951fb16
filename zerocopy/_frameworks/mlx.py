"""MLX: arrays of ``mlx.core``, lazy and copied on write; the host build copies all memory that it imports."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import HOST
from zerocopy.dtype import REAL_NAMES, DType, by_name
from zerocopy.errors import Fix, FrameworkNotInstalledError, Reason, UnsupportedConversionError
from zerocopy.forks import is_imported
from zerocopy.framework import Framework, while_forks_wait
from zerocopy.source import Array
from zerocopy.strided_view import StridedView

_NAMES = (*REAL_NAMES, "complex64", "bfloat16")
_INSTALL = "pip install 'mlx[cpu]'"
# mx.from_dlpack(x, copy=False) raises "Cannot import a CPU array without a copy" (ml-explore/mlx#3680).
_COPIES = Reason(
    "MLX copies host memory that it imports",
    "create the array in MLX, and alias it in the other framework",
    code="imports-by-copy",
)
#: Parts of the errors of MLX for arrays that it cannot evaluate here.
_UNREADABLE = {
    "function transformations": Reason(
        "it is traced by a transformation of MLX and has no memory",
        "convert it outside mlx.core.compile and vmap",
        code="traced",
    ),
    "in current thread": Reason(
        "it is not evaluated, and only the thread that created it can evaluate it",
        "call mlx.core.eval(x) in that thread, and convert it afterwards",
        code="other-thread",
    ),
}


class MLX(Framework):
    """``mlx.core.array``. A conversion evaluates the array; one from MLX aliases it, read-only.

    MLX shares memory among its arrays, and copies on write while another object holds the memory: after
    ``x[0] = 1`` or ``x += 1`` an alias has the old values.
    """

    name = "mlx"
    aliases = ("mlx.core", "mlx-core")
    types = ("core.array", "core", "array")
    root_modules = ("mlx",)
    distribution = "mlx"
    install_hint = _INSTALL
    mutable = False
    aliases_host = False
    can_copy_to_device = True
    actions: Mapping[str, Fix] = {
        "cast": Fix("{x}.astype(mlx.core.{type})"),
        "flatten": Fix("{x}.reshape(-1)"),
    }

    # -- presence -------------------------------------------------------------

    def installed(self) -> bool:
        if is_imported("mlx.core"):
            return True
        # `mlx` is a namespace package, which plain folders of that name are too.
        spec = importlib.util.find_spec(self.name)
        places = None if spec is None else spec.submodule_search_locations
        return places is not None and importlib.machinery.PathFinder.find_spec("mlx.core", places) is not None

    def module(self) -> ModuleType:
        if is_imported("mlx.core"):
            return sys.modules["mlx.core"]
        try:
            return while_forks_wait(partial(import_module, "mlx.core"))  # type: ignore[no-any-return]
        except Exception as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name in ("mlx", "mlx.core")
            why = "mlx is not installed" if absent else f"importing mlx.core failed: {error}"
            raise FrameworkNotInstalledError("to='mlx'", why, _INSTALL, code="not-installed") from error

    def variant(self, form: str) -> Framework | None:
        return self if form == "core" else None  # to=mlx.core

    def owns(self, cls: type) -> bool:
        return issubclass(cls, self.module().array)  # type: ignore[attr-defined]

    # -- source ---------------------------------------------------------------

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        mx = self.module()
        dtype = _dtypes(mx)[obj.dtype]
        try:
            return _as_ndarray(mx, obj, dtype), dtype
        except (ValueError, RuntimeError) as error:
            reason = next((reason for text, reason in _UNREADABLE.items() if text in str(error)), None)
            if reason is None:
                raise
            raise obstacles.refuse_source("mlx.core.array", reason) from error

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        # MLX converts other dtypes to complex64, or refuses them and more dimensions without a reason.
        self.check_view(view, _NAMES, obstacles.pairs)
        if max(view.shape, default=0) >= 2**31:
            raise UnsupportedConversionError(
                "to='mlx'",
                f"MLX has 32-bit integers for sizes, and shape {view.shape} needs more",
                "convert it in parts, or reshape it to smaller dimensions",
                code="too-many-elements",
            )
        return [_COPIES]

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        mx: Any = self.module()
        if not array.flags.aligned or min(array.strides, default=0) < 0:
            array = array.copy(order="C")  # MLX refuses negative strides and the fields of packed records
        if not dtype.in_numpy:
            return mx.array(array).view(getattr(mx, dtype.name))
        # With a dtype, because float64 would silently become float32.
        return mx.array(array, dtype=_dtype_of(mx, dtype.name))


def _dtype_of(mx: Any, name: str) -> Any:
    return mx.bool_ if name == "bool" else getattr(mx, name)


@cache
def _dtypes(mx: Any) -> dict[Any, DType]:
    return {_dtype_of(mx, name): by_name(name) for name in _NAMES}


def _as_ndarray(mx: Any, obj: Any, dtype: DType) -> Array:
    """Return a read-only alias in ``dtype.storage``.

    Through DLPack, which holds the memory itself. The buffer protocol holds `obj`: after ``obj += 1``, the
    alias would have other values.
    """
    import numpy as np

    plain = obj if dtype.in_numpy else obj.view(_dtype_of(mx, dtype.storage.name))
    if plain.__dlpack_device__()[0] == HOST.type:
        array: Array = np.from_dlpack(plain)
    else:
        # Memory of an Apple GPU is host memory too. A second object holds it, so that MLX does not reuse it.
        array = np.asarray(plain[...])
    array.flags.writeable = False
    return array


FRAMEWORK = MLX()
