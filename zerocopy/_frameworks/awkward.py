"""awkward: lists of different lengths, and dense arrays of one buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks._obstacles import changed
from zerocopy.dtype import NATIVE_NAMES, DType, from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.source import Array
from zerocopy.sparse_ragged.hook import CompoundHook, Part
from zerocopy.sparse_ragged.ragged import RaggedLayout, check_built, ragged_parts
from zerocopy.strided_view import MAX_NDIM, StridedView

_AS_ARROW = changed("awkward.to_arrow({x})", "gives Arrow's column")
_RAGGED = Reason(
    "it is ragged",
    code="not-an-array",
    fixes=[
        changed(
            "awkward.fill_none(awkward.pad_none({x}, awkward.max(awkward.num({x})), clip=True), 0)",
            "pads its rows",
        ),
        changed("awkward.flatten({x}, axis=None)", "joins its rows"),
    ],
)
# Padding, the first fix, needs rows of numbers.
_RAGGED_TWICE = Reason(_RAGGED.why, code=_RAGGED.code, fixes=_RAGGED.fixes[1:])
_PACK = Reason(
    "its lists are not next to each other, because it was filtered or reordered",
    code="not-contiguous",
    fixes=[changed("awkward.to_packed({x})", "copies them in order")],
)
_REGULAR = Reason(
    "an outer dimension is regular, and has no offsets",
    code="regular",
    fixes=[changed("awkward.from_regular({x}, axis=None)", "gives it offsets")],
)
_DROP = changed("awkward.drop_none({x}, axis=None)", "drops them")
_OPTION = Reason(
    "its type allows missing values",
    code="nulls",
    fixes=[_DROP, changed("awkward.fill_none({x}, 0, axis=-1)", "replaces missing numbers by 0"), _AS_ARROW],
)
# fill_none with axis=-1 replaces missing numbers, not missing lists.
_OPTION_OF_LISTS = Reason(_OPTION.why, code="nulls", fixes=[_DROP, _AS_ARROW])
_RECORDS = Reason(
    "it has records",
    code="records",
    fixes=[changed("dict(zip({x}.fields, awkward.unzip({x})))", "splits them")],
)
_UNION = Reason("it has values of several types (a union)", code="union", fixes=[_AS_ARROW])
_TEXT = Reason(
    "it has text, which tensors lack",
    code="missing-dtype",
    fixes=[changed("awkward.to_arrow({x})", "gives codes", options={"encode": True}), _AS_ARROW],
)
_TEXT_KINDS = ("string", "bytestring", "char", "byte")
_VIRTUAL = Reason("it has no values yet", "compute it first", code="traced")


class Awkward(Framework):
    """``awkward.Array`` on the CPU: ragged arrays of numbers, and arrays with dense dimensions only."""

    name = "awkward"
    aliases = ("ak",)
    types = ("Array",)
    kinds: Mapping[str, Any] = {"Array": "ragged", "Content": "ragged", "Record": None, "ArrayBuilder": None}
    root_modules = ("awkward",)
    distribution = "awkward"
    min_version = "2.4"
    max_ndim = MAX_NDIM  # NumPy's, which passes the memory on
    mutable = False
    can_copy_to_device = True  # to the host, its only device
    actions: Mapping[str, Fix] = {
        "cast": Fix("awkward.values_astype({x}, '{type}')"),
        "join-lists": Fix("awkward.flatten({x})"),
        "contiguous": Fix("awkward.to_packed({x})"),
        "by-column": Fix("numpy.asfortranarray(awkward.to_numpy({x}))"),
    }

    def is_native(self, obj: Any) -> bool:
        return not hasattr(obj, "is_list")  # a layout becomes an array

    def owns(self, cls: type) -> bool:
        ak = self.module()
        return issubclass(cls, (ak.Array, ak.Record, ak.ArrayBuilder, ak.contents.Content))

    # -- source ---------------------------------------------------------------

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        layout = _layout(obj)
        array = _dense(layout)
        if array is None:
            raise obstacles.refuse_source(
                _name(obj), _RAGGED if layout.purelist_depth == 2 else _RAGGED_TWICE
            )
        dtype = from_numpy(array.dtype)
        if dtype is None:
            raise obstacles.refuse_source_dtype(
                _name(obj),
                array.dtype,
                fixes=[changed("awkward.values_astype({x}, 'int64')", "gives integers"), _AS_ARROW],
            )
        return array, dtype

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        self.check_view(view, NATIVE_NAMES)
        if view.ndim == 0:
            raise UnsupportedConversionError(
                "to='awkward'",
                "an awkward.Array has one dimension or more",
                code="too-few-dimensions",
                fixes=[Fix("numpy.atleast_1d({x})")],
            )
        return [] if view.is_aligned(view.dtype.itemsize) else [obstacles.MISALIGNED]

    def of_ndarray(self, array: Array, dtype: DType) -> Any:
        ak = self.module()
        return ak.Array(ak.contents.NumpyArray(array))


class Compound(CompoundHook):
    """Lists of numbers, or of lists. Lists that were filtered or reordered are packed: a copy."""

    part_target = "numpy"
    layout_type = RaggedLayout

    def read(self, obj: Any) -> tuple[RaggedLayout, tuple[Any, ...]] | None:
        if type(obj).__name__ in ("Record", "ArrayBuilder"):
            return None
        layout, levels = _layout(obj), []
        values = _dense(layout)
        if values is not None:
            return None
        packed = _copied(layout)
        if packed is not None:
            import awkward as ak

            scattered, layout = layout, ak.to_packed(layout, highlevel=False)
            values = _dense(layout)
        length = layout.length
        while values is None:
            lists = layout.to_ListOffsetArray64(False) if layout.is_regular else layout
            levels.append(lists.offsets.data)
            layout = lists.content
            values = _dense(layout)
        if packed is not None:  # to_packed aliases parts that are packed already
            levels = [offsets.copy() for offsets in levels]
            values = values.copy() if _aliases(values, scattered) else values
        return RaggedLayout(len(levels), length, packed), (values, *levels)

    def value_types(self, layout: RaggedLayout) -> frozenset[str]:
        return NATIVE_NAMES

    def fit(self, layout: RaggedLayout, parts: Sequence[Any]) -> tuple[RaggedLayout, list[Part]]:
        return ragged_parts("awkward", layout, parts, ("int64", "int32", "uint32"))

    def build(self, layout: RaggedLayout, parts: Sequence[Any]) -> Any:
        import awkward as ak

        values, *levels = parts
        check_built(layout, parts)
        if values.dtype.name not in NATIVE_NAMES:
            raise ValueError("awkward has no such type")
        content = ak.contents.NumpyArray(values)
        for offsets in reversed(levels):
            content = ak.contents.ListOffsetArray(ak.index.Index(offsets), content)
        return ak.Array(content)


def _name(obj: Any) -> str:
    return f"awkward.{type(obj).__name__}"


def _layout(obj: Any) -> Any:
    """Return the layout of an array, without option types whose values are all present."""
    name = _name(obj)
    layout = getattr(obj, "layout", obj)
    if not hasattr(layout, "is_list") or not hasattr(layout, "backend"):
        builder = type(obj).__name__ == "ArrayBuilder"
        fixes = [Fix("{x}.snapshot()", "makes it an array")] if builder else _RECORDS.fixes
        why = "it is being built" if builder else "it is one record"
        raise obstacles.refuse_source(name, Reason(why, code="not-an-array", fixes=fixes))
    place = layout.backend.name
    if place == "typetracer":
        raise obstacles.refuse_source(name, _VIRTUAL)
    if place != "cpu":
        fix = Fix("awkward.to_backend({x}, 'cpu')", "copies it to the host")
        why = f"it belongs to the backend {place}"
        raise obstacles.refuse_source(name, Reason(why, code="other-device", fixes=[fix]))
    return _plain(layout, name)


def _plain(layout: Any, name: str) -> Any:
    """Return a layout of lists and NumPy arrays alone; refuse others."""
    import numpy as np

    obstacles.check_source(name, _refusal(layout))
    if layout.is_unknown:
        return layout.to_NumpyArray(np.dtype(np.float64))  # empty, as awkward.to_numpy has it
    if layout.is_numpy:
        return layout
    inner = _plain(layout.content, name)
    if layout.is_option:
        return inner
    return layout if inner is layout.content else layout.copy(content=inner)


def _refusal(layout: Any) -> Reason | None:
    if layout.is_record:
        return _RECORDS
    if layout.is_union:
        return _UNION
    kind = layout.parameter("__array__")
    if kind in _TEXT_KINDS or ((layout.is_option or layout.is_indexed) and _refusal(layout.content) is _TEXT):
        return _TEXT
    if layout.is_option and type(layout).__name__ != "UnmaskedArray":
        return _OPTION if layout.content.is_numpy else _OPTION_OF_LISTS
    if layout.is_option:
        return None
    if layout.is_indexed:
        fix = "awkward.from_categorical({x})" if kind == "categorical" else "awkward.to_packed({x})"
        fixes = [Fix(fix, "copies the values in order")]
        return Reason("its values are selected by an index", code="dictionary-encoding", fixes=fixes)
    return None


def _dense(layout: Any) -> Array | None:
    """Return an alias of a layout without ragged dimensions; None for one with them."""
    if layout.is_numpy:
        array: Array = layout.data.view()
        return array
    if not layout.is_regular:
        return None
    inner = _dense(layout.content)
    if inner is None:
        return None
    size, length = layout.size, layout.length
    return inner[: size * length].reshape(length, size, *inner.shape[1:])  # splitting an axis aliases


def _copied(layout: Any) -> Reason | None:
    """Return why a level of a ragged layout has no offsets; None if each has."""
    if _dense(layout) is not None:
        return None
    if layout.is_regular:
        return _REGULAR
    return _copied(layout.content) if hasattr(layout, "offsets") else _PACK


def _aliases(values: Array, layout: Any) -> bool:
    import numpy as np

    while not layout.is_numpy:
        layout = layout.content
    return np.may_share_memory(values, layout.data)


FRAMEWORK = Awkward()
