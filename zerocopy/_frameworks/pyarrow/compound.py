"""Arrow's lists of numbers: ``ListArray``, ``LargeListArray``, their views, and lists of these."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.device import HOST
from zerocopy.errors import Fix, Reason
from zerocopy.sparse_ragged.hook import CompoundHook, Part
from zerocopy.sparse_ragged.ragged import RaggedLayout, as_numpy, check_built, ragged_parts, view_of

#: Of lists; pyarrow 15 has no views.
_CLASSES = ("ListArray", "LargeListArray", "ListViewArray", "LargeListViewArray")
_LIST_NULLS = [
    Fix("{x}.fill_null([])", "makes them empty lists"),
    Fix("{x}.drop_null()", "drops them"),
]
_VIEWS = Reason(
    "its lists are views, which can overlap and lie in any order",
    code="list-views",
    fixes=[Fix(action="lists", effect="copies them in order")],
)


class Compound(CompoundHook):
    """Lists of numbers or of lists. The planner handles lists of other types, which tensors lack."""

    converts_own = False  # it keeps the names and the nullability of the items
    layout_type = RaggedLayout

    def reads(self, cls: type) -> bool:
        import pyarrow as pa

        return issubclass(cls, pa.ChunkedArray) or cls.__name__ in _CLASSES

    def read(self, obj: Any) -> tuple[RaggedLayout, tuple[Any, ...]] | None:
        import pyarrow as pa

        kind = getattr(obj, "type", None)
        if kind is None or not _is_list(kind) or not isinstance(obj, (pa.Array, pa.ChunkedArray)):
            return None
        if not _is_number(_leaf(kind)) or not getattr(obj, "is_cpu", True):
            return None
        name, packed = f"pyarrow.{type(obj).__name__}", None
        chunked = isinstance(obj, pa.ChunkedArray)
        if chunked:
            if obj.num_chunks > 1:
                why = f"it has {obj.num_chunks} chunks, and other frameworks have one array"
                packed = Reason(why, code="chunks", fixes=[Fix(action="combine-chunks")])
            obj = _one_chunk(obj, name)
        if _has_list_views(kind):
            packed = packed or _VIEWS
            _check_views(obj, name)
        levels: list[Any] = []
        own = _levels_before_views(obj.type) if packed is _VIEWS else 0
        array = obj
        while _is_list(array.type):
            if array.null_count:
                others = _without_others(obj, chunked) if levels else []
                raise _nulls(array.null_count, "lists", name, _LIST_NULLS if not levels else [], others)
            offsets, array = _split(array)
            levels.append(offsets)
        if array.null_count:
            fill = _fill(obj) if len(levels) == 1 and packed is None else []
            raise _nulls(array.null_count, "values", name, fill, _without_others(obj, chunked))
        return RaggedLayout(len(levels), len(obj), packed, own_levels=own), (array, *levels)

    def fit(self, layout: RaggedLayout, parts: Sequence[Any]) -> tuple[RaggedLayout, list[Part]]:
        layout, made = ragged_parts("Arrow", layout, parts, ("int64", "int32"))
        values = made[0]
        view = view_of(values.obj)
        if view.ndim > 1 and not view.c_contiguous and values.make is None and view.device.is_host:
            values.make, values.nbytes = partial(_row_major, values.obj), view.nbytes
            values.reason = obstacles.layout("a column of tensors", "row-major memory")
        return layout, made

    def build(self, layout: RaggedLayout, parts: Sequence[Any]) -> Any:
        import pyarrow as pa

        values, *levels = parts
        check_built(layout, parts)
        if isinstance(values, pa.Tensor):
            dense = values.to_numpy()
            if not dense.flags.c_contiguous:
                raise ValueError("a column of tensors needs row-major memory: fit() copies")
            values = _tensors().from_host(dense, view_of(values).dtype, HOST, None)
        for offsets in reversed(levels):
            kind = pa.ListArray if offsets.type == pa.int32() else pa.LargeListArray
            values = kind.from_arrays(offsets, values)
        return values


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or _is_list_view(kind)


def _is_list_view(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _has_list_views(kind: Any) -> bool:
    """Whether a type of lists has list views at any level; its text also contains names of fields."""
    while _is_list(kind):
        if _is_list_view(kind):
            return True
        kind = kind.value_type
    return False


def _leaf(kind: Any) -> Any:
    while _is_list(kind):
        kind = kind.value_type
    return kind


def _levels_before_views(kind: Any) -> int:
    """Return how many levels of lists contain the outermost list views of a type."""
    count = 0
    while not _is_list_view(kind):
        kind, count = kind.value_type, count + 1
    return count


def _is_number(kind: Any) -> bool:
    """Whether arrays of a type are tensors: numbers, booleans, and lists of one length of these."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name in ("arrow.bool8", "arrow.fixed_shape_tensor")
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    types = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(check(kind) for check in types)


