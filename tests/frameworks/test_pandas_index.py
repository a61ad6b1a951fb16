"""The index and the labels of data frames, to other tables and to tensors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import registry
from zerocopy._frameworks.pandas import metadata as pandas_metadata

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
from pandas.testing import assert_frame_equal, assert_index_equal  # noqa: E402

INDEXES = {
    "default": (pd.RangeIndex(3), 0),
    "named range": (pd.RangeIndex(3, name="r"), 1),
    "step": (pd.RangeIndex(10, 16, 2), 1),
    "named": (pd.Index([5, 3, 1], name="i"), 1),
    "unnamed": (pd.Index([5, 3, 1]), 1),
    "text": (pd.Index(["p", "q", "r"], name="k"), 1),
    "floats": (pd.Index([0.5, 1.5, 2.5]), 1),
    "dates": (pd.DatetimeIndex(["2020-01-01", "2020-01-03", "2021-01-01"], name="d"), 1),
    "tz": (pd.DatetimeIndex(["2020-01-01", "2020-01-03", "2021-01-01"], tz="Europe/Berlin"), 1),
    "multi": (pd.MultiIndex.from_arrays([["a", "a", "b"], [1, 2, 1]], names=["u", None]), 2),
    "name of a column": (pd.Index([5, 3, 1], name="x"), 1),
}


@pytest.mark.parametrize(("index", "levels"), INDEXES.values(), ids=INDEXES)
@pytest.mark.parametrize("index_option", [None, True, False])
def test_index_is_kept_or_left_out(index, levels: int, index_option: bool | None) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5]}, index=index)
    options = {} if index_option is None else {"index": index_option}
    count = {None: levels, True: index.nlevels, False: 0}[index_option]
    table = zc.convert(frame, "pyarrow", **options)
    assert table.num_columns == 1 + count
    expected = frame if count or index_option is None else frame.reset_index(drop=True)
    # pyarrow's own reader, then zerocopy: both restore the index and its name.
    assert_frame_equal(table.to_pandas(), expected)
    back = zc.convert(table, "pandas")
    assert_frame_equal(back, expected, check_dtype=False)
    assert_index_equal(back.index, expected.index, exact="equiv")
    flat = zc.convert(table, "pandas", index=False)
    named = sum(name is not None for name in expected.index.names) if count else 0
    assert flat.shape == (3, 1 + named)
    assert zc.convert(table, "pandas", index=[7, 8, 9]).columns.tolist() == flat.columns.tolist()
    assert_index_equal(flat.index, pd.RangeIndex(3))
    tensors = zc.convert(frame, "numpy", columns=["x"], **options)
    assert list(tensors) == ["x"]


def test_index_becomes_tensors() -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5]}, index=pd.Index([7, 8], name="i"))
    tensors = zc.convert(frame, "torch", copy=False)
    assert list(tensors) == ["x", "i"]
    assert zc.shares_memory(tensors["i"], frame.index.to_numpy(copy=False))
    assert list(zc.convert(frame, "torch", index=False)) == ["x"]
    assert list(zc.convert(frame.reset_index(drop=True), "torch")) == ["x"]
    assert zc.convert(frame.reset_index(drop=True), "torch", index=True)["__index_level_0__"].tolist() == [
        0,
        1,
    ]
    assert list(zc.convert(frame["x"], "torch", index=True)) == ["x", "i"]
    with pytest.raises(zc.CopyRequiredError, match="RangeIndex has no memory"):
        zc.convert(frame.set_axis(pd.RangeIndex(0, 4, 2)), "torch", copy=False)
    zc.convert(frame.set_axis(pd.RangeIndex(0, 4, 2)), "torch", copy=False, index=False)


def test_arrow_index_is_aliased_and_levels_are_copied() -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5]}, index=pd.Index([7, 8], name="i"))
    table = zc.convert(frame, "pyarrow")
    back = zc.convert(table, "pandas", copy=False)
    assert zc.shares_memory(back.index.to_numpy(copy=False), frame.index.to_numpy(copy=False))
    several = zc.convert(frame.set_index(frame["x"] * 2, append=True), "pyarrow")
    plan = zc.explain(several, "pandas")
    assert [leaf.zero_copy for leaf in plan.leaves.values()] == [True, False, False]
    with pytest.raises(zc.CopyRequiredError, match="MultiIndex"):
        zc.convert(several, "pandas", copy=False)
    assert zc.convert(several, "pandas", copy=False, index=False).shape == (2, 3)


@pytest.mark.parametrize("through", ["pyarrow", "nanoarrow"])
def test_an_index_without_a_name_that_is_replaced_is_no_column(through: str) -> None:
    pytest.importorskip(through)
    frame = pd.DataFrame({"x": [1.5, 2.5]}, index=[True, False])
    table = zc.convert(frame, through)
    for index in (False, [7, 8]):
        back = zc.convert(table, "pandas", index=index, copy=False)  # bits of the index are not read
        assert back.columns.tolist() == ["x"]
        assert list(zc.explain(table, "pandas", index=index).leaves) == ["['x']"]
    chosen = zc.convert(table, "pandas", index=False, columns=["x", "__index_level_0__"])
    assert chosen.columns.tolist() == ["x", "__index_level_0__"]
    assert list(zc.convert(table, "torch", index=False)) == ["x", "__index_level_0__"]


def test_labels_are_a_sequence_or_an_array() -> None:
    for labels in (torch.tensor([5, 6]), np.array([5, 6]), [5, 6], {5: "a", 6: "b"}):
        assert zc.convert(np.ones(2), "pandas", index=labels).index.tolist() == [5, 6]
    for unordered in ({5, 6}, frozenset((5, 6))):
        with pytest.raises(ValueError, match="labels of the rows in order"):
            zc.convert(np.ones(2), "pandas", index=unordered)


def test_selection_removes_missing_index_levels_from_metadata() -> None:
    frame = pd.DataFrame({"x": [1.5], "y": [2]}, index=pd.Index([7], name="i"))
    table = zc.convert(frame, "pyarrow", columns=["y"])
    assert table.to_pandas().columns.tolist() == ["y"]
    assert zc.convert(table, "pandas")["y"].tolist() == [2]


def test_metadata_has_the_types_of_numpy_that_pyarrow_writes() -> None:
    types = ("datetime64[us]", "timedelta64[ns]", "object", "bool", "float32")
    frame = pd.DataFrame({name: np.zeros(2, name) for name in types})
    frame["object"] = pd.Series([b"a", None], dtype=object)
    entries = zc.convert(frame, "pyarrow").schema.pandas_metadata["columns"]
    expected = pa.Table.from_pandas(frame).schema.pandas_metadata["columns"]
    assert [entry["numpy_type"] for entry in entries] == [entry["numpy_type"] for entry in expected]
    assert [entry["numpy_type"] for entry in entries] == [*types]


LABELS = {
    "ints": pd.Index([3, 1], name="n"),
    "range": pd.RangeIndex(2),
    "floats": pd.Index([0.5, 1.5]),
    "bools": pd.Index([True, False]),
    "bytes": pd.Index([b"a", b"b"]),
    "dates": pd.DatetimeIndex(["2020-01-01", "2021-01-01"]),
    "tz": pd.DatetimeIndex(["2020-01-01", "2021-01-01"], tz="Europe/Berlin"),
    "levels": pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["u", None]),
    "duplicates": pd.Index(["a", "a"]),
    "mixed": pd.Index(["a", 1]),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_survive_arrow(labels) -> None:
    frame = pd.DataFrame([[1.5, 2.5], [3.5, 4.5]], columns=labels)
    frame.attrs["unit"] = "m"
    table = zc.convert(frame, "pyarrow")
    assert table.column_names == [str(label) for label in labels]
    back = zc.convert(table, "pandas")
    assert_frame_equal(back, frame, check_dtype=False, check_column_type="equiv")
    assert back.attrs == frame.attrs
    copied = zc.convert(frame, "pandas", copy=True)
    assert_frame_equal(copied, frame, check_column_type="equiv")
    if str(labels.dtype) != "bool":  # pyarrow reads "False" as true
        assert_frame_equal(table.to_pandas(), frame, check_column_type="equiv")


@pytest.mark.parametrize(
    "labels",
    [pd.CategoricalIndex(["a"]), pd.timedelta_range("1s", periods=1), pd.period_range("2020", periods=1)],
)
def test_labels_that_pyarrow_reads_as_text_survive_zerocopy(labels) -> None:
    table = zc.convert(pd.DataFrame([[1.5]], columns=labels), "pyarrow")
    assert table.to_pandas().iloc[0, 0] == 1.5
    assert zc.convert(table, "pandas").columns.tolist() == labels.tolist()


def test_duplicate_labels_are_refused_for_dicts() -> None:
    frame = pd.DataFrame(np.eye(2), columns=["a", "a"])
    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'a'"):
            zc.convert(frame, "torch")
    other = pd.DataFrame(np.eye(2), columns=["a", "b"])
    zc.convert(other, "torch")
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'a'"):
        zc.convert(frame, "torch")
    assert list(zc.convert(pd.DataFrame(np.eye(2)), "torch")) == [0, 1]


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 2)])
def test_empty_frames_keep_their_columns(shape) -> None:
    frame = pd.DataFrame(np.zeros(shape), columns=[f"c{i}" for i in range(shape[1])])
    table = zc.convert(frame, "pyarrow")
    assert table.column_names == list(frame.columns)
    back = zc.convert(table, "pandas")
    assert back.shape[1] == shape[1]
    if shape[1]:
        assert_frame_equal(back, frame, check_dtype=False)
    assert {label: len(t) for label, t in zc.convert(frame, "numpy").items()} == dict.fromkeys(
        frame.columns, 0
    )
    assert zc.convert(frame, "pandas") is frame
    assert zc.convert(frame, "pandas", copy=True).shape == shape


def test_invalid_metadata_is_ignored() -> None:
    table = pa.table({"a": [1, 2]})
    bad = [b"no json", b"[]", b'{"index_columns": ["b"]}', b'{"columns": [1], "index_columns": []}']
    for text in bad:
        assert pandas_metadata.read({b"pandas": text}) is None
        back = zc.convert(table.replace_schema_metadata({b"pandas": text}), "pandas")
        assert back["a"].tolist() == [1, 2]
    lost = (
        b'{"index_columns": ["gone", {"kind": "range"}], "columns": [], '
        b'"column_indexes": [{"pandas_type": "int64"}]}'
    )
    back = zc.convert(table.replace_schema_metadata({b"pandas": lost}), "pandas")
    assert back["a"].tolist() == [1, 2]
    other = table.replace_schema_metadata({b"mine": b"1"})
    assert any("mine" in warning for warning in zc.explain(other, "pandas").warnings)


@pytest.mark.parametrize("to", ["numpy", "torch", "pyarrow", "polars"])
@pytest.mark.parametrize("levels", [[[1, 1, 2], [0.5, 1.5, 0.5]], [[1, 2, 3], [0.5, 1.5, 2.5]]])
def test_values_of_a_multiindex_are_computed(levels: list[list[float]], to: str) -> None:
    pytest.importorskip(to)
    index = pd.MultiIndex.from_arrays(levels, names=["a", "b"])
    plan = zc.explain(index, to)
    assert not plan.zero_copy
    assert plan.copied_bytes == 48
    assert plan.shares_memory is zc.shares_memory(index, zc.convert(index, to)) is False
    with pytest.raises(zc.CopyRequiredError, match="MultiIndex"):
        zc.convert(index, to, copy=False)
    assert zc.explain(index.to_frame(index=False), "pyarrow").zero_copy
    assert not zc.explain(index, "pandas", columns=["a"]).zero_copy


def test_plans_of_computed_levels_do_not_depend_on_their_address() -> None:
    """JAX requires 64-byte alignment, which pandas' new array of a level has by chance."""
    pytest.importorskip("jax")
    values = np.arange(5, dtype="f4")
    frame = pd.DataFrame({"c": values}, pd.MultiIndex.from_arrays([values, values], names=["a", "b"]))
    kept = [zc.explain(frame, "jax").leaves for _ in range(12)]  # each holds the level that it describes
    for leaf in ("['a']", "['b']"):
        assert {len(leaves[leaf].reasons) for leaves in kept} == {1}


