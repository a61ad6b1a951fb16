"""All kinds of sources of the loader, made of a table of the columns ``x`` (float64) and ``y`` (int64)."""

from __future__ import annotations

import tempfile
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

from helpers.source_data import small_table

Make = Callable[[Path, pa.Table], Any]


class Exporter:
    """A table of an unknown library."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def ipc_stream(table: pa.Table, path: str) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


def json_lines(table: pa.Table, path: str) -> None:
    lines = [f'{{"x": {row["x"]}, "y": {row["y"]}}}\n' for row in table.to_pylist()]
    Path(path).write_text("".join(lines))


def structured(table: pa.Table, path: str) -> None:
    records = np.zeros(table.num_rows, [("x", "f8"), ("y", "i8")])
    for name in ("x", "y"):
        records[name] = table[name].to_numpy()
    np.save(path, records)


def arrays(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].to_numpy() for name in table.column_names}


#: Functions that write a table into a file, by the file's extension.
WRITERS: dict[str, Callable[[pa.Table, str], Any]] = {
    "parquet": lambda table, path: pq.write_table(table, path, row_group_size=3),
    "feather": pyarrow.feather.write_feather,
    "arrow": ipc_stream,
    "csv": pyarrow.csv.write_csv,
    "jsonl": json_lines,
    "orc": pyarrow.orc.write_table,
    "npy": structured,
    "npz": lambda table, path: np.savez(path, **arrays(table)),
}


def written(extension: str, write: Callable[[pa.Table, str], Any] | None = None) -> Make:
    def make(folder: Path, table: pa.Table) -> str:
        path = str(folder / f"a.{extension}")
        (write or WRITERS[extension])(table, path)
        return path

    return make


parquet = written("parquet")


def memory_url(folder: Path, table: pa.Table) -> str:
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://{folder.name}/a.parquet"
    with fsspec.open(url, "wb") as file:
        pq.write_table(table, file)
    return url


def from_framework(name: str, make: Callable[[Any, Path, pa.Table], Any]) -> Make:
    return lambda folder, table: make(pytest.importorskip(name), folder, table)


def duckdb_relation(duckdb: Any, folder: Path, table: pa.Table) -> Any:
    # A connection of its own: an iterator of another test may keep the default one busy.
    return duckdb.connect().read_parquet(parquet(folder, table))


def shuffled_data_set(datasets: Any, folder: Path, table: pa.Table) -> Any:
    backwards = [*range(table.num_rows - 1, -1, -1)]
    return datasets.Dataset(table.take(pa.array(backwards, pa.int64()))).select(backwards)


def zarr_arrays(zarr: Any, folder: Path, table: pa.Table) -> dict[str, Any]:
    root = zarr.create_group(folder / "a.zarr")
    return {name: root.create_array(name, data=x, chunks=(3,)) for name, x in arrays(table).items()}


def hdf5_datasets(h5py: Any, folder: Path, table: pa.Table) -> dict[str, Any]:
    file = h5py.File(tempfile.mkdtemp(dir=folder) + "/a.h5", "w")  # an open file cannot be replaced
    # Without a maximal shape, a chunk cannot be larger than a dataset without rows.
    extendable = {"chunks": (3,), "maxshape": (None,)}
    return {name: file.create_dataset(name, data=x, **extendable) for name, x in arrays(table).items()}


def lance_data_set(lance: Any, folder: Path, table: pa.Table) -> Any:
    return lance.write_dataset(table, str(folder / "a.lance"), max_rows_per_file=4)


#: Sources that can be read again.
MAKERS: dict[str, Make] = {
    "path": parquet,
    "pathlib.Path": lambda folder, table: Path(parquet(folder, table)),
    "list": lambda folder, table: [parquet(folder, table)],
    "directory": lambda folder, table: str(Path(parquet(folder, table)).parent),
    "glob": lambda folder, table: parquet(folder, table).replace("a.par", "*.par"),
    "recursive glob": lambda folder, table: str(Path(parquet(folder, table)).parent / "**" / "a.parquet"),
    "file URL": lambda folder, table: Path(parquet(folder, table)).as_uri(),
    "fsspec URL": memory_url,
    "list of fsspec URLs": lambda folder, table: [memory_url(folder, table)],
    "fsspec glob": lambda folder, table: memory_url(folder, table).replace("a.parquet", "*.parquet"),
    "fsspec directory": lambda folder, table: memory_url(folder, table).rpartition("/")[0],
    "Feather": written("feather"),
    "IPC stream": written("arrow"),
    "CSV": written("csv"),
    "JSON": written("jsonl"),
    "ORC": written("orc"),
    "structured .npy": written("npy"),
    ".npz": written("npz"),
    "compressed .npz": written("npz", lambda table, path: np.savez_compressed(path, **arrays(table))),
    "pyarrow.dataset": lambda folder, table: ds.dataset(parquet(folder, table)),
    "filtered dataset": lambda folder, table: ds.dataset(parquet(folder, table)).filter(ds.field("x") >= 0),
    "dataset in memory": lambda folder, table: ds.dataset(table),
    "dataset of CSV files": lambda folder, table: ds.dataset(
        MAKERS["CSV"](folder, table), table.schema, format="csv"
    ),
    "Scanner": lambda folder, table: ds.dataset(parquet(folder, table)).scanner(),
    "ParquetFile": lambda folder, table: pq.ParquetFile(parquet(folder, table)),
    "Table": lambda folder, table: pa.concat_tables([table.slice(0, 3), table.slice(3)]),
    "RecordBatch": lambda folder, table: pa.record_batch(
        [column.combine_chunks() for column in table.columns], schema=table.schema
    ),
    "polars.DataFrame": from_framework("polars", lambda pl, folder, table: pl.DataFrame(table)),
    "polars.LazyFrame": from_framework("polars", lambda pl, folder, table: pl.DataFrame(table).lazy()),
    "polars.scan_parquet": from_framework(
        "polars", lambda pl, folder, table: pl.scan_parquet(parquet(folder, table))
    ),
    "DuckDB relation": from_framework("duckdb", duckdb_relation),
    "pandas.DataFrame": from_framework("pandas", lambda pd, folder, table: table.to_pandas()),
    "narwhals over pandas": from_framework(
        "narwhals", lambda nw, folder, table: nw.from_native(table.to_pandas())
    ),
    "narwhals over a query": from_framework(
        "narwhals",
        lambda nw, folder, table: nw.from_native(pytest.importorskip("polars").DataFrame(table).lazy()),
    ),
    "zarr arrays": from_framework("zarr", zarr_arrays),
    "h5py datasets in chunks": from_framework("h5py", hdf5_datasets),
    "lance.LanceDataset": from_framework("lance", lance_data_set),
    "datasets.Dataset": from_framework("datasets", lambda hf, folder, table: hf.Dataset(table)),
    "selected datasets.Dataset": from_framework(
        "datasets",
        lambda hf, folder, table: hf.Dataset(pa.concat_tables([table, table])).select(range(table.num_rows)),
    ),
    "indexed datasets.Dataset": from_framework("datasets", shuffled_data_set),
    "datasets.IterableDataset": from_framework(
        "datasets", lambda hf, folder, table: hf.Dataset(table).to_iterable_dataset()
    ),
    "dict of arrays": lambda folder, table: arrays(table),
    "structured array": lambda folder, table: np.load(MAKERS["structured .npy"](folder, table)),
    "object with __arrow_c_stream__": lambda folder, table: Exporter(table),
}

SOURCES: dict[str, Callable[[Path], Any]] = {
    kind: lambda folder, make=make: make(folder, small_table()) for kind, make in MAKERS.items()
}
