"""``nulls="drop"``: the rows that remain are those of Arrow's and pandas' own calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.table_cases import KINDS, TENSORS, pa, rows, shaped, storage

import zerocopy as zc

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

SHAPES = ("plain", "nulls", "null slice", "null chunks", "empty", "no chunks")
OTHER = "other"


def table_of(kind: Any, shape: str) -> Any:
    column = shaped(kind, shape)
    numbers = pa.array([None if i == 2 else i for i in range(len(column))], pa.int64())
    return pa.table({"x": column, OTHER: numbers})


def expected(table: Any, labels: list[str]) -> Any:
    """Return the rows without a null in the columns, by Arrow's own mask and one slice for each row."""
    valid = np.ones(table.num_rows, bool)
    for label in labels:
        valid &= np.asarray(table[label].combine_chunks().is_valid()) if table.num_rows else valid
    pieces = [table.slice(int(row), 1) for row in np.flatnonzero(valid)]
    return pa.concat_tables(pieces) if pieces else table.slice(0, 0)


@pytest.mark.parametrize("nulls", ["drop", {OTHER: "drop"}], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_arrow_for_every_type(kind: str, shape: str, nulls: Any) -> None:
    table = table_of(KINDS[kind], shape)
    want = expected(table, ["x", OTHER] if nulls == "drop" else [OTHER])
    result = zc.convert(table, "pyarrow", nulls=nulls)
    assert result.schema.types == want.schema.types
    for label in table.column_names:
        assert storage(result[label]) == storage(want[label])
    plan = zc.explain(table, "pyarrow", nulls=nulls)
    assert plan.possible
    if want.num_rows:  # without rows, categories can still be aliased
        assert plan.zero_copy == zc.shares_memory(table, result)
    dropped = any(table[label].null_count for label in (["x", OTHER] if nulls == "drop" else [OTHER]))
    try:
        zc.convert(table, "pyarrow", nulls=nulls, copy=False)
        assert not dropped or not want.num_rows
    except zc.CopyRequiredError:
        assert dropped


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("to", TENSORS)
def test_tensors_have_the_rows_that_remain(to: str, shape: str) -> None:
    table = table_of(pa.float32(), shape).append_column("s", shaped(pa.string(), shape))
    want = expected(table, table.column_names)
    result = zc.convert(table, to, nulls="drop", encode=True)
    assert {name: rows(column) for name, column in result.items()} == want.to_pydict()
    plan = zc.explain(table, to, nulls="drop", encode=True)
    assert plan.possible
    assert plan.copied_bytes >= want["x"].nbytes * bool(table["x"].null_count)
    matrix = zc.convert(table, to, nulls="drop", columns=["x", OTHER], layout="matrix", dtype="float32")
    pair = expected(table, ["x", OTHER])
    assert rows(matrix) == [
        list(row) for row in zip(*pair.select(["x", OTHER]).to_pydict().values(), strict=True)
    ]


FRAME = {
    "f": [1.0, np.nan, 3.0, 4.0, 5.0],
    "n": pd.array([1, 2, None, 4, 5], dtype="Int64"),
    "b": pd.array([True, False, True, None, True], dtype="boolean"),
    "c": pd.Categorical(["x", "y", "x", "y", "z"]),
    "t": pd.to_datetime(["2020", "2021", "2022", "2023", "2024"]),
    "s": ["a", "b", "c", "d", "e"],
    "o": np.array([(1,), 2, None, "4", b"5"], object),
    "p": pd.period_range("2020", periods=5, freq="Y"),
}
INDEXES = {"default": None, "named": pd.Index(list("abcde"), name="k"), "range": pd.RangeIndex(5, 10)}


@pytest.mark.parametrize("subset", [["f"], ["n", "b"], ["f", "n", "b", "c", "t", "s"]], ids=str)
@pytest.mark.parametrize("index", INDEXES)
def test_frames_of_pandas_are_those_of_dropna(index: str, subset: list[str]) -> None:
    frame = pd.DataFrame(FRAME, index=INDEXES[index])
    result = zc.convert(frame, "pandas", nulls=dict.fromkeys(subset, "drop"))
    pd.testing.assert_frame_equal(result, frame.dropna(subset=subset))
    plain = frame[["f", "n"]]
    pd.testing.assert_frame_equal(zc.convert(plain, "pandas", nulls="drop"), plain.dropna())
    pd.testing.assert_series_equal(zc.convert(frame["f"], "pandas", nulls="drop"), frame["f"].dropna())
    by_polars = zc.convert(plain, "polars", nulls="drop", index=False)
    assert by_polars["f"].to_list() == plain.dropna()["f"].tolist()


def test_frames_of_polars_are_those_of_drop_nulls() -> None:
    frame = pl.DataFrame(
        {
            "a": [1, None, 3, 4],
            "s": ["a", "b", None, "a text longer than a view holds"],
            "c": pl.Series(["x", "y", "x", "z"], dtype=pl.Categorical),
            "l": [[1], [2, None], [], [4]],
        }
    )
    result = zc.convert(frame, "polars", nulls="drop")
    assert result.equals(frame.drop_nulls())
    assert result.schema == frame.schema
    only = zc.convert(frame, "polars", nulls={"s": "drop"})
    assert only.equals(frame.drop_nulls(["s"]))


def test_policies_differ_by_column() -> None:
    table = pa.table({"a": [1, None, 3, None], "b": [None, 2.0, None, 4.0]})
    result = zc.convert(table, "numpy", nulls={"a": "drop", "b": 0})
    assert result["a"].tolist() == [1, 3]
    assert result["b"].tolist() == [0.0, 0.0]
    masked = zc.convert(
        pd.DataFrame({"a": [1, np.nan], "b": [np.nan, 2]}), "numpy", nulls={"a": "drop", "b": "mask"}
    )
    assert masked["a"].tolist() == [1.0]
    assert masked["b"].to_pylist() == [None]
    kept = zc.convert(pd.DataFrame({"a": [1, 2], "b": [np.nan, 2]}), "numpy", nulls={"a": "drop"})
    assert np.isnan(kept["b"][0])
    assert kept["b"].shape == (2,)
    with pytest.raises(zc.LossyConversionError):
        zc.convert(table, "numpy", nulls={"a": "drop"})
    with pytest.raises(zc.UnsupportedConversionError, match="key"):
        zc.convert(table, "polars", nulls={"c": "drop"})


def test_without_nulls_nothing_is_copied() -> None:
    for data in (pa.table({"a": [1, 2]}), pd.DataFrame({"a": [1.5, 2]}), pl.DataFrame({"a": [1, 2]})):
        assert zc.explain(data, "numpy", nulls="drop").zero_copy
        assert zc.convert(data, "numpy", nulls="drop", copy=False)["a"].shape == (2,)
    assert zc.explain(pa.table({"a": [1, None]}), "numpy", nulls="drop", copy=False).error is not None


def test_labels_of_rows_lose_the_same_rows() -> None:
    table = pa.table({"a": [1, None, 3]})
    for labels in (["x", "y", "z"], pd.Index(["x", "y", "z"])):
        assert list(zc.convert(table, "pandas", nulls="drop", index=labels).index) == ["x", "z"]


def test_records_and_other_calls_leave_the_same_rows_out() -> None:
    table = pa.table({"a": [1, None, 3], "b": [1.0, 2.0, None]})
    assert zc.convert(table, "numpy", nulls="drop", layout="records").tolist() == [(1, 1.0)]
    assert zc.converter(table.schema, "numpy", nulls="drop")(table)["a"].tolist() == [1]
    assert zc.convert(table["a"], "numpy", nulls="drop").tolist() == [1, 3]
    assert zc.convert(table.to_reader(), "numpy", nulls="drop")["b"].tolist() == [1.0]
    assert zc.convert({"x": table}, "numpy", nulls="drop")["x"]["a"].tolist() == [1]
    objects = {"o": np.array(["a", None, "c"], object), "n": np.arange(3)}
    assert zc.convert(objects, "polars", nulls="drop")["n"].to_list() == [0, 2]
    times = np.array(["2020", "NaT", "2022"], "M8[s]")
    assert zc.convert({"t": times, "n": np.arange(3)}, "numpy", nulls="drop")["n"].tolist() == [0, 2]

    @zc.accepts("numpy", nulls="drop")
    def total(x: Any) -> float:
        return float(x["a"].sum())

    assert total(table) == 1.0


def test_values_of_dictionaries_and_runs_can_be_the_nulls() -> None:
    words = pa.DictionaryArray.from_arrays([0, 1, 1, 0], pa.array(["a", None]))
    runs = pa.RunEndEncodedArray.from_arrays([2, 4], [1, None])
    for column in (words, runs):
        result = zc.convert(pa.table({"x": column, "n": range(4)}), "pyarrow", nulls="drop")
        assert result["n"].to_pylist() == ([0, 3] if column is words else [0, 1])
        assert result["x"].type == column.type
        assert None not in result["x"].to_pylist()


@pytest.mark.parametrize("ordered", [False, True])
def test_codes_of_rows_that_remain_have_no_null_words(ordered: bool) -> None:
    indices = pa.array([0, 2, None, 1, 0], "uint8")
    words = pa.DictionaryArray.from_arrays(indices, pa.array(["b", None, "a"]), ordered=ordered)
    table = pa.table({"x": pa.chunked_array([words[:2], words[2:]]), "n": range(5)})
    for encode in ("codes", True, "bytes"):
        codes = zc.convert(table, "numpy", nulls="drop", encode=encode)["x"]
        assert codes.to_pylist() == ["b", "a", "b"]
        assert codes.categories.to_pylist() == ["b", "a"]
        assert codes.values.dtype == np.uint8
    result = zc.convert(table, "pyarrow", nulls="drop")["x"]
    assert result.type == words.type
    assert result.to_pylist() == ["b", "a", "b"]


def test_an_error_names_the_field_that_has_nulls() -> None:
    inner = [{"a": {"b": 1}}, {"a": {"b": None}}, None]
    for obj in (pa.table({"s": inner}), pa.array(inner)):
        with pytest.raises(
            zc.LossyConversionError, match=r"has 1 null in 2 rows, in its field 'b', in its field 'a'"
        ):
            zc.convert(obj, "numpy", encode=True, nulls="drop")


def test_lists_with_null_elements_remain() -> None:
    vectors = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))
    assert zc.convert(pa.table({"v": vectors}), "pyarrow", nulls="drop")["v"].to_pylist() == [
        [1, 2],
        [3, None],
    ]
    assert zc.convert(pa.table({"v": vectors[:2]}), "numpy", nulls="drop")["v"].tolist() == [[1, 2]]
    with pytest.raises(zc.LossyConversionError, match="inside its lists"):
        zc.convert(pa.table({"v": vectors}), "numpy", nulls="drop")