# -- labels that the caller passes ------------------------------------------------


@pytest.mark.parametrize("source", HOST)
@pytest.mark.parametrize("shape", [(4,), (4, 2), (0,)])
def test_any_tensor_gets_the_labels_of_a_frame(source: str, shape: tuple[int, ...]) -> None:
    try:
        predicted = zc.convert(np.ones(shape, np.float32), source)
    except zc.ZeroCopyError:
        pytest.skip(f"{source} has no array of shape {shape}")
    frame = pd.DataFrame({"x": range(9)}).query("x % 2")[: shape[0]]
    plan = zc.explain(predicted, "pandas", index=frame.index)
    result = zc.convert(predicted, "pandas", index=frame.index)
    assert_index_equal(result.index, frame.index)
    assert plan.shares_memory in (None, zc.shares_memory(predicted, result))
    if shape == (4,):
        assert frame.assign(predicted=result)["predicted"].tolist() == [1.0] * 4
    converter = zc.converter(predicted, "pandas", index=frame.index)
    assert_index_equal(converter(predicted).index, frame.index)


@pytest.mark.parametrize(
    "labels", [list("abc"), np.array([5, 3, 1]), pd.Series([2, 4, 6], name="k"), range(3)]
)
def test_labels_replace_those_of_tables(labels) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5]}, index=pd.Index([7, 8, 9], name="i"))
    for x in (frame, zc.convert(frame, "pyarrow"), zc.convert(frame, "polars"), {"x": [1.5, 2.5, 3.5]}):
        x = {"x": frame["x"].to_numpy()} if type(x) is dict else x
        kept = (
            ["x"] if type(x) in (dict, pd.DataFrame) else ["x", "i"]
        )  # an index of another table is a column
        result = zc.convert(x, "pandas", index=labels)
        assert_index_equal(result.index, pd.Index(labels))
        assert list(result) == kept
        assert result["x"].tolist() == [1.5, 2.5, 3.5]
    series = zc.convert(frame["x"], "pandas", index=labels)
    assert_index_equal(series.index, pd.Index(labels))
    assert (series.name, series.tolist()) == ("x", [1.5, 2.5, 3.5])
    stream = pa.RecordBatchReader.from_batches(
        pa.schema([("y", pa.int8())]), [pa.record_batch({"y": pa.array([1, 2, 3], pa.int8())})]
    )
    assert_index_equal(zc.convert(stream, "pandas", index=labels).index, pd.Index(labels))


