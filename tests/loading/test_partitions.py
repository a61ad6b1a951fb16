"""Values of partitions, text in the names of folders: cast to the types in ``schema=``, or refused."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather

import zerocopy as zc
from zerocopy.errors import LossyConversionError, ReadError


def folders(base: Path, name: str, values: list[str]) -> str:
    for number, value in enumerate(values):
        folder = base / f"{name}={quote(value, safe='')}"
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"x": [number]}), folder / f"{number}.parquet")
    return str(base)


def test_a_date_and_a_code_with_a_zero_have_the_types_of_the_schema(tmp_path: Path) -> None:
    path = folders(tmp_path, "day", ["2024-01-01", "2024-02-03"])
    batch = next(iter(zc.loader(path, to="pyarrow", schema={"x": "int64", "day": "date32"})))
    assert batch["day"].to_pylist() == [dt.date(2024, 1, 1), dt.date(2024, 2, 3)]


CASES: list[tuple[str, Any, list[Any] | None]] = [
    ("01", "string", ["01"]),
    ("01", pa.string_view(), ["01"]),
    ("01", "large_string", ["01"]),
    ("01", "binary", [b"01"]),
    ("01", "int8", [1]),
    ("01", "float64", [1.0]),
    ("01", pa.decimal128(5, 2), [decimal.Decimal("1.00")]),
    ("01", pa.dictionary(pa.int8(), pa.string()), ["01"]),
    ("01", "date32", None),
    ("01", "timestamp[s]", None),
    ("01", pa.list_(pa.int8()), None),
    ("01", "time32[s]", None),
    ("300", "int8", None),
    ("-1", "uint8", None),
    ("2024-05-06", "date32", [dt.date(2024, 5, 6)]),
    ("2024-05-06", "timestamp[ms]", [dt.datetime(2024, 5, 6)]),
    ("2024-05-06", "int32", None),
    ("true", "bool", [True]),
    ("a b/é", "string", ["a b/é"]),
    ("a b/é", "float64", None),
    ("__HIVE_DEFAULT_PARTITION__", "int32", [None]),
]


@pytest.mark.parametrize(("text", "kind", "expected"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_the_text_of_a_folder_is_cast_to_each_type_or_refused(
    text: str, kind: Any, expected: list[Any] | None, tmp_path: Path
) -> None:
    path = folders(tmp_path, "p", [text, text])
    arrow = tmp_path / "arrow" / f"p={quote(text, safe='')}"
    arrow.mkdir(parents=True)
    for number in range(2):
        feather.write_feather(pa.table({"x": [number]}), arrow / f"{number}.arrow")
    for source in (f"{path}/p=*/*.parquet", f"{path}/*/*.parquet", str(arrow.parent)):
        for shuffle in (False, True):
            options: dict[str, Any] = {"schema": {"p": kind}, "shuffle": shuffle}
            if expected is None:
                with pytest.raises(LossyConversionError) as raised:
                    list(zc.loader(source, to="pyarrow", **options))
                assert text in raised.value.why or "Unsupported" in raised.value.why
                continue
            table = pa.concat_tables(zc.loader(source, to="pyarrow", **options))
            assert table["p"].to_pylist() == expected * 2
            assert table.schema.equals(pa.schema({"p": table["p"].type}))


def test_columns_of_partitions_without_a_schema_have_inferred_types(tmp_path: Path) -> None:
    path = folders(tmp_path, "n", ["01", "12"])
    batch = next(iter(zc.loader(path, to="pyarrow")))
    assert batch["n"].to_pylist() == [1, 12]
    chosen = next(iter(zc.loader(path, to="numpy", columns=["n"])))
    assert chosen["n"].tolist() == [1, 12]


LAYOUTS: dict[str, list[str]] = {
    "absent first": ["", "k=1", "k=2"],
    "absent last": ["k=1", "l"],
    "different keys": ["j=1", "k=a"],
    "nested in one": ["j=1", "j=2/k=a"],
    "null": ["k=__HIVE_DEFAULT_PARTITION__", "k=3"],
    "same name as a column": ["z=6", "z=7"],
    "same name in some": ["a", "z=7"],
}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_columns_of_partitions_are_those_of_pyarrow(layout: str, suffix: str, tmp_path: Path) -> None:
    for number, name in enumerate(LAYOUTS[layout]):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        table = pa.table({"x": [number], "z": pa.array([5], pa.int32())})
        if suffix == "csv":  # pyarrow infers int64, which is not the type of a folder
            csv.write_csv(table.select(["x"]), tmp_path / name / "part.csv")
        elif suffix == "arrow":
            feather.write_feather(table, tmp_path / name / "part.arrow", compression="uncompressed")
        else:
            pq.write_table(table, tmp_path / name / "part.parquet")
    expected = ds.dataset(tmp_path, partitioning="hive", format=suffix).to_table()
    table = pa.concat_tables(zc.loader(str(tmp_path), to="pyarrow"))
    assert table.equals(expected)
    for name in expected.column_names:
        chosen = pa.concat_tables(zc.loader(str(tmp_path), to="pyarrow", columns=[name]))
        assert chosen.equals(expected.select([name]))


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_folder_and_a_column_of_different_types(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "x=7").mkdir()
    table = pa.table({"x": [5], "y": [1.5]})
    path = tmp_path / "x=7" / f"part.{suffix}"
    pq.write_table(table, path) if suffix == "parquet" else csv.write_csv(table, path)
    with pytest.raises(ReadError, match="a folder and a column have one name") as raised:
        zc.loader(str(tmp_path), to="pyarrow")
    assert raised.value.code == "schema-drift"
    read = pa.concat_tables(zc.loader(str(tmp_path), to="pyarrow", schema={"x": "int64", "y": "float64"}))
    assert read.to_pydict() == {"x": [7], "y": [1.5]}
