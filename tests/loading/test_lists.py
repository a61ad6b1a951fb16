"""Columns of lists in ``loader``: the first batch decides their length."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy._engine import converter

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
dataset = pytest.importorskip("pyarrow.dataset").dataset

VALUES = np.arange(300.0, dtype="f4").reshape(100, 3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file as Spark and DuckDB write it: lists, whose length its schema does not name."""
    lists = pa.array(VALUES.tolist(), pa.list_(pa.float32()))
    pq.write_table(pa.table({"id": np.arange(100), "e": lists}), tmp_path / "e.parquet", row_group_size=30)
    return tmp_path / "e.parquet"


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": True}, {"layout": "matrix"}, {"layout": "matrix", "shuffle": 64}]
)
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_batches_of_lists(file: Path, to: str, options: dict[str, Any]) -> None:
    pytest.importorskip(to)
    columns = ["e"] if "layout" in options else None
    rows = []
    for batch in zc.loader(file, to=to, batch_size=16, columns=columns, **options):
        part = zc.convert(batch if "layout" in options else batch["e"], "numpy")
        if "layout" not in options:
            assert (part == VALUES[zc.convert(batch["id"], "numpy")]).all()
        rows.append(part.copy())
    made = np.concatenate(rows)
    assert np.array_equal(made[np.argsort(made[:, 0])], VALUES)


def refused(source: Any, message: str, **options: Any) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        list(zc.loader(source, to="numpy", **options))
    assert message in str(caught.value)
    assert (caught.value.asked[:7], caught.value.code) == ("loader(", "list-lengths")
    (call,) = caught.value.calls
    assert list(eval(call, {"zc": zc, "source": source}))


def test_a_list_of_another_length_is_refused_with_its_place(tmp_path: Path) -> None:
    two, three = [1.0, 2.0], [1.0, 2.0, 3.0]
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"e": [two] * 7 + [None, three, two]}), path, row_group_size=3)
    other = "has length 3, and those before have 2"
    refused(path, f"column 'e': the list in {path}, row group 2, row 2, {other}", batch_size=4, nulls=0)
    stream = dataset(pa.table({"e": [two] * 4 + [three] * 2}).to_batches(max_chunksize=4))
    refused(stream, "record batch 1, row 0, has shape (3,), and those before have (2,)", batch_size=2)
    inner = pa.table({"e": [[[1], [2]], [[3], [4, 5]]]})
    with pytest.raises(zc.UnsupportedConversionError, match="row 0, or a later one, has inner lists"):
        list(zc.loader(inner, to="numpy"))


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_view(pa.int64())])
@pytest.mark.parametrize("shuffle", [False, 4])
def test_null_rows_and_kinds_of_lists(kind: Any, shuffle: Any) -> None:
    rows = [[1, 2], None, [3, None], *[[k, k] for k in range(7)]]
    table = pa.concat_tables([pa.table({"e": pa.array(part, kind)}) for part in (rows[:3], rows[3:])])
    batches = zc.loader(table, to="numpy", batch_size=4, nulls=-1, shuffle=shuffle)
    made = sorted(row for batch in pickle.loads(pickle.dumps(batches)) for row in batch["e"].tolist())
    assert made == sorted(
        [[-1, -1] if row is None else [-1 if x is None else x for x in row] for row in rows]
    )


def test_padded_batches_have_the_length_of_their_longest_list() -> None:
    table = pa.table({"e": [[1], [1, 2], [1, 2, 3], [4]]})
    for options, longest in ({}, 3), ({"max_length": 2, "pad_value": 9}, 2):
        batches = zc.loader(table, to="numpy", batch_size=2, lists="pad", **options)
        assert [batch["e"].shape for batch in batches] == [(2, 2), (2, longest)]


def test_padded_batches_of_lists_of_lists() -> None:
    """The plan of a loader is made without rows."""
    table = pa.table({"e": [[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]]})
    made = [batch["e"].tolist() for batch in zc.loader(table, to="numpy", batch_size=2, lists="pad")]
    assert made == [[[[1, 2], [0, 0]], [[3, 4], [5, 6]]], [[[7, 8]]]]
    table = pa.table({"e": [[[1, 2]], [[3], [5, 6]]]})
    with pytest.raises(zc.UnsupportedConversionError, match="its lists have different lengths: inner list"):
        list(zc.loader(table, to="numpy", batch_size=2, lists="pad"))


def test_invalid_lists_option() -> None:
    with pytest.raises(zc.errors.OptionError, match="lists"):
        zc.loader({"x": np.arange(3)}, to="numpy", lists="dens")


