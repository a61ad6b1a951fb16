"""``convert`` and ``explain`` refuse dates, times and durations outside a target's range, at every depth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.table_cases import TABLES, pa

import zerocopy as zc
from zerocopy import registry

HOST_TABLES = [n for n in TABLES if "cpu" in registry.by_name(n).device_kinds and n != "datasets"]
PER_SECOND = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
MOST, MOST_DAYS = 2**63 - 1, 2**31 - 1
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]


def column(kind: Any, values: list[int | None]) -> Any:
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def nested(array: Any) -> dict[str, Any]:
    """Return an array of two rows alone and inside other types."""
    return {
        "alone": array,
        "chunks": pa.chunked_array([array[1:], array[:1]]),
        "list": pa.ListArray.from_arrays([0, 2], array),
        "fixed": pa.FixedSizeListArray.from_arrays(array, 2),
        "struct": pa.StructArray.from_arrays([array], ["t"]),
        "categories": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), array),
    }


def refused(table: Any, to: str) -> bool:
    """Whether a conversion is refused for the values; ``explain`` and ``convert`` must agree."""
    plan = zc.explain(table, to)
    if plan.possible:
        zc.convert(table, to)
        return False
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(table, to)
    assert plan.error.code == caught.value.code == "out-of-range"
    return True


@pytest.mark.hazard("polars#times-outside-the-day")
@pytest.mark.parametrize("kind", TIMES, ids=str)
def test_times_outside_the_day_are_refused_at_every_depth(kind: Any) -> None:
    day = 86_400 * PER_SECOND[kind.unit]
    for value, in_polars, in_duckdb in [
        (day - 1, True, True),
        (day, False, True),
        (day + 1, False, False),
        (-1, False, False),
        (2**31 - 1, kind.unit in ("us", "ns"), kind.unit in ("us", "ns")),
    ]:
        for array in nested(column(kind, [value, None])).values():
            table = pa.table({"first": pa.nulls(len(array)), "t": array})
            for _ in range(2):  # the second call may take a route
                assert refused(table, "polars") != in_polars, (value, array.type)
                assert refused(table, "duckdb") != in_duckdb, (value, array.type)
    hidden = pa.ListArray.from_arrays(pa.array([0, None, 1], pa.int32()), column(kind, [day]))
    unused = hidden.slice(1)  # no row refers to the item
    assert not refused(pa.table({"t": unused}), "polars")


@pytest.mark.hazard("duckdb#extreme-dates-and-times")
@pytest.mark.parametrize(
    ("kind", "largest"),
    [
        (pa.date32(), MOST_DAYS - 1),
        (pa.date64(), (MOST_DAYS - 1) * 86_400_000),
        (pa.timestamp("s"), MOST // 10**6),
        (pa.timestamp("ms", "UTC"), MOST // 1000),
        (pa.timestamp("us"), MOST - 1),
        (pa.timestamp("ns", "Europe/Paris"), MOST - 1),
        (pa.duration("s"), MOST // 10**6),
        (pa.duration("ms"), MOST // 1000),
    ],
    ids=str,
)
def test_dates_that_duckdb_would_change_are_refused(kind: Any, largest: int) -> None:
    step = 86_400_000 if kind == pa.date64() else 1
    for value in (largest, -largest):
        table = pa.table({"t": column(kind, [value, None])})
        assert not refused(table, "duckdb")
        count = zc.convert(table, "duckdb").filter("t IS NOT NULL").shape[0]
        assert count == 1  # the query runs: larger seconds end it, and invalidate the database
        for array in nested(column(kind, [value + (step if value > 0 else -step), None])).values():
            assert refused(pa.table({"t": array}), "duckdb"), array.type


KINDS = [
    *(pa.timestamp(unit, zone) for unit in PER_SECOND for zone in (None, "Europe/Paris")),
    *map(pa.duration, PER_SECOND),
    *(pa.date32(), pa.date64(), *TIMES),
]


def instants(array: Any) -> list[int | None]:
    """Return values as nanoseconds, or as months and others for intervals."""
    kind = array.type
    if pa.types.is_interval(kind):
        return [None if v is None else v.nanoseconds for v in array.to_pylist()]
    scale = 10**9 // PER_SECOND[getattr(kind, "unit", "ms")] if kind != pa.date32() else 86_400 * 10**9
    counts = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    return [None if v is None else v * scale for v in counts]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("to", HOST_TABLES)
@pytest.mark.parametrize("source", HOST_TABLES)
def test_extreme_values_are_kept_or_refused(source: str, to: str, kind: Any) -> None:
    most = 2 ** (kind.bit_width - 1) - 1
    day = 86_400_000 if kind == pa.date64() else 1
    for value in (1, most, -most, 10**18 if kind.bit_width == 64 else 86_400):
        array = column(kind, [int(value > 0 or -1) * (abs(value) // day * day), None])
        try:
            origin = zc.convert(pa.table({"t": array}), source)
        except zc.LossyConversionError:
            continue
        plan = zc.explain(origin, to)
        try:
            result = zc.convert(origin, to)
            back = zc.convert(result, "pyarrow.Table")["t"]
        except (
            zc.LossyConversionError,
            zc.UnsupportedConversionError,
        ):  # DuckDB knows values when it has read
            assert not plan.possible or "duckdb" in (source, to)
            continue
        assert plan.possible
        if kind == pa.duration("us") and "duckdb" in (source, to) and abs(value) == most:
            continue  # DuckDB holds it, and exports -1: see `_below_us`
        assert instants(back.combine_chunks()) == instants(array), value


INTERVALS = pa.array([pa.MonthDayNano([1, 2, 3000]), None])
FRACTIONS = np.array([1500, -1], "m8[ns]")


@pytest.mark.parametrize("source", ["arrow", "polars", "pandas", "numpy", "xarray", "nanoarrow", "dict"])
@pytest.mark.parametrize("is_table", [False, True])
def test_fractions_of_a_microsecond_have_a_fix_for_each_object(source: str, is_table: bool) -> None:
    table = pa.table({"t": pa.array(FRACTIONS)})
    x = {
        "arrow": table if is_table else table["t"],
        "dict": {"t": FRACTIONS},
        "numpy": FRACTIONS,
    }.get(source)
    if x is None:
        x = zc.convert(table if is_table else table["t"], source)
    if source == "nanoarrow" and is_table:
        return  # it has no call that replaces a column
    error = zc.explain(x, "duckdb").error
    assert error is not None
    assert error.calls
    for call in error.calls:
        result = pasted(call, {"x": x, "zc": zc})
        assert result.fetchall()[0][0].microseconds == 1


@pytest.mark.parametrize("to", ["polars", "numpy", "torch"])
@pytest.mark.parametrize("rows", [2, 1])
@pytest.mark.parametrize("source", ["pyarrow.Table", "pyarrow.Array", "pandas", "nanoarrow", "dict"])
def test_intervals_have_a_fix_for_each_object(source: str, rows: int, to: str) -> None:
    array = INTERVALS[:rows]
    x: Any = {"pyarrow.Array": array, "dict": {"t": array}, "pyarrow.Table": pa.table({"t": array})}.get(
        source
    )
    if x is None:
        x = zc.convert(array if source == "nanoarrow" else pa.table({"t": array}), source)
    error = zc.explain(x, to).error
    assert error is not None
    assert error.calls
    for call in error.calls:
        pasted(call, {"x": x, "zc": zc})
