"""Every pair of the registry with a table framework, every column type, every shape."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import numpy as np
import pytest
from helpers.table_cases import KINDS, SHAPES, TABLES, TENSORS, pa, shaped

import zerocopy as zc
from zerocopy import registry
from zerocopy.describe import describe
from zerocopy.source import Source
from zerocopy.tables import memory

HOST_TABLES = [n for n in TABLES if "cpu" in registry.by_name(n).device_kinds]
PAIRS = [(a, b) for a in HOST_TABLES for b in HOST_TABLES]


def exports_memory(obj: object) -> bool:
    """Whether an object has memory before it is read, and exports it without a copy."""
    table = describe(obj)
    if isinstance(table, Source):
        return True
    return table.read is None and not any(column.reasons for column in table.columns)


def inside(result: object, source: object) -> bool:
    """Whether the values of the result lie in memory of the source.

    Bitmaps of nulls do not count: on export, polars copies a bitmap that does not begin at a byte.
    """
    source_bounds = list(_bounds(source))
    return all(any(low <= a and b <= high for low, high in source_bounds) for a, b in _bounds(result))


def _bounds(obj: object):
    for column in describe(obj).columns:
        if hasattr(column, "chunks"):
            for chunk in column.chunks:
                yield from memory.extents(chunk, nulls=False)
        else:
            yield from column.extents()


def convert(obj: object, to: str):
    """Return the result and its plan, or None if both the plan and the conversion refuse."""
    plan = zc.explain(obj, to)
    if plan.possible:
        return zc.convert(obj, to=to), plan
    with pytest.raises(type(plan.error)) as caught:
        zc.convert(obj, to=to)
    assert caught.value.why
    assert caught.value.remedy
    return None


def same_values(converted, expected) -> None:
    """Compare two chunked columns; NaN equals NaN, and a wider type is equal."""
    converted_rows, expected_rows = converted.to_pylist(), expected.to_pylist()
    if converted.type != expected.type:
        converted_rows, expected_rows = _plainly(converted_rows), _plainly(expected_rows)
    assert converted_rows == expected_rows


def _plainly(values: list) -> list:
    def plain(value):
        if isinstance(value, (list, np.ndarray)) or type(value) is tuple:
            flat = np.ravel(value).tolist() if not any(isinstance(v, (dict, tuple)) for v in value) else value
            return [plain(v) for v in flat]
        if isinstance(value, pa.MonthDayNano):
            return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
        if hasattr(value, "as_py"):
            return plain(value.as_py())
        if type(value) is date:
            return datetime(value.year, value.month, value.day)
        return dict(value) if isinstance(value, dict) else value

    return [plain(value) for value in values]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", HOST_TABLES)
def test_round_trip_from_arrow_keeps_the_values(target: str, kind: str, shape: str) -> None:
    """A round trip keeps the values, and aliases memory if the plan does."""
    column = shaped(KINDS[kind], shape)
    source = pa.table({"x": column})
    before = column.to_pylist()
    outcome = convert(source, target)
    assert column.to_pylist() == before
    if outcome is None:
        return
    result, plan = outcome
    leaf = plan.leaves.get("['x']", plan)
    if exports_memory(result) and len(column) and column.nbytes:
        assert leaf.zero_copy == inside(result, source), str(plan)
    back = convert(result, "pyarrow.Table")
    assert back is not None
    table, _ = back
    if isinstance(table, pa.RecordBatchReader):
        table = table.read_all()
    same_values(table["x"], column)
    if table["x"].type != column.type:
        assert plan.warnings or leaf.reasons or plan.reasons, (
            f"{column.type} became {table['x'].type} in silence"
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_every_pair_of_table_frameworks_keeps_the_values(origin: str, target: str, kind: str) -> None:
    column = shaped(KINDS[kind], "nulls")
    origin_outcome = convert(pa.table({"x": column}), origin)
    if origin_outcome is None:
        pytest.skip(f"{origin} cannot hold {kind}")
    source, _ = origin_outcome
    outcome = convert(source, target)
    if outcome is None:
        return
    result, plan = outcome
    if plan.zero_copy and exports_memory(result) and exports_memory(source):
        assert zc.shares_memory(source, result)
    table = zc.convert(result, to="pyarrow.Table")
    same_values(table["x"], column)


@pytest.mark.parametrize("shape", ["plain", "nulls", "chunks", "empty"])
@pytest.mark.parametrize("target", TENSORS)
@pytest.mark.parametrize("origin", HOST_TABLES)
def test_tables_of_every_framework_give_the_same_tensors(origin: str, target: str, shape: str) -> None:
    """Every table framework gives the same numbers, for every policy for nulls."""
    columns = {n: shaped(KINDS[n], shape) for n in ("int8", "uint32", "int64", "float", "double", "bool")}
    whole = pa.table(columns)
    source = zc.convert(whole, to=origin)
    for options in ({}, {"nulls": "mask"}, {"nulls": 1}):
        plan = zc.explain(source, target, **options)
        if shape == "nulls" and not options:
            with pytest.raises(zc.LossyConversionError, match="column 'int8' has 3 nulls in 12 rows"):
                zc.convert(source, to=target)
            continue
        result = zc.convert(source, to=target, **options)
        assert list(result) == list(columns)
        for name, column in columns.items():
            values, expected = result[name], column.to_pylist()
            if "mask" in options.values():
                assert zc.convert(values.mask, "numpy").tolist() == [v is None for v in expected]
                values = values.values
            elif options:
                expected = [1 if v is None else v for v in expected]
            converted = zc.convert(values, "numpy")
            assert [v for v, e in zip(converted.tolist(), expected, strict=True) if e is not None] == [
                e for e in expected if e is not None
            ]
            leaf = plan.leaves.get(f"[{name!r}]") or plan.leaves.get(f"[{name!r}].values")
            if leaf is not None and exports_memory(source):
                assert leaf.zero_copy == zc.shares_memory(values, source), name


@pytest.mark.parametrize(
    "dtype", ["int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "bool"]
)
@pytest.mark.parametrize("target", HOST_TABLES)
def test_dicts_of_tensors_become_tables(target: str, dtype: str) -> None:
    whole = (np.arange(24) % 2).astype(dtype).reshape(12, 2)
    columns = {"flat": whole[:, 0].copy(), "strided": whole[:, 0], "again": np.flip(whole[:, 1])}
    outcome = convert(columns, target)
    if outcome is None:
        assert dtype == "float16"
        return
    result, plan = outcome
    if exports_memory(result):
        assert plan.leaves["['flat']"].zero_copy == zc.shares_memory(columns["flat"], result)
    table = zc.convert(result, to="pyarrow.Table")
    for name, column in columns.items():
        assert _plainly(table[name].to_pylist()) == column.tolist(), name


@pytest.mark.parametrize("origin", TENSORS)
@pytest.mark.parametrize("target", HOST_TABLES)
def test_tensors_of_every_framework_become_tables(origin: str, target: str) -> None:
    x = np.arange(12, dtype="f4")
    tensor = zc.convert(x, to=origin)
    table = zc.convert({"a": tensor, "b": tensor}, to=target)
    back = zc.convert(table, to=origin)
    assert zc.convert(back["b"], "numpy").tolist() == x.tolist()
    two = zc.convert(zc.convert(x.reshape(6, 2), to=origin), to=target, names=["left", "right"])
    back = zc.convert(two, to="numpy")
    assert {k: v.tolist() for k, v in back.items()} == {"left": x[::2].tolist(), "right": x[1::2].tolist()}


@pytest.mark.parametrize("target", HOST_TABLES)
def test_tensors_that_are_not_tables_are_refused(target: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="3 names for 2 columns"):
        zc.convert(np.ones((4, 2)), to=target, names=["a", "b", "c"])
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'a'"):
        zc.convert(np.ones((4, 2)), to=target, names=["a", "a"])
    with pytest.raises(zc.UnsupportedConversionError, match="differ in length"):
        zc.convert({"a": np.ones(3), "b": np.ones(4)}, to=target)
    with pytest.raises(zc.UnsupportedConversionError, match="column 'b'"):
        zc.convert({"a": np.ones(3), "b": 1.5}, to=target)
    if registry.by_name(target).kind == "table":
        with pytest.raises(zc.UnsupportedConversionError, match="is not a table") as caught:
            zc.convert(np.ones((4, 2, 2)), to=target)
        assert '{"name": x}' in caught.value.remedy
        plain = zc.convert(zc.convert(np.ones((4, 2)), to=target), to="numpy")
        assert list(plain) == ["column_0", "column_1"]


@pytest.mark.parametrize("target", HOST_TABLES)
def test_tensors_of_more_dimensions_become_columns_of_tensors(target: str) -> None:
    x = np.arange(24, dtype="f4").reshape(4, 3, 2)
    outcome = convert({"x": x, "y": np.arange(4)}, target)
    if outcome is None:
        return
    converted = zc.convert(outcome[0], to="numpy")["x"]
    np.testing.assert_array_equal(converted, x)


@pytest.mark.parametrize(("origin", "target"), PAIRS)
def test_order_names_and_selection_are_kept(origin: str, target: str) -> None:
    whole = pa.table({"b": [1, 2], "a": [3, 4], "Ä ö": [5, 6], " ": [7, 8]})
    origin_outcome = convert(whole, origin)
    if origin_outcome is None:
        pytest.fail(f"{origin} refuses such names")
    outcome = convert(origin_outcome[0], target)
    assert outcome is not None
    back = zc.convert(outcome[0], to="pyarrow.Table")
    assert back.to_pydict() == whole.to_pydict()
    assert back.column_names == whole.column_names
    some = zc.convert(zc.convert(origin_outcome[0], to=target, columns=["a", "b"]), to="numpy")
    assert {k: v.tolist() for k, v in some.items()} == {"a": [3, 4], "b": [1, 2]}
    assert list(some) == ["a", "b"]


@pytest.mark.parametrize("target", HOST_TABLES)
def test_column_that_no_target_can_hold_is_named(target: str) -> None:
    if target in ("pandas", "xarray"):  # they hold complex numbers, which Arrow lacks
        assert zc.convert({"bad": np.ones(2, "c8")}, to=target)["bad"].dtype == np.complex64
        return
    with pytest.raises(zc.UnsupportedConversionError, match="'bad'"):
        zc.convert({"good": np.ones(2), "bad": np.ones(2, "c8")}, to=target)


@pytest.mark.parametrize("target", HOST_TABLES)
def test_empty_column_name_is_kept_or_refused(target: str) -> None:
    whole = pa.table({"a": [1], "": [2], "b": [3]})
    outcome = convert(whole, target)
    if outcome is not None:
        assert zc.convert(outcome[0], to="pyarrow.Table").column_names == ["a", "", "b"]


@pytest.mark.parametrize("target", HOST_TABLES)
def test_duplicate_names_are_kept_or_refused(target: str) -> None:
    """The fast path, cached after the first call, refuses the same names as the slow path."""
    zc.convert(pa.table({"a": [1], "b": [2]}), to=target)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    outcome = convert(twice, target)
    if outcome is not None:
        back = zc.convert(outcome[0], to="pyarrow.Table")
        assert back.column_names == ["a", "a"]
        assert [column.to_pylist() for column in back.columns] == [[1], [2]]
