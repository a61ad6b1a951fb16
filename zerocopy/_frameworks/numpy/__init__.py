"""NumPy: ndarrays, which also represent host memory between other frameworks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any

from zerocopy import _native
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks._obstacles import changed
from zerocopy.device import HOST
from zerocopy.dtype import DType, from_numpy, to_numpy
from zerocopy.errors import Fix, LossyConversionError, Reason
from zerocopy.framework import Framework, identity
from zerocopy.protocols.array_interface import address, lost_unit, masked_elements
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView

if TYPE_CHECKING:
    from zerocopy.tables.column import Table

_VIEW_AS_INTEGERS = changed("{x}.view('int64')", "gives integers without their unit")
_FIXES = {  # by dtype.kind, or dtype.char for long double
    "M": _VIEW_AS_INTEGERS,
    "m": _VIEW_AS_INTEGERS,
    "S": changed("numpy.ascontiguousarray({x}).view('uint8').reshape(*{x}.shape, -1)", "gives bytes"),
    "U": changed("numpy.ascontiguousarray({x}).view('uint32').reshape(*{x}.shape, -1)", "gives code points"),
    "T": changed("{x}.ravel()", "gives a column of text"),
    "O": Fix("{x}.astype('float64')", "if all objects are numbers"),
    "V": changed("numpy.ravel({x})", "gives a table of its fields"),
    "g": changed("{x}.astype('float64')"),
    "G": changed("{x}.astype('complex128')"),
}


class NumPy(Framework):
    """ndarrays, memmaps, masked arrays without masked elements, and scalars."""

    name = "numpy"
    aliases = ("np",)
    types = ("ndarray",)
    kinds: Mapping[str, Any] = {"generic": None}
    root_modules = ("numpy",)
    distribution = "numpy"
    slow_reads = "gaps"
    marks_readonly = True
    has_datetime64 = True
    has_records = True
    reads_views = False
    _actions: Mapping[str, Fix] = {
        "align": Fix("{x}.copy()", before='zc.install_pool(host="aligned")'),
        "copy:item": Fix("{x}.copy()"),
        "contiguous": Fix("numpy.ascontiguousarray({x})"),
        **{f"cast:{name}": changed(f"{{x}}.astype('{name}')") for name in ("float64", "float32", "int8")},
        "objects": Fix("{x}.tolist()"),
        **{  # the real part of complex32 has the type of the whole
            f"pairs:complex{2 * bits}": changed(
                f"numpy.expand_dims({{x}}.astype('complex{2 * bits}'), -1).view('float{bits}')"
            )
            for bits in (16, 32, 64)
        },
        "column": Fix("{x}[{label}]"),  # of records
        "replace": Fix("{{**{{name: {x}[name] for name in {x}.dtype.fields.keys()}}, {label}: {value}}}"),
        "truncate:us": Fix("{x}.astype('m8[us]')"),
    }

    @property
    def actions(self) -> Mapping[str, Fix]:  # type: ignore[override]
        from zerocopy.pool.host import data_handler  # only errors need it

        return {**self._actions, "align": Fix("{x}.copy()")} if data_handler.aligns() else self._actions

    def owns(self, cls: type) -> bool:
        import numpy as np

        return issubclass(cls, (np.ndarray, np.generic))

    def is_native(self, obj: Any) -> bool:
        import numpy as np

        return isinstance(obj, np.ndarray)  # a NumPy scalar is owned, but is not an array

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        import numpy as np

        name = f"numpy.{type(obj).__name__}"
        if isinstance(obj, np.generic):
            return self._scalar(obj, name)
        if masked := masked_elements(obj):
            raise LossyConversionError(
                f"convert({name})",
                f"{masked} of {obj.size} elements are masked, and NumPy exports the values without the mask",
                code="masked",
                fixes=_unmasking(obj),
            )
        # A subclass may override `view` (Numba's managed and mapped arrays), so call ndarray's.
        array = np.ndarray.view(obj, np.ndarray) if type(obj) is not np.ndarray else obj
        # Call newbyteorder only if needed: it raises for StringDType, which has no byte order.
        native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
        numbers = native.kind != "O" or (array.size and isinstance(array.flat[0], Number))
        dtype = _dtype(native, name, bool(numbers))
        view = StridedView(
            address(array), array.shape, array.strides, dtype, HOST, not array.flags.writeable, array
        )
        if array.dtype.isnative and dtype.in_numpy:
            # A view, because the caller can change the shape and dtype of the array itself.
            return Source(name, view, partial(np.ndarray.view, array))

        def host() -> Array:
            values = array.astype(native, copy=False)
            return values.view() if dtype.in_numpy else values.view(dtype.storage)

        if array.dtype.isnative:
            return Source(name, view, host)
        return Source(name, view, host, "buffer", [obstacles.byte_order(array.dtype)])

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        import numpy as np

        if not isinstance(obj, np.ndarray) or obj.dtype.kind in "biufc":
            return None
        from zerocopy._frameworks.numpy import columns

        return columns.records_table(obj, f"numpy.{type(obj).__name__}")

    def _scalar(self, obj: Any, name: str) -> Source:
        """Describe a scalar: always copied, since Python assumes that scalars are immutable."""
        import numpy as np

        array = np.asarray(obj)
        dtype = _dtype(array.dtype, name)
        view = StridedView(address(array), (), (), dtype, HOST, True, array)
        why = Reason(
            "a NumPy scalar is not an array",
            code="not-an-array",
            fixes=[Fix("numpy.asarray({x})", "copies it")],
        )
        return Source(name, view, lambda: array.view(dtype.storage), "buffer", [why])

    def label_warnings(self, obj: Any, target: Framework, options: Mapping[str, Any]) -> tuple[str, ...]:
        return lost_unit(obj, target.name)

    def fast_exporters(self, cls: type) -> dict[str, Callable[[Any], Any]]:
        import numpy as np

        # Exact types only: a subclass may add meaning to the bytes (a mask, units).
        if cls not in (np.ndarray, np.memmap):
            return {}
        core = _native.core
        return {"ndarray": identity} | ({"native": core.NDArrayExporter()} if core is not None else {})

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        obstacles.check_numpy("numpy", view)
        return []

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        if dtype.in_numpy:
            return array
        extended = to_numpy(dtype)
        assert extended is not None
        return array.view(extended)

    def fast_importers(self) -> dict[str, Callable[[Any], Any]]:
        core = _native.core
        return {"ndarray": identity} | ({"native": core.NDArrayImporter()} if core is not None else {})


def _unmasking(obj: Any) -> list[Fix]:
    """Return fixes for masked elements; other classes' methods are for arrays without fields."""
    own, is_plain = type(obj).__module__.partition(".")[0] == "numpy", obj.dtype.names is None
    # The results have no nulls, and nulls= is refused for such arrays.
    sample = "{x}.data" if own else ""  # of the type that filled elements have
    fill = Fix("{x}.filled(0)", "gives them a value", options={"nulls": None}, sample=sample)
    drop = replace(fill, source="{x}.compressed()", effect="drops them", shortens=True)
    # The `data` of other classes can have the mask too, as that of astropy's columns.
    ignore = replace(fill, source=sample or "numpy.asarray({x})", effect="ignores the mask")
    fills = hasattr(obj, "filled") and (own or is_plain)
    drops = hasattr(obj, "compressed") and is_plain
    return [*[fill] * fills, *[drop] * drops, ignore]


def _dtype(dtype: Any, name: str, numbers: bool = True) -> DType:
    """Return the standard type of a native NumPy dtype, or refuse it with a remedy."""
    standard = from_numpy(dtype)
    if standard is not None:
        return standard
    # DLPack has neither dates nor text (dlpack.h, DLDataTypeCode).
    key = dtype.char if dtype.char in "gG" else dtype.kind
    fixes = [_FIXES[key]] if key in _FIXES and numbers else []
    raise obstacles.refuse_source_dtype(name, dtype, "" if fixes else "cast it to a number", fixes)


FRAMEWORK = NumPy()
