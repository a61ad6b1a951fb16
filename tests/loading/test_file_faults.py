"""``loader``: files that are missing, changed or corrupt, or differ in their columns."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.fs
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from helpers.failing_filesystem import FailingHandler
from helpers.source_data import open_files, read, small_table, write_files

import zerocopy as zc
from zerocopy.errors import LoaderStateError, ReadError
from zerocopy.loading.loader import Loader
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.sources.columnar import ParquetFiles
from zerocopy.loading.sources.files import Files


def refused(source: Any, **options: Any) -> ReadError:
    """Return the error of creating a loader."""
    with pytest.raises(ReadError) as raised:
        zc.loader(source, to="numpy", batch_size=4, **options)
    assert raised.value.remedy
    return raised.value


def failed(loader: Any) -> ReadError:
    """Return the error of reading all rows."""
    with pytest.raises(ReadError) as raised:
        list(loader)
    assert isinstance(raised.value, OSError)
    return raised.value


def corrupt(path: str, row_group: int) -> None:
    """Overwrite the data of a row group, without a change of its size."""
    column = pq.read_metadata(path).row_group(row_group).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(b"\xff" * column.total_compressed_size)


# -- creation -----------------------------------------------------------------------------


@pytest.mark.hazard("training#python-objects-in-npy")
@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("missing.parquet", "missing-file", "does not exist"),
        ("*.missing", "missing-file", "no file matches"),
        ("empty", "no-files", "the folder has no files"),
        ("zero.parquet", "unreadable-file", "the file is empty: 0 bytes"),
        ("zero.csv", "unreadable-file", "the file is empty: 0 bytes"),
        ("zero.feather", "unreadable-file", "the file is empty: 0 bytes"),
        ("zero.npy", "unreadable-file", "the file is empty: 0 bytes"),
        ("text.parquet", "unreadable-file", "Parquet magic bytes not found"),
        ("text.feather", "unreadable-file", "pyarrow raised"),
        ("text.npz", "unreadable-file", "it begins as text"),
        ("short.parquet", "unreadable-file", "Parquet"),
        ("objects.npy", "python-objects", "has Python objects"),
        ("mixed", "several-formats", "csv, parquet"),
    ],
)
def test_files_that_cannot_be_opened(name: str, code: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    for path in ("mixed/a.parquet", "mixed/a.csv", "zero.parquet", "zero.csv", "zero.feather", "zero.npy"):
        (tmp_path / path).write_bytes(b"")
    for path in ("text.parquet", "text.feather", "text.npz"):
        (tmp_path / path).write_text("This is not a file of columns." * 9)
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    pq.write_table(small_table(), tmp_path / "short.parquet")
    os.truncate(tmp_path / "short.parquet", (tmp_path / "short.parquet").stat().st_size - 40)
    error = refused(str(tmp_path / name))
    assert error.code == code
    assert why in error.why
    assert name.rstrip("*") in error.file
    assert not open_files(tmp_path)


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_column_names_that_are_not_text(make: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    table = pa.table({"qq": [1, 2]})
    with make(str(path), table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"qq", b"q\xb2"))
    assert "UnicodeDecodeError" in refused(str(path)).why


def test_a_missing_file_of_a_list(tmp_path: Path) -> None:
    paths = [*write_files(tmp_path, 1), str(tmp_path / "b.parquet")]
    error = refused(paths)
    assert (error.code, error.file) == ("missing-file", paths[1])
    assert refused([]).code == "no-files"
    assert refused([str(tmp_path)]).why == "it is not a file"


def test_a_protocol_without_a_file_system() -> None:
    assert refused("unheardof://bucket/a.parquet").code == "unknown-protocol"


def test_a_corrupt_footer_names_the_file(tmp_path: Path) -> None:
    paths = write_files(tmp_path, 3)
    with open(paths[1], "r+b") as file:
        file.seek(-30, os.SEEK_END)
        file.write(b"\xff" * 20)
    error = refused(str(tmp_path))
    assert (error.code, error.file, error.row_group) == ("unreadable-file", paths[1], None)


@pytest.mark.parametrize("rows", [0, 10])
def test_files_without_rows_among_others(rows: int, tmp_path: Path) -> None:
    pq.write_table(small_table(0, 0), tmp_path / "a.parquet")
    pq.write_table(small_table(0, rows), tmp_path / "b.parquet")
    with pq.ParquetWriter(tmp_path / "c.parquet", small_table().schema):
        pass  # no row group
    for options in ({}, {"shuffle": True}):
        assert sorted(read(str(tmp_path), **options).get("y", [])) == [*range(rows)]
    assert len(zc.loader(str(tmp_path), to="numpy", batch_size=4)) == -(-rows // 4)


# -- changes while reading ----------------------------------------------------------------


def rewrite(path: Path) -> None:
    pq.write_table(small_table(5), path, row_group_size=4)
    os.utime(path, (1, 1))


@pytest.mark.hazard("training#mapped-file-that-is-truncated")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (os.remove, "was removed"),
        (rewrite, "has changed"),
        (lambda path: os.truncate(path, 50), "has changed"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"layout": "matrix", "dtype": "float64"}])
def test_a_file_that_changes(
    change: Callable[[Any], None], why: str, options: dict[str, Any], tmp_path: Path
) -> None:
    paths = write_files(tmp_path, 3)
    loader = zc.loader(paths, to="numpy", batch_size=4, **options)
    change(Path(paths[1]))
    error = failed(loader)
    assert (error.code, error.file) == ("changed-file", paths[1])
    assert why in error.why
    assert not open_files(tmp_path)


@pytest.mark.hazard("training#file-that-is-replaced")
def test_a_file_that_changes_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(small_table(0, 200_000), path, row_group_size=70_000)
    files = zc.loader(path, to="numpy")._source
    files.read(0)
    rewrite(path)
    with pytest.raises(ReadError, match="has changed"):
        files.read(1)
    assert not open_files(tmp_path)


@pytest.mark.hazard("training#mapped-file-that-is-truncated")
@pytest.mark.parametrize("name", ["a.npy", "a.feather", "a.csv"])
def test_other_files_that_change(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    write = {
        "a.npy": lambda: np.save(path, np.arange(10)),
        "a.feather": lambda: pyarrow.feather.write_feather(small_table(), str(path)),
        "a.csv": lambda: path.write_text("x\n1\n2\n"),
    }[name]
    write()
    loader = zc.loader(path, to="numpy")
    os.utime(path, (1, 1))
    assert failed(loader).code == "changed-file"


# -- corrupt data ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"shuffle": True}])
def test_a_corrupt_row_group_is_named(options: dict[str, Any], tmp_path: Path) -> None:
    paths = write_files(tmp_path, 3)
    corrupt(paths[1], 1)
    error = failed(zc.loader(paths, to="numpy", batch_size=4, **options))
    assert (error.file, error.row_group, error.code) == (paths[1], 1, "unreadable-file")
    assert error.__cause__ is not None
    assert not open_files(tmp_path)


def test_a_corrupt_group_is_skipped_and_the_others_are_read(tmp_path: Path) -> None:
    paths = write_files(tmp_path, 3)
    corrupt(paths[1], 1)
    assert read(paths, on_error="skip")["y"] == [*range(14), *range(18, 30)]


@pytest.mark.parametrize("as_data_set", [False, True])
def test_small_row_groups_are_skipped_alone(as_data_set: bool, tmp_path: Path) -> None:
    """Without "skip", row groups of 1,000 rows are read together."""
    path = str(tmp_path / "small.parquet")
    pq.write_table(pa.table({"x": np.arange(20_000)}), path, row_group_size=1000)
    corrupt(path, 7)
    source = pa.dataset.dataset(path) if as_data_set else path
    loader = zc.loader(source, to="numpy", batch_size=4096, on_error="skip")
    rows = np.concatenate([batch["x"] for batch in loader])
    assert rows.tolist() == [*range(7000), *range(8000, 20_000)]
    assert [(each.file, each.row_group, each.rows) for each in loader.stats().skipped] == [(path, 7, 1000)]
    assert failed(zc.loader(source, to="numpy", batch_size=4096)).row_group == 7
    with pytest.raises(LoaderStateError):
        zc.loader(source, to="numpy", batch_size=4096).load_state_dict(loader.state_dict())


def test_a_value_that_cannot_be_parsed_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    (tmp_path / "b.csv").write_text("x\n3\nword\n")
    error = failed(zc.loader(str(tmp_path), to="numpy"))
    assert error.file.endswith("b.csv")


def damaged(path: Path, old: bytes, new: bytes) -> str:
    """Replace bytes of a file that occur once; its size stays the same."""
    data = path.read_bytes()
    assert data.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))
    return str(path)


_READ = """
import sys, zerocopy as zc
try:
    print(list(zc.loader(sys.argv[1], to="numpy", batch_size=2, encode=True)))
