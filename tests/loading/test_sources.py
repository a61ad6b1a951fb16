"""``loader``: each kind of source returns its rows, in order, in each epoch, and with chosen columns."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from helpers.source_data import ROWS, columns_of, read, small_table, write_files

import zerocopy as zc
from zerocopy.loading.read_error import ReadError

EXPECTED = small_table().to_pydict()
BACKWARDS = [*range(ROWS - 1, -1, -1)]


def parquet(folder: Path) -> str:
    path = str(folder / "a.parquet")
    pq.write_table(small_table(), path, row_group_size=3)
    return path


def written(name: str, write: Callable[[pa.Table, str], Any]) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        write(small_table(), str(folder / name))
        return str(folder / name)

    return make


def ipc_stream(table: pa.Table, path: str) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


def json_lines(table: pa.Table, path: str) -> None:
    lines = [f'{{"x": {row["x"]}, "y": {row["y"]}}}' for row in table.to_pylist()]
    Path(path).write_text("\n".join(lines) + "\n")


def structured(table: pa.Table, path: str) -> None:
    records = np.zeros(table.num_rows, [("x", "f8"), ("y", "i8")])
    for name in ("x", "y"):
        records[name] = table[name].to_numpy()
    np.save(path, records)


def arrays(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].to_numpy() for name in table.column_names}


def memory_url(folder: Path) -> str:
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{folder.name}/a.parquet"
    with fsspec.open(url, "wb") as file:
        pq.write_table(small_table(), file)
    return url


def from_framework(name: str, make: Callable[[Any, Path], Any]) -> Callable[[Path], Any]:
    return lambda folder: make(pytest.importorskip(name), folder)


#: Sources with the rows of `small_table` that can be read again.
SOURCES: dict[str, Callable[[Path], Any]] = {
    "path": parquet,
    "pathlib.Path": lambda folder: Path(parquet(folder)),
    "list": lambda folder: [parquet(folder)],
    "directory": lambda folder: str(Path(parquet(folder)).parent),
    "glob": lambda folder: parquet(folder).replace("a.par", "*.par"),
    "recursive glob": lambda folder: str(Path(parquet(folder)).parent / "**" / "a.parquet"),
    "file URL": lambda folder: Path(parquet(folder)).as_uri(),
    "fsspec URL": memory_url,
    "list of fsspec URLs": lambda folder: [memory_url(folder)],
    "fsspec glob": lambda folder: memory_url(folder).replace("a.parquet", "*.parquet"),
    "fsspec directory": lambda folder: memory_url(folder).rpartition("/")[0],
    "Feather": written("a.feather", pyarrow.feather.write_feather),
    "IPC stream": written("a.arrow", ipc_stream),
    "CSV": written("a.csv", pyarrow.csv.write_csv),
    "JSON": written("a.jsonl", json_lines),
    "ORC": written("a.orc", pyarrow.orc.write_table),
    "structured .npy": written("a.npy", structured),
    ".npz": written("a.npz", lambda table, path: np.savez(path, **arrays(table))),
    "compressed .npz": written("a.npz", lambda table, path: np.savez_compressed(path, **arrays(table))),
    "pyarrow.dataset": lambda folder: ds.dataset(parquet(folder)),
    "filtered dataset": lambda folder: ds.dataset(parquet(folder)).filter(ds.field("x") >= 0),
    "dataset in memory": lambda folder: ds.dataset(small_table()),
    "dataset of CSV files": lambda folder: ds.dataset(SOURCES["CSV"](folder), format="csv"),
    "Scanner": lambda folder: ds.dataset(parquet(folder)).scanner(),
    "ParquetFile": lambda folder: pq.ParquetFile(parquet(folder)),
    "Table": lambda folder: pa.concat_tables([small_table(0, 3), small_table(3, 7)]),
    "RecordBatch": lambda folder: small_table().to_batches()[0],
    "polars.DataFrame": from_framework("polars", lambda pl, folder: pl.DataFrame(small_table())),
    "polars.LazyFrame": from_framework("polars", lambda pl, folder: pl.DataFrame(small_table()).lazy()),
    "polars.scan_parquet": from_framework("polars", lambda pl, folder: pl.scan_parquet(parquet(folder))),
    "DuckDB relation": from_framework("duckdb", lambda duckdb, folder: duckdb.read_parquet(parquet(folder))),
    "pandas.DataFrame": from_framework("pandas", lambda pd, folder: small_table().to_pandas()),
    "datasets.Dataset": from_framework("datasets", lambda hf, folder: hf.Dataset(small_table())),
    "selected datasets.Dataset": from_framework(
        "datasets", lambda hf, folder: hf.Dataset(small_table(-5, 20)).select(range(5, 15))
    ),
    "indexed datasets.Dataset": from_framework(
        "datasets", lambda hf, folder: hf.Dataset(small_table().take(BACKWARDS)).select(BACKWARDS)
    ),
    "datasets.IterableDataset": from_framework(
        "datasets", lambda hf, folder: hf.Dataset(small_table()).to_iterable_dataset()
    ),
    "dict of arrays": lambda folder: arrays(small_table()),
    "structured array": lambda folder: np.load(SOURCES["structured .npy"](folder)),
    "object with __arrow_c_stream__": lambda folder: Exporter(small_table()),
}  # fmt: skip


class Exporter:
    """A table of an unknown library."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", SOURCES)