@pytest.mark.hazard("pyarrow#rows-of-nested-fixed-size-lists")
@pytest.mark.parametrize("place", ["column", "field", "item"])
@pytest.mark.parametrize("start", [0, 1, 5])
def test_rows_of_slices_of_nested_fixed_size_lists(start: int, place: str) -> None:
    kind, values = pa.list_(pa.list_(pa.int64(), 2), 2), np.arange(48).reshape(12, 2, 2).tolist()
    if place == "field":
        kind, values = pa.struct([("f", kind)]), [{"f": value} for value in values]
    elif place == "item":
        kind, values = pa.list_(kind), [[value] for value in values]
    valid = [i % 3 != 2 for i in range(12)]
    table = pa.table({"x": pa.array(values, kind), "y": [i if v else None for i, v in enumerate(valid)]})
    table, values, valid = table.slice(start), values[start:], valid[start:]
    remaining = [value for value, is_valid in zip(values, valid, strict=True) if is_valid]
    assert zc.convert(table, "pyarrow", nulls="drop")["x"].to_pylist() == remaining
    batches = zc.loader(table.drop(["y"]), "pyarrow", batch_size=2, shuffle=True)
    shuffled = [value for batch in batches for value in batch["x"].to_pylist()]
    assert shuffled != values
    assert sorted(map(str, shuffled)) == sorted(map(str, values))


