"""Parquet files of results have the source's logical types and values for every reader.

Each pair of frameworks converts each type; the result is written by its own framework, or by pyarrow if
that has no writer, and read by pandas, polars, DuckDB and pyarrow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.table_cases import TABLES, pa

import zerocopy as zc
from zerocopy import registry

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
pq = pytest.importorskip("pyarrow.parquet")

_MOMENTS = [datetime(1969, 12, 31, 23, 59, 59, 5), datetime(2024, 2, 29, 12), datetime(2038, 1, 19, 3, 14, 8)]
_TEXTS = ["", "Zürich", "a text longer than a view holds"]
KINDS: dict[str, Any] = {
    "bool": pa.array([True, False, True]),
    **{f"{u}int{n}": pa.array([0, 1, 100], f"{u}int{n}") for u in ("", "u") for n in (8, 16, 32, 64)},
    "float32": pa.array([0.5, -1.25, 3.0], pa.float32()),
    "float64": pa.array([0.5, -1.25, 1e300]),
    "string": pa.array(_TEXTS),
    "binary": pa.array([b"", b"\x00\xff", b"a value longer than a view holds"]),
    "date": pa.array([date(1969, 12, 31), date(2024, 2, 29), date(2038, 1, 19)]),
    "time": pa.array([time(0, 0, 1), time(12, 30), time(23, 59, 59, 999_999)], pa.time64("us")),
    "timestamp": pa.array(_MOMENTS, pa.timestamp("us")),
    "timestamp zone": pa.array(_MOMENTS, pa.timestamp("us", "UTC")),
    "duration": pa.array([timedelta(seconds=1), timedelta(hours=5), timedelta(microseconds=7)]),
    "categorical": pa.array(["b", "a", "b"]).dictionary_encode(),
    "decimal": pa.array([Decimal("-1.25"), Decimal("0.00"), Decimal("12345.67")], pa.decimal128(12, 2)),
    "list": pa.array([[], [1], [2, 3]], pa.list_(pa.int32())),
    "bool list": pa.array([[], [True], [False, True]]),
    "fixed list": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
    "struct": pa.array([{"a": 1, "b": True}, {"a": 2, "b": False}, {"a": 3, "b": True}]),
    "null": pa.nulls(3),
}


class Difference(NamedTuple):
    """A documented difference: patterns of ``source>target`` and of the reader, and the type."""

    pair: str
    reader: str
    kind: str
    family: str  #: of what is read; "unwritable" or "unreadable" if the writer or the reader raises
    reason: str


# -- sources in each framework's own types ----------------------------------------------


def _columns(table: Any) -> dict[str, Any]:
    return {name: table[name].combine_chunks() for name in table.column_names}


def _arrays(table: Any) -> dict[str, Any]:
    values = table["x"].combine_chunks()
    kind = values.type
    if values.null_count or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        pytest.skip("NumPy has no such arrays")
    if pa.types.is_timestamp(kind) and kind.tz:
        pytest.skip("NumPy has no time zones")
    array = values.to_numpy(zero_copy_only=False)
    if array.dtype.hasobject and not pa.types.is_string(kind):
        pytest.skip("NumPy holds Python objects")
    return {"x": array}


def _records(table: Any) -> Any:
    (array,) = _arrays(table).values()
    if array.dtype.hasobject:
        pytest.skip("records of Python objects")
    records = np.zeros(len(array), [("x", array.dtype), ("pad", "u1")])
    records["x"] = array
    return records[["x"]]


def _frame(**options: Any) -> Callable[[Any], Any]:
    return lambda table: table.to_pandas(**options)


SOURCES: dict[str, Callable[[Any], Any]] = {
    "numpy": _arrays,
    "records": _records,
    "pandas": _frame(),
    "pandas nullable": lambda table: table.to_pandas(ignore_metadata=True).convert_dtypes(),
    "pandas Arrow": _frame(types_mapper=pd.ArrowDtype),
    "pyarrow": lambda table: table,
    "dict": _columns,
    "polars": pl.from_arrow,
    "duckdb": lambda table: duckdb.from_arrow(table),
    "nanoarrow": lambda table: zc.convert(table, "nanoarrow"),
    "bool8": lambda table: zc.convert(table, "pyarrow", dtype={"bool": "bool8"}),
}
TARGETS = [n for n in TABLES if "cpu" in registry.by_name(n).device_kinds]


# -- files ----------------------------------------------------------------------------


def write(result: Any, path: str) -> None:
    if isinstance(result, pl.DataFrame):
        result.write_parquet(path)
    elif isinstance(result, pd.DataFrame):
        result.to_parquet(path)
    elif isinstance(result, duckdb.DuckDBPyRelation):
        result.write_parquet(path)
    elif isinstance(result, pa.Table):
        pq.write_table(result, path)
    elif hasattr(result, "to_dataframe"):
        result.to_dataframe().to_parquet(path)
    else:
        pq.write_table(zc.convert(result, "pyarrow.Table"), path)


READERS: dict[str, Callable[[str], Any]] = {
    "pandas": lambda path: pa.Table.from_pandas(pd.read_parquet(path, dtype_backend="pyarrow")),
    "polars": lambda path: pl.read_parquet(path).to_arrow(),
    "duckdb": lambda path: duckdb.read_parquet(path).to_arrow_table(),
    "pyarrow": pq.read_table,
}


def family(kind: Any) -> str:
    """Return the logical type: without offsets' widths, units, dictionaries and fixed sizes."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return f"{kind.extension_name}"
    if types.is_dictionary(kind):
        return family(kind.value_type)
    for name, test in {
        "string": lambda k: types.is_string(k) or types.is_large_string(k) or types.is_string_view(k),
        "binary": lambda k: types.is_binary(k) or types.is_large_binary(k) or types.is_binary_view(k),
        "date": types.is_date,
        "time": types.is_time,
        "duration": lambda k: types.is_duration(k) or types.is_interval(k),
        "decimal": types.is_decimal,
    }.items():
        if test(kind):
            return name
    if types.is_timestamp(kind):
        return "timestamp zone" if kind.tz else "timestamp"
    if types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {family(f.type)}' for f in kind)}>"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"list<{family(kind.value_type)}>"
    return str(kind)