def test_rows_of_a_source(kind: str, tmp_path: Path) -> None:
    loader = zc.loader(SOURCES[kind](tmp_path), to="numpy", batch=4)
    assert columns_of(loader) == EXPECTED
    assert columns_of(loader) == EXPECTED, "in the second epoch"


@pytest.mark.parametrize("kind", SOURCES)
def test_shuffled_rows_of_a_source(kind: str, tmp_path: Path) -> None:
    columns = read(SOURCES[kind](tmp_path), shuffle=True, seed=1)
    assert sorted(columns["y"]) == EXPECTED["y"] != columns["y"]
    assert columns["x"] == columns["y"]


@pytest.mark.parametrize("kind", SOURCES)
def test_chosen_columns_of_a_source(kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind](tmp_path)
    columns = read(source, columns=["y", "x"])
    assert list(columns) == ["y", "x"]
    assert columns == EXPECTED
    assert read(source, columns=["y"]) == {"y": EXPECTED["y"]}


@pytest.mark.parametrize("kind", SOURCES)
def test_an_unknown_column_is_refused_with_the_names(kind: str, tmp_path: Path) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=r"'xx'.*'x'") as raised:
        zc.loader(SOURCES[kind](tmp_path), to="numpy", columns=["xx"])
    assert raised.value.code == "unknown-name"
    assert "choose from 'x', 'y'" in raised.value.remedy


@pytest.mark.parametrize("kind", SOURCES)
def test_a_schema_casts_a_source(kind: str, tmp_path: Path) -> None:
    schema = {"y": "int32", "z": np.float32, "x": pa.float32()}
    table = pa.concat_tables(
        zc.loader(SOURCES[kind](tmp_path), to="pyarrow", batch=4, schema=schema), promote_options="none"
    )
    assert table.schema.types == [pa.int32(), pa.float32(), pa.float32()]
    assert table["z"].null_count == ROWS
    assert table["y"].to_pylist() == EXPECTED["y"]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_fingerprint_depends_on_the_rows_alone(kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind](tmp_path)
    states = [zc.loader(source, to="numpy").state_dict() for _ in range(2)]
    assert states[0] == states[1]


def test_a_fingerprint_is_the_same_for_a_moved_folder(tmp_path: Path) -> None:
    write_files(tmp_path, 2)
    first = zc.loader(f"{tmp_path}/*.parquet", to="numpy").state_dict()["source"]
    shutil.copytree(tmp_path, tmp_path / "copy", copy_function=shutil.copy2)
    assert zc.loader(f"{tmp_path}/copy", to="numpy").state_dict()["source"] == first
    os.utime(tmp_path / "copy" / "part-0.parquet", (1, 1))
    assert zc.loader(f"{tmp_path}/copy", to="numpy").state_dict()["source"] != first