PAIRS = pa.list_(pa.int32(), 2)
PARTS = {
    "nulls of rows": pa.array([[1, 2], None, [3, 4]], PAIRS),
    "nulls inside": pa.array([[1, None], None, [3, 4]], PAIRS),
    "no nulls": pa.array([[1, 2], [3, 4]], PAIRS),
}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("encode", [None, True, "bytes"])
@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("kind", ["pairs", "lists", "nested", "tensor"])
def test_the_masks_of_a_column_of_lists_have_one_shape(
    kind: str, to: str, encode: Any, shuffle: bool, tmp_path: Path
) -> None:
    """A mask has the shape of the values, with and without nulls inside the lists of a batch."""
    pytest.importorskip(to)
    shape: tuple[int, ...] = (2,)
    for names in itertools.permutations(PARTS):
        columns = [PARTS[name] for name in names]
        if kind == "lists":
            columns = [column.cast(pa.list_(pa.int32())) for column in columns]
        elif kind == "nested":
            shape, outer = (1, 2), pa.list_(PAIRS, 1)
            columns = [
                pa.array([None if row is None else [row] for row in column.to_pylist()], outer)
                for column in columns
            ]
        elif kind == "tensor":
            type_ = pa.fixed_shape_tensor(pa.int32(), [2])
            columns = [pa.ExtensionArray.from_storage(type_, column) for column in columns]
        table = pa.table({"c": pa.chunked_array(columns), "id": range(8)})
        if encode:
            table = table.append_column("text", pa.array(["a", "b"] * 4))
        path = str(tmp_path / "masks.parquet")
        pq.write_table(table, path, row_group_size=3)
        lists = "dense" if kind == "lists" else None
        options: dict[str, Any] = {"nulls": "mask", "encode": encode, "lists": lists}
        values, mask = zc.convert(table, "numpy", **options)["c"]
        mask = np.broadcast_to(
            mask.reshape(8, *[1] * (values.ndim - mask.ndim), *mask.shape[1:]), values.shape
        )
        for source in (table, path):
            for batch in zc.loader(source, to=to, batch_size=3, shuffle=shuffle, **options):
                part, rows = batch["c"], np.asarray(batch["id"].values)
                assert tuple(part.mask.shape) == tuple(part.values.shape) == (len(rows), *shape)
                assert np.array_equal(np.asarray(part.mask), mask[rows])
                assert np.array_equal(np.asarray(part.values)[~mask[rows]], values[rows][~mask[rows]])


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("lists", ["dense", "pad", None])
def test_a_column_of_lists_leaves_the_others_on_their_path(
    lists: str | None, shuffle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[set[str]] = []
    convert = converter.convert_slowly

    def recorded(obj: Any, *args: Any) -> Any:
        calls.append(set(getattr(obj, "column_names", ())))
        return convert(obj, *args)

    rows = range(1, 121)
    lengths = [2 if lists == "dense" else row % 3 for row in rows]
    table = pa.table(
        {
            "x": pa.array([row if row % 7 else None for row in rows]),
            "list": pa.array([[row] * length for row, length in zip(rows, lengths, strict=True)]),
            "word": pa.array([f"w{row % 5}" for row in rows]),
            "row": pa.array(rows),
        }
    )
    loader = zc.loader(table, "numpy", batch_size=10, shuffle=shuffle, nulls="mask", encode=True, lists=lists)
    monkeypatch.setattr(converter, "convert_slowly", recorded)
    delivered = []
    for batch in loader:
        assert list(batch) == table.column_names
        delivered += batch["row"].values.tolist()
        for place, row in enumerate(batch["row"].values.tolist()):
            assert batch["x"].mask[place] == (row % 7 == 0)
            assert batch["x"].mask[place] or batch["x"].values[place] == row
            code = int(batch["word"].values.values[place])
            assert str(loader.dictionaries["word"][code]) == f"w{row % 5}"
            assert _list_at(batch["list"], place) == [row] * lengths[row - 1]
    assert sorted(delivered) == list(rows)
    # Once for a window: all columns; for each batch: padded lists.
    of_lists = calls.count({"list"})
    assert len(calls) - of_lists <= 3
    assert of_lists <= (12 if lists == "pad" else 2)


def _list_at(column: zc.Masked, place: int) -> list[int]:
    """Return a list of a batch: dense, padded with zeros, or cut from the items of all lists."""
    values = column.values
    if isinstance(values, zc.Encoded):
        low, high = values.offsets[place : place + 2]
        return list(values.values.values[low:high])
    return [item for item in values[place].tolist() if item]
