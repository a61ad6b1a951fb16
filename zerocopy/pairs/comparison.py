"""Compares a column that a framework returns with the original column, as Arrow arrays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import zerocopy
from zerocopy import registry
from zerocopy.framework import FrameworkName
from zerocopy.pairs.conversion import plan_reasons

#: The label of the only column of each table.
LABEL = "x"

_HUB = FrameworkName("pyarrow")


def table_of_column(column: Any) -> Any:
    """Return a ``pyarrow.Table`` of one column, called `LABEL`."""
    return registry.by_name(_HUB).module().table({LABEL: column})


def column_of(obj: Any) -> Any:
    """Return the one column of any table, as ``pyarrow.ChunkedArray``; raise ValueError for other objects."""
    back = zerocopy.convert(obj, to=_HUB)
    labels = getattr(back, "column_names", None)
    if labels != [LABEL]:
        text = type(back).__name__ if labels is None else f"table with the columns {', '.join(labels)}"
        raise ValueError(f"converted back, it is a {text}")
    return back.column(0)


def changes_type(obj: Any) -> bool:
    """Whether the plan for converting an object to Arrow reports a change or a copy."""
    plan = zerocopy.explain(obj, _HUB)
    return bool(plan.warnings or plan_reasons(plan))


def column_differences(expected: Any, actual: Any, allow_type_change: bool) -> list[str]:
    """Return how two ``pyarrow.ChunkedArray`` differ; in type too, unless a plan reports the change."""
    if len(actual) != len(expected):
        return [f"it has {len(actual):,} rows, not {len(expected):,}"]
    differences = []
    if type_family(actual.type) != type_family(expected.type) and not allow_type_change:
        differences.append(f"the type is {actual.type}, not {expected.type}, and the plan does not report it")
    ours, theirs = _storage(expected), _storage(actual)
    if ours.type != theirs.type:
        theirs = _cast(theirs, ours.type)
    if ours.type == theirs.type and ours.equals(theirs):
        return differences
    return differences + row_differences(ours.to_pylist(), theirs.to_pylist())


def row_differences(ours: list[Any], theirs: list[Any]) -> list[str]:
    """Return the number of rows that differ, if any; NaN equals NaN."""
    if len(ours) != len(theirs):
        return [f"it has {len(theirs):,} rows, not {len(ours):,}"]
    count = sum(a != b and repr(a) != repr(b) for a, b in zip(ours, theirs, strict=True))
    return [f"{count:,} of {len(ours):,} values differ"] if count else []


def tensor_rows(column: Any) -> list[Any]:
    """Return a column's rows as tensors represent them: integers for dates and times."""
    pa = registry.by_name(_HUB).module()
    kind, types = column.type, pa.types
    if hasattr(kind, "storage_type"):
        column = _storage(column)
    elif types.is_temporal(kind) and not types.is_interval(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif types.is_fixed_size_binary(kind):
        return [None if row is None else list(row) for row in column.to_pylist()]
    return list(column.to_pylist())


def type_family(kind: Any) -> str:
    """Return a type's name without details that do not affect values: widths of offsets and codes."""
    name = str(kind)
    if hasattr(kind, "extension_name"):
        return "bool" if kind.extension_name == "arrow.bool8" else type_family(kind.storage_type)
    if name.startswith("dictionary"):
        return f"dictionary<{type_family(kind.value_type)}>"
    if name.startswith("struct"):
        return f"struct<{', '.join(f'{f.name}: {type_family(f.type)}' for f in kind)}>"
    if name.startswith("fixed_size_list"):
        return f"fixed_size_list<{type_family(kind.value_type)}>[{kind.list_size}]"
    if name.startswith(("list", "large_list")):
        return f"list<{type_family(kind.value_type)}>"
    return name.removeprefix("large_").removesuffix("_view")


def _storage(column: Any) -> Any:
    """Return a column's storage; floats as their bits, so that NaN equals NaN."""
    pa = registry.by_name(_HUB).module()
    kind, chunks = column.type, column.chunks
    if hasattr(kind, "extension_name"):
        is_bool = kind.extension_name == "arrow.bool8"
        kind, chunks = kind.storage_type, [chunk.storage for chunk in chunks]
        if is_bool:
            kind, chunks = pa.bool_(), [chunk.cast(pa.bool_()) for chunk in chunks]
    if pa.types.is_floating(kind):
        bits = getattr(pa, f"int{kind.bit_width}")()
        kind, chunks = bits, [chunk.view(bits) for chunk in chunks]
    return pa.chunked_array(chunks, type=kind)


def _cast(column: Any, kind: Any) -> Any:
    """Return a column in another type, or unchanged if Arrow cannot cast it."""
    pa = registry.by_name(_HUB).module()
    if pa.types.is_interval(column.type) and pa.types.is_duration(kind):
        rows = [None if row is None else _duration(row) for row in column.to_pylist()]
        return column if False in rows else pa.chunked_array([pa.array(rows, kind)])
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return column


def _duration(interval: Any) -> timedelta | bool:
    """Return an interval as a duration; False if it has months."""
    months, days, nanoseconds = interval
    return False if months else timedelta(days, microseconds=nanoseconds / 1000)
