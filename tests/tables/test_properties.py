"""Tables from pyarrow's Hypothesis strategies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.oracle import agrees
from helpers.table_cases import TABLES, pa, rows
from helpers.versions import has
from hypothesis import HealthCheck, given, settings, strategies as st

import zerocopy as zc
from zerocopy import registry

past = pytest.importorskip("pyarrow.tests.strategies")

HOST_TABLES = [n for n in TABLES if "cpu" in registry.by_name(n).device_kinds]
QUIET = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    derandomize=True,
)

# With a zone, because pyarrow's strategies skip timestamps without one; they also reject every decimal.
# The strategies of pyarrow 24 look a fixed offset up as a name, and fail.
_ZONES = ["UTC", "Europe/Paris", *(["+05:45"] if has("pyarrow", "26") else [])]
_ZONED = st.builds(
    pa.timestamp,
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    tz=st.sampled_from(_ZONES),
)
_LEAVES = st.one_of(
    past.bool_type,
    past.integer_types,
    past.floating_types,
    past.date_types,
    past.time_types,
    _ZONED,
    past.duration_types,
    past.string_type,
    past.binary_type,
    past.large_string_type,
    past.large_binary_type,
)
_TYPES = st.one_of(
    _LEAVES,
    past.list_types(_LEAVES),
    past.struct_types(_LEAVES),
    past.list_types(past.list_types(_LEAVES)),
)


_CHUNKED = past.chunked_arrays(_LEAVES, min_chunks=0, max_chunks=3, chunk_size=st.integers(0, 5))


def _small(types):
    return past.arrays(types, size=st.integers(0, 8))


def storage(array) -> list:
    """Return an array's storage: integers for dates, times and decimals, at every level."""
    kind, types = array.type, pa.types
    if types.is_struct(kind):
        fields = {f.name: storage(array.field(i)) for i, f in enumerate(kind)}
        items = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
        items = items if fields else [{} for _ in range(len(array))]
    elif types.is_list(kind) or types.is_large_list(kind) or "list" in str(kind).partition("<")[0]:
        items = [storage(row.values) if row.is_valid else None for row in array]
    elif types.is_temporal(kind):
        items = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    else:
        items = array.to_pylist()
    return [
        value if valid else None for value, valid in zip(items, array.is_valid().to_pylist(), strict=True)
    ]


def alike(left: object, right: object) -> bool:
    """Compare nested lists and dicts; NaN is NaN, and -0.0 is not 0.0."""
    if isinstance(right, dict):
        return isinstance(left, dict) and all(alike(left[key], right[key]) for key in right)
    if isinstance(right, (list, tuple, np.ndarray)) and isinstance(left, (list, tuple, np.ndarray)):
        return len(left) == len(right) and all(map(alike, left, right))
    if isinstance(right, float) and isinstance(left, float):
        both = math.isnan(left) and math.isnan(right)
        return both or (left == right and math.copysign(1, left) == math.copysign(1, right))
    return left == right


@QUIET
@given(_small(_TYPES))
def test_encoded_array_keeps_its_values(array) -> None:
    plan = zc.explain(array, "numpy", nulls="mask", encode=True)
    if not plan.possible:
        assert plan.error.remedy
        return
    result = zc.convert(array, to="numpy", nulls="mask", encode=True)
    assert alike(rows(result), storage(array))


@QUIET
@given(st.data())
@pytest.mark.parametrize("target", HOST_TABLES)
def test_round_trip_keeps_the_table(target: str, data) -> None:
    columns = data.draw(st.lists(_CHUNKED, min_size=1, max_size=3))
    size = min(map(len, columns))
    table = pa.table({f"c{i}": column.slice(0, size) for i, column in enumerate(columns)})
    plan = zc.explain(table, target)
    if not plan.possible:
        assert "column 'c" in str(plan.error)
        return
    arrow_table = zc.convert(table, to=target)
    try:
        back = zc.convert(arrow_table, to="pyarrow.Table")
    except zc.LossyConversionError:
        return  # DuckDB's results cannot hold all of its intervals, and such a query is refused
    assert back.num_rows == table.num_rows
    for name in table.column_names:
        if back[name].type == table[name].type:
            assert alike(back[name].to_pylist(), table[name].to_pylist()), table[name].type
        else:
            assert plan.warnings or plan.leaves[f"[{name!r}]"].reasons, table[name].type


@QUIET
@given(_small(_LEAVES), st.sampled_from([None, "mask", "nan", 0, 1]), st.booleans())
def test_explain_agrees_with_convert(array, nulls: object, encode: bool) -> None:
    for source in (array, pa.table({"x": array})):
        for copy in (None, False):
            agrees(source, "numpy", nulls=nulls, encode=encode, copy=copy)


def test_the_error_for_elements_of_a_part_has_a_fix_for_the_whole() -> None:
    kind = pa.list_(pa.list_(pa.date32(), 2))
    for array in (pa.array([], kind), pa.array([[[1, 2]]], kind)):
        error = zc.explain(array, "numpy", nulls="mask", encode=True).error
        assert error is not None
        assert error.calls == ("x.to_pylist()",)
