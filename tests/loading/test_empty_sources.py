"""Sources without rows, and files without rows before, between and after files with rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers.loader_sources import MAKERS, WRITERS
from helpers.source_data import ROWS, columns_of, open_files, small_table

import zerocopy as zc

EMPTY = small_table(0, 0)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"shuffle": True},
    {"layout": "matrix", "dtype": "float64"},
    {"nulls": -1},
    {"encode": True},
    {"to": "pyarrow"},
    {"drop_last": True, "epochs": 2},
]
#: The rows of each file.
FILES = {"first": [0, 0, 4, 6], "middle": [4, 0, 6], "last": [4, 6, 0]}


# JSON lines without rows are a file of no bytes, and Hugging Face makes no iterable of no rows.
@pytest.mark.parametrize(
    "kind", [kind for kind in MAKERS if kind not in ("JSON", "datasets.IterableDataset")]
)
def test_a_source_without_rows_has_no_batches_and_a_state(kind: str, tmp_path: Path) -> None:
    for options in OPTIONS:
        loader = zc.loader(MAKERS[kind](tmp_path, EMPTY), **{"to": "numpy", "batch_size": 4} | options)
        for _ in range(2):
            state = loader.state_dict()
            assert list(loader) == []
        loader.load_state_dict(state)
        assert list(loader) == []
        assert loader.stats().rows == 0
        assert str(loader.explain())


@pytest.mark.parametrize("place", FILES)
@pytest.mark.parametrize("extension", [name for name in WRITERS if name not in ("npy", "npz")])
def test_files_without_rows_are_left_out(extension: str, place: str, tmp_path: Path) -> None:
    first = 0
    for number, rows in enumerate(FILES[place]):
        WRITERS[extension](small_table(first, rows), str(tmp_path / f"{number}.{extension}"))
        first += rows
    if extension == "jsonl":
        with pytest.raises(zc.errors.ReadError, match="0 bytes"):
            zc.loader(tmp_path, to="torch")
        return
    for options in OPTIONS:
        loader = zc.loader(str(tmp_path), **{"to": "torch", "batch_size": 4} | options)
        assert sum(map(len, (next(iter(b.values())) if isinstance(b, dict) else b for b in loader))) in (
            ROWS,
            4 * (ROWS // 4) * 2,
        )
    assert columns_of(zc.loader(str(tmp_path), to="numpy", batch_size=4)) == small_table().to_pydict()


def test_batches_without_rows_of_a_reader_are_left_out() -> None:
    sizes = [0, 3, 0, 7, 0]
    batches = [
        batch for size in sizes for batch in (EMPTY if size == 0 else small_table(0, size)).to_batches()
    ]
    batches += [pa.RecordBatch.from_pylist([], EMPTY.schema)]
    loader = zc.loader(pa.RecordBatchReader.from_batches(EMPTY.schema, batches), to="numpy", batch_size=4)
    assert [len(batch["x"]) for batch in loader] == [4, 4, 2]


@pytest.mark.parametrize(
    ("extension", "texts", "expected"),
    [
        ("csv", ["a,b\n", "a,b\n1,x\n"], [{"a": 1, "b": "x"}]),
        ("csv", ["a,b\n,\n", "a,b\n1,\n", "a,b\n,2.5\n"], [
            {"a": None, "b": None}, {"a": 1, "b": None}, {"a": None, "b": 2.5},
        ]),
        ("jsonl", ['{"a": null}\n', '{"a": 1}\n'], [{"a": None}, {"a": 1}]),
        ("jsonl", ['{"a": []}\n', '{"a": [1]}\n'], [{"a": []}, {"a": [1]}]),
        ("jsonl", ['{"a": {"b": null}}\n', '{"a": {"b": 1}}\n'], [{"a": {"b": None}}, {"a": {"b": 1}}]),
    ],
)  # fmt: skip
def test_columns_without_values_have_the_types_of_later_files(
    extension: str, texts: list[str], expected: list[Any], tmp_path: Path
) -> None:
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.{extension}").write_text(text)
    assert [row for batch in zc.loader(tmp_path, to="pyarrow") for row in batch.to_pylist()] == expected


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("extension", ["parquet", "feather", "csv", "jsonl", "orc"])
def test_a_file_of_no_bytes_is_refused_at_creation(extension: str, place: int, tmp_path: Path) -> None:
    for number in range(3):
        WRITERS[extension](small_table(), str(tmp_path / f"{number}.{extension}"))
    empty = tmp_path / f"{place}.{extension}"
    empty.write_bytes(b"")
    with pytest.raises(zc.errors.ReadError, match="0 bytes") as caught:
        zc.loader(tmp_path, to="numpy")
    assert (caught.value.code, caught.value.file) == ("unreadable-file", str(empty))
    # A thread of Arrow may hold the file for a moment after its footer is read.
    deadline = time.monotonic() + 10
    while open_files(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