def test_variables_with_other_rows_are_refused() -> None:
    xr = pytest.importorskip("xarray")
    data = xr.Dataset({"a": ("i", [1.0, 2.0]), "b": ("j", [1.0, 2.0, 3.0])})
    with pytest.raises(zc.UnsupportedConversionError):
        zc.convert(data, "numpy", nulls="drop", layout="columns")


REFUSED = {
    "number": pa.array([None, 2, 3]),
    "float": pa.array([None, 2.0, 3.0]),
    "bool": pa.array([None, True, False]),
    "text": pa.array([None, "a", "b"]),
    "lists": pa.array([None, [1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
    "words": pa.array([None, "a", "b"]).dictionary_encode(),
}


@pytest.mark.parametrize("policy", ["drop", 0, -1, "mask"], ids=str)
@pytest.mark.parametrize("kind", REFUSED)
def test_fixes_keep_the_policies_of_other_columns(kind: str, policy: Any) -> None:
    table = pa.table({"a": [1, None, 3], "x": REFUSED[kind]})
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(table, "numpy", nulls={"a": policy}, encode=True)
    others = [call for call in caught.value.calls if "columns=" not in call]
    assert others
    for call in others:
        assert f'nulls={{"a": {policy!r}'.replace("'", '"') in call
        exec(call, {"x": table, "zc": zc})


def test_a_matrix_with_nulls_advises_to_leave_rows_out() -> None:
    frame = pd.DataFrame({"a": pd.array([1.0, None, 3.0], "Float64"), "b": [np.nan, 2.0, 3.0]})
    with pytest.raises(zc.LossyConversionError) as caught:
        zc.convert(frame, "numpy", layout="matrix", dtype="float64")
    (call,) = (call for call in caught.value.calls if "drop" in call)
    result = eval(call, {"x": frame, "zc": zc})
    assert np.isnan(result).tolist() == [[False, True], [False, False]]  # of pandas, and so no null here