except zc.errors.ReadError as error:
    print(error.code, error.row_group, error.file)
"""


@pytest.mark.hazard("training#damaged-offsets")
def test_offsets_of_text_outside_an_arrow_file_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"s": ["aaaa", "bbbb", "cccc", "dddd"], "y": [1, 2, 3, 4]})
    pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
    offsets = np.array([0, 4, 8, 12, 16], "<i4").tobytes()
    damaged(path, offsets, np.array([0, 10**9, 8, 12, 16], "<i4").tobytes())
    # In another process: without the guard, a signal ends it.
    done = subprocess.run([sys.executable, "-c", _READ, path], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, ["unreadable-file", "0", str(path)]), done
    # The damaged column is not read if the caller does not ask for it.
    assert read(str(path), columns=["y"]) == {"y": [1, 2, 3, 4]}
    assert read(str(path), schema={"y": "int32"}) == {"y": [1, 2, 3, 4]}


@pytest.mark.hazard("training#damaged-offsets")
def test_codes_outside_a_dictionary_of_an_arrow_file_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    codes = pa.DictionaryArray.from_arrays(np.array([1, 0, 1, 0, 1], "i4"), ["a", "b"])
    pyarrow.feather.write_feather(pa.table({"s": codes}), str(path), compression="uncompressed")
    old = np.array([1, 0, 1, 0, 1], "<i4").tobytes()
    damaged(path, old, np.array([1, 0, 10**6, 0, 1], "<i4").tobytes())
    assert failed(zc.loader(path, to="pyarrow")).code == "unreadable-file"


@pytest.mark.hazard("training#damaged-files")
@pytest.mark.parametrize("size", [1 << 62, 1 << 50, 40_001])
def test_a_damaged_size_of_a_compressed_buffer(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    pyarrow.feather.write_feather(pa.table({"x": [7] * 5000}), str(path), compression="lz4")
    damaged(path, (40_000).to_bytes(8, "little"), size.to_bytes(8, "little"))
    with pytest.raises((ReadError, MemoryError)):  # pyarrow asks for the memory before it reads the bytes
        zc.loader(path, to="numpy")


@pytest.mark.hazard("training#damaged-values")
def test_a_value_that_differs_from_the_checksum_of_its_page(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": np.arange(1000, 1100)})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    damaged(path, np.array([1050, 1051], "<i8").tobytes(), np.array([1050, 1052], "<i8").tobytes())
    error = failed(zc.loader(path, to="numpy"))
    assert (error.code, error.row_group) == ("unreadable-file", 0)
    assert "CRC" in error.why


def write_npz(path: Path, array: bytes, place: int = 0, new: bytes = b"") -> None:
    """Write a compressed archive, with `new` at a place of its central directory, or of the array for 0."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", array)
    data = bytearray(path.read_bytes())
    start = data.rfind(b"PK\1\2") if place else 35  # the compressed bytes
    data[start + place : start + place + len(new)] = new
    path.write_bytes(data)