def test_a_fingerprint_differs_for_other_values() -> None:
    sources = [small_table(), small_table(1), arrays(small_table()), arrays(small_table(1))]
    assert len({zc.loader(each, to="numpy").state_dict()["source"] for each in sources}) == 4


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    paths = write_files(tmp_path, 3)
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes.md").write_text("text")
    assert read(str(tmp_path))["y"] == [*range(30)]
    assert read(paths[::-1])["y"] == [*range(20, 30), *range(10, 20), *range(10)]


def test_a_path_with_the_signs_of_a_pattern_is_a_path(tmp_path: Path) -> None:
    pq.write_table(small_table(), tmp_path / "a[1].parquet")
    assert read(str(tmp_path / "a[1].parquet")) == EXPECTED


def test_partitions_become_columns(tmp_path: Path) -> None:
    for year in (2023, 2024):
        folder = tmp_path / f"year={year}" / f"kind=k{year}"
        folder.mkdir(parents=True)
        pq.write_table(small_table(), folder / "part.parquet")
    for source in (str(tmp_path), f"{tmp_path}/*/*/*.parquet", ds.dataset(tmp_path, partitioning="hive")):
        columns = read(source, columns=["year", "y"])
        assert columns == {"year": [2023] * ROWS + [2024] * ROWS, "y": EXPECTED["y"] * 2}
        assert read(source, columns=["year"])["year"] == columns["year"]
    (table,) = zc.loader(str(tmp_path), to="pyarrow")
    assert table.column_names == ["x", "y", "year", "kind"]
    assert table["kind"].to_pylist() == ["k2023"] * ROWS + ["k2024"] * ROWS


def test_small_row_groups_are_read_together(tmp_path: Path) -> None:
    pq.write_table(small_table(0, 10_000), tmp_path / "a.parquet", row_group_size=10)
    loader = zc.loader(str(tmp_path), to="numpy", batch=10_000)
    (batch,) = loader
    assert batch["y"].tolist() == [*range(10_000)]
    assert len(loader._source.groups) == 1


def test_an_array_of_npy_has_the_name_of_its_file(tmp_path: Path) -> None:
    images = np.arange(60, dtype="u1").reshape(10, 2, 3)
    for order in "CF":
        np.save(tmp_path / "images.npy", np.asarray(images, order=order))
        batches = list(zc.loader(tmp_path / "images.npy", to="numpy", batch=4))
        assert [batch["images"].shape for batch in batches] == [(4, 2, 3), (4, 2, 3), (2, 2, 3)]
        assert np.array_equal(np.concatenate([batch["images"] for batch in batches]), images)


def test_an_empty_file_of_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    np.savez(tmp_path / "a.npz", x=np.zeros((0, 3)))
    assert list(zc.loader(tmp_path / "a.npy", to="numpy")) == []
    assert list(zc.loader(tmp_path / "a.npz", to="numpy")) == []


def test_an_array_has_the_name_data() -> None:
    (batch,) = zc.loader(np.ones((3, 2)), to="torch")
    assert batch["data"].shape == (3, 2)


def test_arrays_of_any_framework_are_columns() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(10.0)
    (batch,) = zc.loader({"x": x, "y": np.ones((10, 2))}, to="numpy")
    assert zc.shares_memory(batch["x"], x)
    assert batch["y"].shape == (10, 2)