def _split(array: Any) -> tuple[Any, Any]:
    """Return offsets and items of lists; those of views are copies in order."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if hasattr(array, "offsets") and not hasattr(array, "sizes"):
        return array.offsets, array.values
    # Not a cast to lists, which ignores the sizes (apache/arrow#50994).
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(pc.list_value_length(array).to_numpy(), out=offsets[1:])
    items = pc.list_flatten(array)
    return offsets, pa.concat_arrays([items, items[:0]])  # a copy; list_flatten aliases views in order


def _check_views(array: Any, name: str) -> None:
    """Refuse views outside the values: pyarrow would read there to copy them."""
    import pyarrow as pa

    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        why = f"its list views are invalid: {error}"
        raise obstacles.refuse_source(
            name, Reason(why, "build it from valid views", code="invalid-offsets")
        ) from error


def _one_chunk(array: Any, name: str) -> Any:
    """Return a chunked array as one array; an alias of a single chunk."""
    import pyarrow as pa

    if array.num_chunks == 1:
        return array.chunk(0)
    whole = array.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # their offsets exceed int32
        why = "its chunks together have more values than 32-bit offsets count"
        fix = Fix("{x}.cast(pyarrow.large_list({x}.type.value_type))", "has 64-bit offsets")
        raise obstacles.refuse_source(name, Reason(why, code="chunks", fixes=[fix]))
    return whole


def _without_others(array: Any, chunked: bool) -> list[Fix]:
    """Return the fix for nulls that are in the memory of a slice, but not in its own lists."""
    import pyarrow as pa

    try:
        array.validate(full=True)  # concat_arrays reads where the offsets point
    except pa.ArrowInvalid:
        return []
    own = pa.concat_arrays([array, array[:0]])
    while _is_list(own.type):
        if own.null_count:
            return []
        own = own.values
    if own.null_count:
        return []
    x = "{x}.chunk(0)" if chunked else "{x}"
    return [Fix(f"pyarrow.concat_arrays([{x}, {x}[:0]])", "copies its own lists, which have no nulls")]


def _fill(array: Any) -> list[Fix]:
    form = f"pyarrow.{type(array).__name__}"
    return [Fix(f"{form}.from_arrays({{x}}.offsets, {{x}}.values.fill_null(0))", "replaces them by 0")]


def _nulls(count: int, what: str, name: str, fixes: list[Fix], others: list[Fix]) -> Exception:
    """Return the error for nulls: neither lists nor numbers of the targets have them."""
    verb = "is" if count == 1 else "are"
    subject = f"of the {what} in its memory, outside of its own lists," if others else f"of its {what}"
    why = f"{count:,} {subject} {verb} null, and the target has no nulls"
    if others:
        return obstacles.refuse_source(name, Reason(why, code="nulls", fixes=others))
    return obstacles.refuse_source(name, Reason(why, "replace or drop them", code="nulls", fixes=fixes))


def _row_major(obj: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(as_numpy(obj))


def _tensors() -> Any:
    from zerocopy._frameworks.pyarrow import FRAMEWORK

    return FRAMEWORK.variant("FixedShapeTensorArray")