def plain(value: Any) -> Any:
    """Return a value in a form that is equal for equal values of all readers."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, np.ndarray)):
        return [plain(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value
    if isinstance(value, pa.MonthDayNano):
        return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    if type(value) is date:
        return datetime(value.year, value.month, value.day)
    # pandas' floats mark nulls with NaN, and these files have no other NaN.
    return None if isinstance(value, float) and math.isnan(value) else value


#: The first that applies is expected; docs/tables/types.md, "Types in Parquet files", explains them.
DIFFERENCES = [
    Difference("bool8>(pyarrow|nanoarrow)", "duckdb", "bool", "int8", "it does not know bool8"),
    Difference("bool8>(pyarrow|nanoarrow)", "", "bool", "arrow.bool8", "it is the source's own type"),
    Difference("duckdb>(?!duckdb)", "^$", "duration", "unwritable", "intervals of months and days"),
    Difference(">duckdb", "pandas|polars|pyarrow", "duration", "unreadable", "only DuckDB reads it"),
    Difference(">(?!duckdb)", "duckdb", "duration", "int64", "Parquet has no durations"),
    Difference(">duckdb", "polars", "null", "int32", "DuckDB has no column of nulls alone"),
    Difference(">duckdb", "pandas|pyarrow", "fixed list", "unreadable", "lists that are null"),
    Difference("polars>pyarrow", "^$", "categorical", "unwritable", "no cast of their views"),
    Difference("(numpy|records)>xarray", "", "date", "timestamp", "xarray holds NumPy's days in seconds"),
]


def difference(pair: str, reader: str, kind: str) -> str:
    """Return what is expected instead of the type's family, or an empty text."""
    for each in DIFFERENCES:
        if re.search(each.pair, pair) and re.search(each.reader, reader) and each.kind == kind:
            return each.family
    return ""


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_files_keep_types_and_values(
    source: str, target: str, kind: str, nulls: bool, tmp_path: Path
) -> None:
    column = KINDS[kind]
    column = column.take(pa.array([0, None, 2])) if nulls else column
    obj = SOURCES[source](pa.table({"x": column}))
    if isinstance(obj, pd.DataFrame):
        column = pa.Table.from_pandas(obj)["x"]  # pandas' own type, such as float64 for integers with nulls
    try:
        result = zc.convert(obj, target)
    except zc.ZeroCopyError as error:
        pytest.skip(f"refused: {error.why}")
    path = str(tmp_path / "x.parquet")
    pair = f"{source}>{target}"
    if difference(pair, "", kind) == "unwritable":
        with pytest.raises((pa.ArrowNotImplementedError, duckdb.Error)):
            write(result, path)
        return
    write(result, path)
    for reader, read in READERS.items():
        other = difference(pair, reader, kind)
        if other == "unreadable":
            continue
        got = read(path)["x"]
        assert family(got.type) == (other or family(column.type)), (reader, str(got.type))
        if (reader, kind) != ("duckdb", "duration"):  # integers in the unit of the file
            assert plain(got.to_pylist()) == plain(column.to_pylist()), reader
