"""``zc.dataset``: rows by their numbers, alone and in torch's ``DataLoader``."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy.loading import dataset as datasets

torch = pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")
import pyarrow.csv  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from torch.utils import data as torch_data  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

ROWS = 500
COLUMNS = {
    "i": np.arange(ROWS),
    "f": np.arange(ROWS, dtype="f4") / 4,
    "b": np.arange(ROWS) % 3 == 0,
    "p": np.arange(2 * ROWS, dtype="i2").reshape(ROWS, 2),
}
INDICES = [499, 0, 7, 7, -1, 123]


def table(chunk: int = ROWS) -> Any:
    columns = {**COLUMNS, "p": pa.FixedSizeListArray.from_arrays(COLUMNS["p"].ravel(), 2)}
    return pa.concat_tables([pa.table(columns).slice(start, chunk) for start in range(0, ROWS, chunk)])


def written(folder: Path, end: str) -> str:
    path = str(folder / f"rows.{end}")
    if end == "parquet":
        pq.write_table(table(), path, row_group_size=130)
    elif end == "arrow":
        pyarrow.feather.write_feather(table(), path, chunksize=130, compression="uncompressed")
    else:
        np.savez(path, **COLUMNS)
    return path


SOURCES: dict[str, Callable[[Path], Any]] = {
    "table": lambda folder: table(),
    "chunks": lambda folder: table(chunk=99),
    "arrays": lambda folder: COLUMNS,
    "parquet": lambda folder: written(folder, "parquet"),
    "arrow": lambda folder: written(folder, "arrow"),
    "npz": lambda folder: written(folder, "npz"),
}


def check(batch: dict[str, Any], indices: Any) -> None:
    assert list(batch) == list(COLUMNS)
    for name, values in COLUMNS.items():
        expected = torch.from_numpy(values[indices].copy())
        assert batch[name].dtype == expected.dtype
        assert torch.equal(batch[name], expected)


@pytest.mark.parametrize("joined", [1 << 30, 0], ids=["joined", "apart"])
@pytest.mark.parametrize("name", SOURCES)
def test_rows_and_batches(name: str, joined: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "_JOINED_BYTES", joined)
    data = zc.dataset(SOURCES[name](tmp_path), "torch")
    assert len(data) == ROWS
    for rows in (INDICES, np.array(INDICES), torch.tensor(INDICES), slice(90, 300, 7), slice(5, 1, -1), []):
        check(data[rows], rows if isinstance(rows, slice) else np.asarray(rows, np.int64))
    for row in (3, -2, np.int32(4)):
        check({key: value[None] for key, value in data[row].items()}, [row])
    assert data[3]["i"].shape == ()


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1, [0, ROWS], np.uint64(1 << 63)])
def test_rows_outside(index: Any) -> None:
    with pytest.raises(IndexError, match="does not exist: rows are -500 to 499"):
        zc.dataset(COLUMNS, "torch")[index]


@pytest.mark.parametrize("index", [1.0, "i", [True, False], [[1]], None])
def test_other_indices(index: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="an index is an int, a slice or a sequence of ints"):
        zc.dataset(COLUMNS, "torch")[index]


@pytest.mark.parametrize("index", [
    np.int8(3), np.int8(-3), np.array([3, 200], "u1"), np.array([-1, 3], "i1"), torch.arange(9).byte(),
    slice(0, 10, 10**30), slice(None, None, -(10**30)), slice(9, 2, -3), np.array([], "U"),
], ids=["i1", "negative", "u1", "i1s", "tensor", "step", "back", "down", "empty"])  # fmt: skip
def test_indices_of_few_bits_and_steps_of_many(index: Any) -> None:
    known = index if isinstance(index, slice) else np.asarray(index).astype(np.int64)
    assert np.array_equal(zc.dataset(COLUMNS, "numpy")[index]["i"], COLUMNS["i"][known])


def test_a_loop_over_the_rows_ends() -> None:
    assert [int(row["i"]) for row in zc.dataset(COLUMNS, "numpy")] == list(range(ROWS))  # type: ignore[attr-defined]


def test_a_batch_is_new_memory() -> None:
    assert not zc.shares_memory(COLUMNS["f"], zc.dataset(COLUMNS, "torch")[:8]["f"])


# -- a DataLoader -----------------------------------------------------------------------


def test_a_data_loader_has_the_batches_of_a_tensor_dataset() -> None:
    tensors = torch_data.TensorDataset(*map(torch.from_numpy, COLUMNS.values()))
    options: dict[str, Any] = {"batch_size": 64, "shuffle": True}
    both = [
        list(DataLoader(data, **options, generator=torch.Generator().manual_seed(3)))
        for data in (zc.dataset(table(), "torch"), tensors)
    ]
    assert len(both[0]) == 8
    for ours, theirs in zip(*both, strict=True):
        assert type(ours) is dict
        assert all(map(torch.equal, ours.values(), theirs))


@pytest.mark.parametrize("wrap", [
    lambda data: torch_data.Subset(data, range(10, 30)),
    lambda data: torch_data.ConcatDataset([torch_data.Subset(data, range(10, 30))]),
], ids=["subset", "row by row"])  # fmt: skip
def test_data_sets_of_torch_that_have_ours(wrap: Any) -> None:
    loader = DataLoader(wrap(zc.dataset(table(), "torch")), batch_size=8)
    assert [batch["i"].tolist() for batch in loader] == [[*range(k, min(k + 8, 30))] for k in (10, 18, 26)]


def test_a_batch_for_an_own_function() -> None:
    loader = DataLoader(zc.dataset(table(), "jax"), batch_size=100, collate_fn=lambda rows: rows[0].rows)
    assert [int(batch["i"][0]) for batch in loader] == [0, 100, 200, 300, 400]


def test_batches_without_collation() -> None:
    data = zc.dataset(table(), "torch", layout="matrix", columns=["f", "f"][:1])
    sampler = torch_data.BatchSampler(torch_data.SequentialSampler(data), 200, drop_last=True)  # type: ignore[arg-type]
    assert [batch.shape for batch in DataLoader(data, sampler=sampler, batch_size=None)] == [(200, 1)] * 2
    assert [batch.shape for batch in DataLoader(data, 250)] == [(250, 1)] * 2


def test_forked_workers() -> None:
    data = zc.dataset(table(), "torch")
    loader = DataLoader(data, batch_size=100, num_workers=2, multiprocessing_context="fork")
    for start, batch in zip(range(0, ROWS, 100), loader, strict=True):
        check(batch, slice(start, start + 100))


@pytest.mark.parametrize("name", SOURCES)
def test_copies_by_pickle(name: str, tmp_path: Path) -> None:
    copy = pickle.loads(pickle.dumps(zc.dataset(SOURCES[name](tmp_path), torch)))
    assert len(copy) == ROWS
    check(copy[INDICES], INDICES)


ALONE = """
import numpy as np, zerocopy as zc
rows = zc.dataset({"x": np.arange(4)}, to="numpy")
from torch.utils.data import DataLoader
print([batch["x"].tolist() for batch in DataLoader(rows, batch_size=2)])
"""


def test_batches_of_other_frameworks_need_no_conversion_to_torch_before(
    run_python: Callable[[str], Any],
) -> None:
    assert run_python(ALONE).stdout == "[[0, 1], [2, 3]]\n"


def test_texts() -> None:
    data = zc.dataset(COLUMNS, "numpy")
    assert repr(data) == "zerocopy.dataset(a dict of arrays, to='numpy'): 500 rows"
    with pytest.raises(IndexError, match=r"row 999 does not exist: rows are -500 to 499"):
        data[[0, 999]]
    for options in ({"to": "pandas"}, {"to": "numpy", "nulls": "drop"}):
        name, value = list(options.items())[-1]
        with pytest.raises(zc.errors.OptionError) as raised:
            zc.dataset(COLUMNS, **options)  # type: ignore[arg-type]
        assert str(raised.value).startswith(f"dataset({name}={value!r}): ")
        assert f"pass {name}=" in raised.value.remedy
    with pytest.raises(zc.ZeroCopyError, match="has no column 'z'; it has 'i', 'f'"):
        zc.dataset(COLUMNS, "numpy", columns=["z"])
    with pytest.raises(zc.ZeroCopyError, match="1 null in 1 row\\."):
        zc.dataset(pa.table({"x": [None, 1]}), "numpy")[0]


def test_a_copy_of_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet")
    pickled = pickle.dumps(zc.dataset(path, "torch"))
    pq.write_table(table().slice(0, 400), path)
    with pytest.raises(zc.errors.ReadError, match=re.escape(f"{path}: it has changed")):
        pickle.loads(pickled)


# -- options ----------------------------------------------------------------------------


def test_nulls() -> None:
    source = pa.table({"x": [1.5, None, 2.5], "w": ["a", None, "b"]})
    masked = zc.dataset(source, "torch", columns=["x"], nulls="mask")
    assert masked[[2, 1]]["x"].mask.tolist() == [False, True]
    assert [bool(masked[row]["x"].mask) for row in range(3)] == [False, True, False]
    assert zc.dataset(source, "torch", columns=["x"], nulls=0)[:]["x"].tolist() == [1.5, 0, 2.5]
    both = zc.dataset(source, "torch", nulls="mask", encode=True)
    assert both[::-1]["w"].to_pylist() == ["b", None, "a"]
    batch = next(iter(DataLoader(both, batch_size=2)))
    assert (batch["x"].to_pylist(), batch["w"].to_pylist()) == ([1.5, None], ["a", None])


def test_codes_are_those_of_all_rows() -> None:
    data = zc.dataset(pd.DataFrame({"w": ["b", "a", "c", "a"]}), "torch", encode="codes")
    assert [data[rows]["w"].values.tolist() for rows in ([2], [1, 0], [0])] == [[2], [0, 1], [1]]
    assert data[3]["w"].values.item() == 0
    assert zc.dataset(pa.table({"w": ["ab", "c"]}), "torch", encode="bytes")[1]["w"].to_pylist() == ["c"]


def test_lists() -> None:
    source = pa.table({"x": [[1, 2], [3, 4], [5], [6]]})
    data = zc.dataset(source, "torch")
    assert data[[1, 0]]["x"].tolist() == [[3, 4], [1, 2]]
    assert data[2:]["x"].tolist() == [[5], [6]]
    with pytest.raises(zc.UnsupportedConversionError, match="lists") as caught:
        data[:3]
    assert any(call.startswith('zc.dataset(source, "torch", lists="pad")') for call in caught.value.calls)
    assert zc.dataset(source, "torch", lists="pad")[1:3]["x"].tolist() == [[3, 4], [5, 0]]


def test_casts_and_columns() -> None:
    data = zc.dataset(table(), "torch", columns=["b", "i"], schema={"i": "int16", "b": "bool"})
    assert data[:2]["i"].dtype == torch.int16
    assert list(data[0]) == ["b", "i"]
    assert zc.dataset(COLUMNS, "torch", columns=["i"], dtype="float32")[4]["i"].dtype == torch.float32


def test_sparse_rows() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    batch = zc.dataset(sparse.csr_array(np.eye(4)), "torch")[[2, 0]]
    assert batch.to_dense().tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("to", "kind"),
    [
        ("pyarrow.Tensor", pa.Tensor),
        (pa.Tensor, pa.Tensor),
        (np.zeros(1), np.ndarray),
        (torch.zeros(1), torch.Tensor),
        (torch, torch.Tensor),
    ],
    ids=["form", "type", "ndarray", "tensor", "module"],
)
def test_forms_and_objects_name_the_target(to: Any, kind: type) -> None:
    data = zc.dataset(COLUMNS, to, columns=["f", "p"])
    for each in (data, pickle.loads(pickle.dumps(data))):
        assert {type(part) for part in each[:4].values()} == {kind}


# -- refusals -----------------------------------------------------------------------------


def test_fixes_are_calls_of_dataset() -> None:
    source = pa.table({"w": ["a"], "x": [1]})
    with pytest.raises(zc.UnsupportedConversionError, match=r"^dataset\(source, to='torch'\): ") as caught:
        zc.dataset(source, "torch")
    for call in caught.value.calls:
        assert len(pasted(call, {"zc": zc, "source": source})) == 1
    with pytest.raises(zc.LossyConversionError, match=r"^dataset\(source, to='torch'\): .*null"):
        zc.dataset(pa.table({"x": [None, 1]}), "torch")[0]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: zc.dataset(table(), "polars"), zc.errors.OptionError),
        (lambda: zc.dataset(table(), "pyarrow"), zc.errors.OptionError),
        (lambda: zc.dataset(table(), "xarray"), zc.errors.OptionError),
        (lambda: zc.dataset(table(), "torch", nulls="drop"), zc.errors.OptionError),
        (lambda: zc.dataset(table(), "torch", lists="dens"), zc.errors.OptionError),
        (lambda: zc.dataset(table(), "torch", shuffle=True), TypeError),
        (lambda: zc.dataset(table().to_reader(), "torch"), zc.UnsupportedConversionError),
        (lambda: zc.dataset(3, "torch"), zc.UnsupportedConversionError),
    ],
)
def test_refusals_name_the_function(make: Callable[[], Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^dataset\("):
        make()


def test_rows_of_tensors_without_indexing_are_refused() -> None:
    data = zc.dataset(COLUMNS, "pyarrow.Tensor", columns=["f"])
    with pytest.raises(zc.UnsupportedConversionError, match=r"a row of pyarrow\.lib\.Tensor.*") as raised:
        data[3]
    batch = eval(raised.value.remedy.rpartition(": ")[2], {"data": data})
    assert batch["f"].to_numpy().tolist() == [0.75]


def test_a_failure_of_an_index_is_not_an_unsupported_index() -> None:
    from zerocopy.tables.result import first_row

    class Broken:
        def __getitem__(self, index: int) -> None:
            raise RecursionError("a subclass of RuntimeError, as the errors of GPUs are")

    with pytest.raises(RecursionError):
        first_row({"x": Broken()})


def test_streams_are_refused(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(pa.table({"x": [1]}), tmp_path / "a.csv")
    with pytest.raises(zc.UnsupportedConversionError, match="read in sequence, and have no numbers"):
        zc.dataset(tmp_path / "a.csv", "torch")
