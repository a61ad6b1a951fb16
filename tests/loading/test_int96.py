"""INT96 timestamps of Parquet, which pyarrow reads as nanoseconds that wrap: right values, or a refusal."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import zerocopy as zc
from zerocopy.errors import LossyConversionError, ReadError

#: Spark's "no end", a day before the first nanosecond of int64, and an ordinary time.
TIMES = [
    dt.datetime(9999, 12, 31),
    dt.datetime(1677, 9, 20),
    None,
    dt.datetime(2024, 2, 29, 1, 2, 3, 4),
    dt.datetime(1, 1, 1),
]
NEAR = [None, dt.datetime(2024, 2, 29, 1, 2, 3, 4)]
COARSE = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


def written(folder: Path, values: Any, kind: Any = None, **options: Any) -> str:
    """Write a column ``t`` of INT96, and a column ``x`` of other timestamps."""
    column = values if isinstance(values, pa.Array) else pa.array(values, kind or pa.timestamp("us"))
    path = str(folder / "times.parquet")
    table = pa.table({"t": column, "x": np.arange(len(column))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2, **options)
    return path


def times(loader: Any) -> list[Any]:
    return [value for batch in loader for value in batch["t"].to_pylist()]


@pytest.mark.hazard("pyarrow#int96-timestamps")
def test_a_time_outside_the_range_of_nanoseconds_keeps_its_value(tmp_path: Path) -> None:
    path = written(tmp_path, TIMES)
    assert pq.read_table(path)["t"][0].as_py(), "pyarrow itself wraps"
    loader = zc.loader(path, to="pyarrow", batch_size=3)
    assert times(loader) == TIMES
    assert times(zc.loader([path], to="pyarrow", schema={"t": "timestamp[us]"})) == TIMES
    encoded = next(iter(zc.loader(path, to="numpy", encode=True, nulls="mask")))["t"]
    assert encoded.values.unit == "us"
    shuffled = zc.loader(path, to="pyarrow", shuffle=True)
    assert sorted(map(str, times(shuffled))) == sorted(map(str, TIMES))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("values", [TIMES, NEAR, []], ids=["far", "near", "empty"])
@pytest.mark.parametrize("shape", ["plain", "list", "struct", "map"])
@pytest.mark.parametrize("store", [True, False])
def test_each_unit_has_the_values_of_the_file_or_is_refused(
    unit: str, values: list[Any], shape: str, store: bool, tmp_path: Path
) -> None:
    def within(kind: Any) -> Any:
        nested = {"list": pa.list_(kind), "struct": pa.struct({"a": kind}), "map": pa.map_(pa.int64(), kind)}
        return nested.get(shape, kind)

    wrap = {"list": lambda v: [v], "struct": lambda v: {"a": v}, "map": lambda v: [(1, v)]}.get(shape)
    rows = values if wrap is None else [None, *map(wrap, values)]
    path = written(tmp_path, rows, within(pa.timestamp("us")), store_schema=store)
    loader = zc.loader(path, to="pyarrow", schema=pa.schema({"t": within(pa.timestamp(unit))}))
    fits = values is not TIMES if unit == "ns" else unit == "us" or values == []
    if fits:
        batches = list(loader)
        got = pa.concat_tables(batches)["t"] if batches else pa.chunked_array([], within(pa.timestamp(unit)))
        assert got.cast(within(pa.timestamp("us"))).to_pylist() == rows
        assert got.type == within(pa.timestamp(unit))
    else:
        with pytest.raises(LossyConversionError) as raised:
            list(loader)
        assert "'t'" in raised.value.why
        assert raised.value.remedy


def test_nanoseconds_below_a_microsecond_are_refused_by_default_and_kept_with_a_schema(
    tmp_path: Path,
) -> None:
    fine = pa.array([1_577_836_800_000_000_001, None], pa.timestamp("ns"))
    path = written(tmp_path, fine)
    with pytest.raises(LossyConversionError, match="nanoseconds") as raised:
        list(zc.loader(path, to="pyarrow"))
    assert 'schema={"t": "timestamp[ns]"' in raised.value.remedy
    kept = next(iter(zc.loader(path, to="pyarrow", schema={"t": "timestamp[ns]"})))
    assert kept["t"].cast(pa.int64()).to_pylist() == [fine[0].value, None]


def test_data_sets_and_open_files_of_pyarrow_do_not_wrap(tmp_path: Path) -> None:
    path = written(tmp_path, TIMES)
    assert times(zc.loader(ds.dataset(path, format=COARSE), to="pyarrow")) == TIMES
    assert times(zc.loader(ds.dataset(path), to="pyarrow", schema={"t": "timestamp[us]"})) == TIMES
    with pytest.raises(LossyConversionError):
        list(zc.loader(ds.dataset(path), to="pyarrow"))
    file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    assert times(zc.loader(file, to="pyarrow")) == TIMES
    filtered = ds.dataset(path, format=COARSE).filter(ds.field("x") >= 0)
    assert times(zc.loader(filtered, to="pyarrow")) == TIMES
    for source in (pq.ParquetFile(path), ds.dataset(path).filter(ds.field("x") >= 0)):
        with pytest.raises(ReadError, match="INT96") as raised:
            zc.loader(source, to="pyarrow")
        assert "coerce_int96_timestamp_unit" in raised.value.remedy
        batch = next(iter(zc.loader(source, to="numpy", columns=["x"])))
        assert batch["x"].tolist() == list(range(len(TIMES)))[: len(batch["x"])]