def test_labels_that_do_not_fit_are_refused() -> None:
    x = torch.arange(3.0)
    frame = pd.DataFrame({"x": range(4)})
    for labels, why in [
        (frame.index, "index= has length 4, but the object has 3 rows"),
        (frame[:3], "pandas cannot make an index"),
        (np.ones((3, 1)), "pandas cannot make an index"),
    ]:
        plan = zc.explain(x, "pandas", index=labels)
        assert not plan.possible
        with pytest.raises(zc.UnsupportedConversionError, match=why) as caught:
            zc.convert(x, "pandas", index=labels)
        assert caught.value.calls == ('zc.convert(x, "pandas")',)
        assert str(plan.error) == str(caught.value)
    with pytest.raises(
        ValueError, match="index must be True, False, None or the labels of the rows in order, not 'abc'"
    ):
        zc.convert(x, "pandas", index="abc")


@pytest.mark.parametrize(
    "to", [name for name in registry.frameworks() if name not in ("pandas", "cupy", "numba")]
)
def test_other_targets_have_no_labels(to: str) -> None:
    if not registry.by_name(to).installed() or registry.by_name(to).kind == "compound":
        pytest.skip(f"{to} is not installed, or has no tables")
    labels = pd.Index([1, 2])
    for x in (np.arange(2.0), pd.DataFrame({"x": [1.0, 2.0]}, index=[5, 6])):
        assert not zc.explain(x, to, index=labels).possible
        with pytest.raises(zc.UnsupportedConversionError, match="has no labels of rows"):
            zc.convert(x, to, index=labels)


def test_labels_are_not_kept_by_routes() -> None:
    labels = pd.Index([3, 4, 5])
    for _ in range(3):
        zc.convert(np.arange(3.0), "pandas", index=labels)
    kept = weakref.ref(labels)
    del labels
    gc.collect()
    assert kept() is None