def test_batches_of_a_mapped_file_alias_the_map(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(10.0), names=np.array(["a"] * 10))
    (batch,) = zc.loader(tmp_path / "a.npz", to="numpy", columns=["x"])
    base: Any = batch["x"]
    while base.base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"to": "numpy", "layout": "matrix"}, np.ndarray),
        ({"to": "pyarrow"}, pa.Table),
        ({"to": "numpy", "dtype": "float32"}, dict),
        ({"to": "numpy", "nulls": 0}, dict),
        ({"to": "numpy", "schema": {"x": "float32"}}, dict),
    ],
)
def test_options_of_tables_apply_to_arrays(options: dict[str, Any], expected: type) -> None:
    (batch,) = zc.loader({"x": np.arange(3.0), "y": np.arange(3.0)}, **options)
    assert isinstance(batch, expected)
    if "dtype" in options or "schema" in options:
        assert batch["x"].dtype == "f4"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ({"x": np.arange(3), "y": np.arange(4)}, "different-lengths"),
        ({"x": np.float64(1), "y": np.arange(4)}, "too-few-dimensions"),
        ({"x": np.array([None, 1])}, "python-objects"),
        ({"x": "text"}, "not-an-array"),
        ({}, "not-an-array"),
        (3, "not-a-source"),
        ([np.arange(3)], "not-a-source"),
    ],
)
def test_objects_that_are_not_sources_are_refused(source: Any, code: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as raised:
        zc.loader(source, to="numpy")
    assert raised.value.code == code
    assert raised.value.remedy


def test_a_reader_is_read_once() -> None:
    loader = zc.loader(small_table().to_reader(), to="numpy", batch=4)
    assert columns_of(loader) == EXPECTED
    with pytest.raises(zc.ZeroCopyError, match="can be read only once") as raised:
        iter(loader)
    assert raised.value.code == "used-up"


def test_an_object_that_exports_once_is_refused_in_the_second_epoch() -> None:
    class Once(Exporter):
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            table, self._table = self._table, None
            if table is None:
                raise RuntimeError("the stream is released")
            return table.__arrow_c_stream__(requested_schema)

    loader = zc.loader(Once(small_table()), to="numpy", batch=4)
    assert columns_of(loader) == EXPECTED
    with pytest.raises(zc.ZeroCopyError, match="exports none the second time") as raised:
        list(loader)
    assert raised.value.code == "used-up"


def test_an_exception_of_a_reader_is_the_cause() -> None:
    def batches() -> Any:
        yield small_table().to_batches()[0]
        raise KeyError("producer")

    loader = zc.loader(
        pa.RecordBatchReader.from_batches(small_table().schema, batches()), to="numpy", batch=4
    )
    with pytest.raises(ReadError, match="producer raised KeyError") as raised:
        list(loader)
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.code == "producer-raised"


def test_a_query_that_fails(tmp_path: Path) -> None:
    duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    text = pl.LazyFrame({"x": ["1"] * 9 + ["a"]})
    path = str(tmp_path / "a.csv")
    Path(path).write_text("x\n" + "1\n" * 9 + "a\n")
    for query in (
        duckdb.connect().sql(f"select x::int as x from read_csv('{path}')"),
        text.select(pl.col("x").cast(pl.Int64)),
    ):
        with pytest.raises(ReadError) as raised:
            list(zc.loader(query, to="numpy"))
        assert raised.value.code == "producer-raised"


def test_a_connection_can_be_used_after_a_part_of_a_relation_was_read() -> None:
    connection = pytest.importorskip("duckdb").connect()
    relation = connection.sql("select i as x from range(500000) t(i)")
    iterator = iter(zc.loader(relation, to="numpy", batch=10_000))
    assert next(iterator)["x"][-1] == 9_999
    del iterator
    assert connection.sql("select 42").fetchall() == [(42,)]


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"layout": "matrix", "dtype": "float64"}])
@pytest.mark.parametrize("kind", ["path", "Feather", "CSV", "Table", "dict of arrays", "reader"])
def test_a_source_without_rows_has_no_batches(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    empty = small_table(0, 0)
    pq.write_table(empty, tmp_path / "e.parquet")
    pyarrow.feather.write_feather(empty, str(tmp_path / "e.feather"))
    pyarrow.csv.write_csv(empty, tmp_path / "e.csv")
    paths = {"path": "e.parquet", "Feather": "e.feather", "CSV": "e.csv"}
    others = {"Table": empty, "dict of arrays": arrays(empty), "reader": empty.to_reader()}
    source = tmp_path / paths[kind] if kind in paths else others[kind]
    # A CSV file without rows has columns of the type null.
    schema = {"schema": empty.schema} if kind == "CSV" else {}
    assert list(zc.loader(source, to="numpy", **schema, **options)) == []
