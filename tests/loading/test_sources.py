"""``loader``: each kind of source returns its rows, in order, in each epoch, and with chosen columns."""

from __future__ import annotations

import mmap
import os
import shutil
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
from helpers.loader_cases import parquet_file
from helpers.loader_sources import SOURCES, Exporter, arrays
from helpers.source_data import ROWS, columns_of, read, small_table, write_files

import zerocopy as zc
from zerocopy.errors import ReadError

EXPECTED = small_table().to_pydict()


@pytest.mark.hazard("robustness#indices-in-a-loader")
@pytest.mark.parametrize("kind", SOURCES)
def test_rows_of_a_source(kind: str, tmp_path: Path) -> None:
    loader = zc.loader(SOURCES[kind](tmp_path), to="numpy", batch_size=4)
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
    assert "it has 'x', 'y'" in raised.value.why
    assert raised.value.calls == ('zc.loader(source, "numpy", columns=["x"])',)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_schema_casts_a_source(kind: str, tmp_path: Path) -> None:
    schema = {"y": "int32", "z": np.float32, "x": pa.float32()}
    table = pa.concat_tables(
        zc.loader(SOURCES[kind](tmp_path), to="pyarrow", batch_size=4, schema=schema), promote_options="none"
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
    loader = zc.loader(str(tmp_path), to="numpy", batch_size=10_000)
    (batch,) = loader
    assert batch["y"].tolist() == [*range(10_000)]
    assert len(loader._source.groups) == 1


@pytest.mark.parametrize("is_local", [True, False])
def test_threads_read_their_columns_of_local_files_alone(
    is_local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests to a remote file are joined; those to a local one would be one thread's work."""
    loader = zc.loader(parquet_file(tmp_path, 100, 10), to="numpy")
    seen: list[Any] = []
    opened = pq.ParquetFile

    def recorded(*args: Any, **options: Any) -> Any:
        seen.append(options["pre_buffer"])
        return opened(*args, **options)

    monkeypatch.setattr(loader._source._files, "is_local", is_local)
    monkeypatch.setattr(pq, "ParquetFile", recorded)
    assert sum(len(batch["id"]) for batch in loader) == 100
    assert seen == [not is_local]


def test_an_array_of_npy_has_the_name_of_its_file(tmp_path: Path) -> None:
    images = np.arange(60, dtype="u1").reshape(10, 2, 3)
    for order in "CF":
        np.save(tmp_path / "images.npy", np.asarray(images, order=order))
        batches = list(zc.loader(tmp_path / "images.npy", to="numpy", batch_size=4))
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
    while isinstance(base, np.ndarray):
        assert not base.flags.writeable
        base = base.base
    assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_write_to_a_batch_of_a_mapped_file_changes_this_process_alone(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    path = tmp_path / name
    (np.save if name == "a.npy" else np.savez)(path, np.arange(10.0))
    before = path.read_bytes()
    (batch,) = zc.loader(path, to="torch")
    (tensor,) = batch.values()
    tensor.zero_()  # a mapping without write access would end the process
    assert path.read_bytes() == before


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
    loader = zc.loader(small_table().to_reader(), to="numpy", batch_size=4)
    assert columns_of(loader) == EXPECTED
    with pytest.raises(zc.ZeroCopyError, match="can be read only once") as raised:
        iter(loader)
    assert raised.value.code == "used-up"


@pytest.mark.hazard("training#stream-that-was-read")
def test_an_object_that_exports_once_is_refused_in_the_second_epoch() -> None:
    class Once(Exporter):
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            table, self._table = self._table, None
            if table is None:
                raise RuntimeError("the stream is released")
            return table.__arrow_c_stream__(requested_schema)

    loader = zc.loader(Once(small_table()), to="numpy", batch_size=4)
    assert columns_of(loader) == EXPECTED
    with pytest.raises(zc.ZeroCopyError, match="exports none the second time") as raised:
        list(loader)
    assert raised.value.code == "used-up"


def test_an_exception_of_a_reader_is_the_cause() -> None:
    def batches() -> Any:
        yield small_table().to_batches()[0]
        raise KeyError("producer")

    loader = zc.loader(
        pa.RecordBatchReader.from_batches(small_table().schema, batches()), to="numpy", batch_size=4
    )
    with pytest.raises(ReadError, match="producer raised KeyError") as raised:
        list(loader)
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.code == "producer-raised"


def test_a_query_of_polars_is_not_collected_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("polars")
    query = pl.DataFrame(small_table()).lazy()
    monkeypatch.setattr(pl.LazyFrame, "collect", None)
    assert read(query) == EXPECTED


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


@pytest.mark.hazard("training#open-result-of-duckdb")
def test_a_connection_can_be_used_after_a_part_of_a_relation_was_read() -> None:
    connection = pytest.importorskip("duckdb").connect()
    relation = connection.sql("select i as x from range(500000) t(i)")
    iterator = iter(zc.loader(relation, to="numpy", batch_size=10_000))
    assert next(iterator)["x"][-1] == 9_999
    del iterator
    assert connection.sql("select 42").fetchall() == [(42,)]