@pytest.mark.hazard("training#damaged-files")
def test_damaged_files_raise_no_other_exceptions(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10))
    good = (tmp_path / "a.npy").read_bytes()
    huge = good.replace(b"(10,), }         ", b"(9999999999999,)}")
    assert len(huge) == len(good)
    npy, npz = tmp_path / "b.npy", tmp_path / "b.npz"
    cases: list[tuple[Path, str, Callable[[], Any]]] = [
        (npy, "TokenError", lambda: npy.write_bytes(good.replace(b"(10,)", b"((((("))),
        (npy, "its shape has a dimension", lambda: npy.write_bytes(good.replace(b"(10,)", b"(-1,)"))),
        (npz, "error: Error -3", lambda: write_npz(npz, good, 0, b"\xff" * 20)),
        (npz, "NotImplementedError", lambda: write_npz(npz, good, 10, b"\x63")),
        (npz, "its member 'x' is encrypted", lambda: write_npz(npz, good, 8, b"\x01")),
        (npz, "BadZipFile", lambda: write_npz(npz, good, 16, b"abcd")),
        (npz, "its header needs", lambda: write_npz(npz, huge)),
        (tmp_path / "a.csv", "Unicode", lambda: (tmp_path / "a.csv").write_bytes(b"a,\xff\xfe\n1,2\n")),
    ]
    for path, why, write in cases:
        write()
        error = refused(str(path))
        assert why in error.why, (why, error.why)
        assert error.file == str(path)
        assert error.__cause__ is not None or "its" in why


