"""Columns of every Arrow type in the loader: in order, shuffled, and without rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import zerocopy as zc
from zerocopy.tables.hub import hub

WORDS = ["a", None, "longer than twelve bytes", "", "b"]
TEXT = pa.string_view()


def _runs(values: Any, short: bool = False) -> Any:
    kind = pa.int16() if short else pa.int32()
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), kind), values)


def _lists(values: Any, kind: Any) -> Any:
    """Return lists of 0 to 2 of the values, one of which is null."""
    ends = [0]
    for row in range(len(values)):
        ends.append(min(ends[-1] + row % 3, len(values)))
    offsets = pa.array(ends, pa.int64() if kind is pa.LargeListArray else pa.int32())
    mask = pa.array([row == 1 for row in range(len(values))])
    return kind.from_arrays(offsets, values, mask=mask)


def _columns(count: int) -> dict[str, Any]:
    words = pa.array([WORDS[row % 5] for row in range(count)], TEXT)
    plain, numbers = words.cast("string"), pa.array([None if row % 4 == 3 else row for row in range(count)])
    codes = plain.dictionary_encode()
    ids = pa.array([row % 2 for row in range(count)], pa.int8())
    own = pa.array(range(count), pa.int32())
    columns = {
        "string_view": words,
        "binary_view": words.cast(pa.binary_view()),
        "runs": _runs(numbers),
        "runs of views": _runs(words),
        "short runs": _runs(words, short=True),
        "list of views": _lists(words, pa.ListArray),
        "large list of views": _lists(words, pa.LargeListArray),
        "list of runs": _lists(_runs(words), pa.ListArray),
        "pairs of views": pa.FixedSizeListArray.from_arrays(pa.concat_arrays([words, words]), 2),
        "struct": pa.StructArray.from_arrays([words, _runs(numbers)], ["t", "r"], mask=ids.cast("bool")),
        "map": pa.MapArray.from_arrays(
            pa.array(range(count + 1), pa.int32()), plain.fill_null("?").cast(TEXT), words
        ),
        "opaque": pa.ExtensionArray.from_storage(pa.opaque(TEXT, "a", "b"), words),
        "dense union": pa.UnionArray.from_dense(ids, own, [words, numbers]),
        "sparse union": pa.UnionArray.from_sparse(ids, [numbers, words]),
        "dictionary of views": pa.DictionaryArray.from_arrays(codes.indices, codes.dictionary.cast(TEXT)),
        "list of codes": _lists(codes, pa.ListArray),
        "list_view": pa.array([[row] for row in range(count)], pa.list_view(pa.int64())),
        "list_view of text": pa.array([[WORDS[row % 5]] for row in range(count)], pa.list_view(TEXT)),
        "null": pa.nulls(count),
        "json": pa.ExtensionArray.from_storage(pa.json_(), plain),
    }
    tensor = np.arange(count * 6.0).reshape(count, 2, 3)
    if count:
        columns["tensor"] = pa.FixedShapeTensorArray.from_numpy_ndarray(tensor)
    return columns


COLUMNS = _columns(24)


def _rows(batches: list[Any]) -> dict[int, Any]:
    """Return the values by row number."""
    return {
        key: value
        for batch in batches
        for key, value in zip(batch["id"].to_pylist(), batch["c"].to_pylist(), strict=True)
    }


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_shuffled_table_has_the_rows_of_its_source(kind: str) -> None:
    column = COLUMNS[kind]
    whole = pa.table({"id": range(24), "c": column})
    for chunks in ([whole], [whole.slice(0, 5), whole.slice(5)], [whole.slice(3, 11)]):
        table = pa.concat_tables(chunks)
        for options in (
            {},
            {"shuffle": True},
            {"shuffle": 8, "seed": 3},
            {"drop_last": True, "shuffle": True},
        ):
            loader = zc.loader(table, to="pyarrow", batch_size=5, **options)
            batches = list(loader)
            for batch in batches:
                batch.validate(full=True)
                assert batch.schema.equals(table.schema)
            expected = dict(zip(table["id"].to_pylist(), table["c"].to_pylist(), strict=True))
            if "drop_last" not in options:
                assert _rows(batches) == expected
            else:
                assert _rows(batches).items() <= expected.items()
            assert loader.state_dict()
            assert loader.explain()


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_table_without_rows_has_no_batches(kind: str) -> None:
    table = pa.table({"c": COLUMNS[kind]}).slice(0, 0)
    for shuffle in (False, True):
        loader = zc.loader(table, to="pyarrow", shuffle=shuffle)
        assert list(loader) == []
        assert loader.state_dict()


@pytest.mark.parametrize("to", ["polars", "pandas", "nanoarrow", "duckdb"])
@pytest.mark.parametrize("kind", ["string_view", "binary_view", "list of views", "struct of text"])
def test_frames_with_text_are_shuffled_for_each_table_framework(kind: str, to: str) -> None:
    pl = pytest.importorskip("polars")
    pytest.importorskip(to)
    text = pa.StructArray.from_arrays([COLUMNS["string_view"]], ["t"])
    column = COLUMNS.get(kind, text).slice(2, 20)
    frame = pl.from_arrow(pa.table({"id": range(20), "c": column}))
    expected = dict(enumerate(column.to_pylist()))
    batches = []
    for batch in zc.loader(frame, to=to, batch_size=6, shuffle=True):
        batches.append(zc.convert(batch, "pyarrow"))
    assert _rows(batches) == expected


@pytest.mark.parametrize("encode", [True, "bytes"])
@pytest.mark.parametrize("kind", ["string_view", "binary_view", "list of views", "runs of views", "struct"])
def test_shuffled_tensors_of_text_have_the_values_of_the_whole(kind: str, encode: Any) -> None:
    table = pa.table({"id": range(24), "c": COLUMNS[kind]})
    try:
        whole = zc.convert(table, "numpy", encode=True, nulls="mask")["c"].to_pylist()
    except zc.UnsupportedConversionError:
        with pytest.raises(zc.UnsupportedConversionError):
            list(zc.loader(table, to="numpy", encode=encode, nulls="mask", shuffle=True))
        return
    rows: dict[int, Any] = {}
    for batch in zc.loader(table, to="numpy", encode=encode, nulls="mask", batch_size=7, shuffle=True):
        rows |= dict(zip(np.asarray(batch["id"].values).tolist(), batch["c"].to_pylist(), strict=True))
    assert [rows[row] for row in range(24)] == whole


def test_rows_of_short_runs_are_more_than_their_type_counts() -> None:
    ends = pa.array([20_000, 32_767], pa.int16())
    column = pa.chunked_array([pa.RunEndEncodedArray.from_arrays(ends, pa.array(["x", "y"]))] * 2)
    table = pa.table({"id": range(len(column)), "c": column})
    batches = list(zc.loader(table, to="pyarrow", batch_size=40_000, shuffle="full"))
    values = pa.concat_tables(batches)
    decoded = pa.chunked_array([pc.run_end_decode(chunk) for chunk in values["c"].chunks])
    order = np.argsort(values["id"].to_numpy())
    assert decoded.take(pa.array(order)).to_pylist() == (["x"] * 20_000 + ["y"] * 12_767) * 2


def test_a_file_of_tensors_with_a_permutation_is_loaded(tmp_path: Any) -> None:
    array = np.arange(24.0).reshape(4, 2, 3)
    path = str(tmp_path / "tensors.parquet")
    pq.write_table(
        pa.table({"c": pa.FixedShapeTensorArray.from_numpy_ndarray(array)}), path, row_group_size=2
    )
    for source in (path, pq.ParquetFile(path), pq.read_table(path), pa.dataset.dataset(path)):
        for to in ("numpy", "torch", "pyarrow"):
            for shuffle in (False, True):
                batches = list(zc.loader(source, to=to, batch_size=3, shuffle=shuffle))
                parts = [zc.convert(batch, "numpy")["c"] for batch in batches]
                whole = np.concatenate(parts)
                assert np.array_equal(whole[np.argsort(whole[:, 0, 0])], array)


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_slice_with_its_own_items_has_the_same_rows(kind: str) -> None:
    whole = pa.chunked_array([COLUMNS[kind], COLUMNS[kind].slice(3)])
    for first, count in ((0, 24), (2, 9), (5, 0), (20, 12), (44, 1)):
        part = hub().own_items(pa.table({"c": whole.slice(first, count)}))
        part.validate(full=True)
        assert part["c"].to_pylist() == whole.slice(first, count).to_pylist()
        assert part["c"].type == whole.type


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("encode", [True, "bytes"])
def test_an_encoded_batch_has_the_items_of_its_own_rows(encode: Any, shuffle: bool) -> None:
    count = 400
    columns = {
        "id": pa.array(range(count)),
        "pairs": pa.array([[float(row), 1.0] for row in range(count)]),
        "nested": pa.array([[[row], [row, 1]] for row in range(count)], pa.large_list(pa.list_(pa.int64()))),
        "views": pa.array([[row] for row in range(count)], pa.list_view(pa.int64())),
        "word": pa.array([f"{row % 10}" for row in range(count)]),
    }
    table = pa.table(columns)
    for source in (table, pa.concat_tables([table.slice(0, 150), table.slice(150)])):
        loader = zc.loader(source, to="torch", batch_size=32, encode=encode, shuffle=shuffle)
        for batch in loader:
            numbers = batch["id"].tolist()
            rows = len(numbers)
            assert len(batch["pairs"].values) == 2 * rows
            assert len(batch["nested"].values.values) == 3 * rows
            assert len(batch["views"].values) == rows
            assert encode is True or len(batch["word"].values) == rows
            assert batch["pairs"].to_pylist() == [[float(row), 1.0] for row in numbers]
            assert batch["nested"].to_pylist() == [[[row], [row, 1]] for row in numbers]
            assert batch["views"].to_pylist() == [[row] for row in numbers]
        assert len(pickle.dumps(batch)) < 200 * 32 + 4000
        assert loader.explain().columns["pairs"].nbytes == 32 * 16 + 32 * 4