@pytest.mark.hazard("training#damaged-files")
@pytest.mark.parametrize(
    "source", ["a\0.npy", "a\0/*.csv", ["a\0.csv"], "file:///a\0", "~\0/a", "a\ud800.csv", "a" * 5000]
)
def test_paths_that_no_file_can_have(source: Any) -> None:
    error = refused(source)
    assert error.code in ("unreadable-file", "missing-file")
    assert error.__cause__ is not None


# -- file systems that fail -------------------------------------------------------------------


@pytest.mark.parametrize("failure", [PermissionError(13, "denied"), OSError(5, "Input/output error")])
@pytest.mark.parametrize("skip", [False, True])
def test_a_file_system_that_fails(failure: OSError, skip: bool, tmp_path: Path) -> None:
    paths = write_files(tmp_path, 3)
    handler = FailingHandler(failure)
    filesystem = pa.fs.PyFileSystem(handler)
    files = Files("loader(...)", filesystem.get_file_info(paths), filesystem)
    handler.failing = paths[1]
    with pytest.raises(ReadError) as raised:
        ParquetFiles(files, None)
    assert (raised.value.file, raised.value.row_group) == (paths[1], None)
    handler.failing = ""
    source = ParquetFiles(files, None)
    handler.failing = paths[1]
    loader = Loader(
        source, LoaderOptions("numpy", 4, on_error="skip" if skip else "raise"), source.schema.empty_table()
    )
    if skip:
        assert sum(len(batch["y"]) for batch in loader) == 20
    else:
        error = failed(loader)
        assert (error.file, error.code) == (paths[1], "unreadable-file")
        assert str(failure.strerror) in error.why
    source.close()


def test_running_out_of_memory_is_not_a_fault_of_the_file(tmp_path: Path) -> None:
    paths = write_files(tmp_path, 2)
    handler = FailingHandler(MemoryError("no memory"))
    filesystem = pa.fs.PyFileSystem(handler)
    source = ParquetFiles(Files("loader(...)", filesystem.get_file_info(paths), filesystem), None)
    handler.failing = paths[0]
    with pytest.raises(MemoryError):
        source.read(0)


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    paths = write_files(tmp_path, 30)
    most = 0
    for _ in zc.loader(paths, to="numpy", batch_size=4, prefetch=1):
        most = max(most, len(open_files(tmp_path)))
    assert most <= 1
    assert not open_files(tmp_path)


# -- schemas ------------------------------------------------------------------------------------


@pytest.mark.hazard("training#types-of-files")
def test_a_type_that_differs_names_column_types_and_files(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")
    pq.write_table(pa.table({"x": [1.0], "y": [1]}), first)
    pq.write_table(pa.table({"y": [2], "x": [2]}), second)
    error = refused([first, second])
    assert error.code == "schema-drift"
    assert error.why == f"column 'x' is double in {first} and int64 in {second}"
    assert error.file == second
    schema = eval(error.remedy.partition("schema=")[2], {"pyarrow": pa})
    assert read([first, second], schema=schema) == {"x": [1, 2], "y": [1, 2]}
    assert read([first, second], columns=["y"]) == {"y": [1, 2]}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_column_that_one_file_lacks(reverse: bool, tmp_path: Path) -> None:
    tables = [pa.table({"x": [1.0], "y": [1]}), pa.table({"x": [2.0]})]
    for name, table in zip("ab", tables[::-1] if reverse else tables, strict=True):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    error = refused(str(tmp_path))
    assert error.code == "schema-drift"
    assert "column 'y'" in error.why
    assert "is missing in" in error.why
    assert read(str(tmp_path), columns=["x"])["x"] == ([2, 1] if reverse else [1, 2])
    assert read(str(tmp_path), schema={"y": "int64"}, nulls=-1) == {"y": [-1, 1] if reverse else [1, -1]}


def test_the_order_of_columns_may_differ(tmp_path: Path) -> None:
    table = small_table()
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.select(["y", "x"]), tmp_path / "b.parquet")
    columns = read(str(tmp_path))
    assert list(columns) == ["x", "y"]
    assert columns["y"] == [*range(10)] * 2


@pytest.mark.hazard("training#types-of-files")
def test_types_that_only_arrow_distinguishes(tmp_path: Path) -> None:
    text = pa.array(["a", "b"])
    pq.write_table(pa.table({"x": text}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": text.dictionary_encode()}), tmp_path / "b.parquet")
    assert "column 'x' is string in" in refused(str(tmp_path)).why
    tables = zc.loader(str(tmp_path), to="pyarrow", batch_size=9, schema={"x": "string"})
    assert pa.concat_tables(tables)["x"].to_pylist() == ["a", "b"] * 2


@pytest.mark.parametrize("to", ["numpy", "pyarrow"])
def test_a_value_that_does_not_fit_the_schema_raises(to: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 300]}), tmp_path / "a.parquet")
    for source in (str(tmp_path), pa.table({"x": [1, 300]}), {"x": np.array([1, 300])}):
        loader = zc.loader(source, to=to, schema={"x": "int8"}, on_error="skip")
        with pytest.raises(zc.LossyConversionError, match="column 'x' is int64") as raised:
            list(loader)
        assert raised.value.code == "lossy-cast"


@pytest.mark.parametrize("schema", [3, {"x": "no-type"}, {"x": object()}])
def test_a_schema_of_invalid_types_is_refused(schema: Any, tmp_path: Path) -> None:
    write_files(tmp_path, 1)
    with pytest.raises(zc.UnsupportedConversionError):
        zc.loader(str(tmp_path), to="numpy", schema=schema)


def test_feather_files_of_different_columns_are_refused(tmp_path: Path) -> None:
    pyarrow.feather.write_feather(small_table(), str(tmp_path / "a.feather"))
    pyarrow.feather.write_feather(small_table().select(["x"]), str(tmp_path / "b.feather"))
    error = refused(str(tmp_path))
    assert error.code == "schema-drift"
    assert error.why.startswith("column 'y' of ")
    assert "is missing in" in error.why


def test_the_loader_of_a_moved_folder_continues(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    folder.mkdir()
    write_files(folder, 3)
    loader = zc.loader(str(folder), to="numpy", batch_size=4)
    iterator = iter(loader)
    head = [next(iterator)["y"].tolist() for _ in range(3)]
    state = loader.state_dict()
    del iterator
    shutil.move(folder, tmp_path / "second")
    other = zc.loader(str(tmp_path / "second"), to="numpy", batch_size=4)
    other.load_state_dict(state)
    rest = [batch["y"].tolist() for batch in other]
    assert [value for batch in (*head, *rest) for value in batch] == [*range(30)]
