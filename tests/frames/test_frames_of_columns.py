"""Tables and columns: every Arrow type, slices with only their own bytes, polars and pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.frames import from_frames, to_frames

pa = pytest.importorskip("pyarrow")

from helpers.table_cases import KINDS, SHAPES, shaped  # noqa: E402
from helpers.tiers import sampled  # noqa: E402

_RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4, 6], pa.int32()), pa.array([1, None, 3]))
_CODES = pa.array([0, 1, 0, 1, 0, 1], pa.int8())
OTHERS = {
    "sparse union": pa.UnionArray.from_sparse(_CODES, [pa.array(range(6)), pa.array(list("abcdef"))]),
    "dense union": pa.UnionArray.from_dense(
        _CODES, pa.array([0, 0, 1, 1, 2, 2], pa.int32()), [pa.array(range(3)), pa.array(list("abc"))]
    ),
    "run ends": _RUNS,
    "interval": pa.array([(1, 2, 3)] * 6, pa.month_day_nano_interval()),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * 6, pa.binary(16))),
    "binary view": pa.array([b"a text of twenty bytes", None] * 3, pa.binary_view()),
    "large list view": pa.array([[1], [2, 3], None, [], [4], [5]], pa.large_list_view(pa.int32())),
    "binary of no bytes": pa.array([b"", None] * 3, pa.binary(0)),
}


def restored(obj: Any) -> Any:
    split = to_frames(obj)
    return from_frames(split.header, split.frames)


@pytest.mark.parametrize(("kind", "shape"), [*sampled(3, [*KINDS], [*SHAPES])])
def test_every_type_and_shape_comes_back(kind: str, shape: str) -> None:
    column = shaped(KINDS[kind], shape)
    result = restored(column)
    result.validate(full=True)
    assert result.type == column.type
    assert result.equals(column)
    assert [len(chunk) for chunk in result.chunks] == [len(chunk) for chunk in column.chunks]


@pytest.mark.parametrize("name", OTHERS)
def test_other_types_and_their_slices_come_back(name: str) -> None:
    array = OTHERS[name]
    for part in (array, array.slice(1, 3), array.slice(2), array.slice(3, 0)):
        result = restored(part)
        result.validate(full=True)
        assert type(result) is type(part)
        assert result.equals(part)


def test_each_form_comes_back() -> None:
    table = pa.table({"x": [1, 2, None], "y": ["a", "b", "c"]}).replace_schema_metadata({"k": "v"})
    batch = table.to_batches()[0]
    for obj in (table, batch, table["x"], batch["x"], pa.Tensor.from_numpy(np.arange(6).reshape(2, 3))):
        result = restored(obj)
        assert type(result) is type(obj)
        assert result.equals(obj)
    assert restored(table).schema.metadata == {b"k": b"v"}


def test_rows_without_columns_come_back() -> None:
    empty = pa.table({"x": [1, 2, 3]}).select([])
    assert restored(empty).num_rows == 3
    assert restored(empty.to_batches()[0] if empty.to_batches() else empty).num_columns == 0


def test_whole_columns_alias() -> None:
    table = pa.table({"x": np.arange(8), "y": ["text"] * 8, "z": [[1, 2]] * 8})
    split = to_frames(table)
    addresses = {buffer.address for column in table.columns for buffer in column.chunk(0).buffers() if buffer}
    assert split.copied_bytes == 0
    assert {frame.ctypes.data for frame in split.frames} == addresses
    back = from_frames(split.header, split.frames)
    assert {b.address for column in back.columns for b in column.chunk(0).buffers() if b} == addresses


@pytest.mark.parametrize("kind", ["numbers", "text", "views", "lists", "list views", "nested"])
def test_a_slice_of_five_rows_has_five_rows(kind: str) -> None:
    count = 100_000
    text = [f"a text longer than a view holds {i}" for i in range(count)]
    column = {
        "numbers": lambda: pa.array(range(count)),
        "text": lambda: pa.array(text),
        "views": lambda: pa.array(text, pa.string_view()),
        "lists": lambda: pa.array([[i, i] for i in range(count)]),
        "list views": lambda: pa.array([[i, i] for i in range(count)], pa.list_view(pa.int64())),
        "nested": lambda: pa.array([{"a": i, "b": [str(i)]} for i in range(count)]),
    }[kind]()
    part = pa.table({"x": column.slice(50_003, 5)})
    split = to_frames(part)
    assert split.nbytes < 600
    assert from_frames(split.header, split.frames).equals(part)


@pytest.mark.hazard("training#lists-without-offsets")
@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int8()), pa.string()])
def test_lists_without_rows_have_an_offset(kind: Any) -> None:
    """polars 2.1 raises an error for lists without an offset, which Arrow permits."""
    split = to_frames(pa.array([], kind))
    assert split.frames[0].nbytes == (8 if kind == pa.large_list(pa.int8()) else 4)
    with pytest.raises(zc.UnsupportedConversionError) as error:
        from_frames(split.header, [b"", *split.frames[1:]])
    assert error.value.code == "invalid-frames"


def test_an_extension_type_that_is_not_registered_is_refused() -> None:
    class Unregistered(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.int64(), "tests.unregistered")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

    array = pa.ExtensionArray.from_storage(Unregistered(), pa.array([1, 2]))
    with pytest.raises(zc.UnsupportedConversionError) as error:
        to_frames(array)
    assert error.value.code == "extension-type"


# -- polars ---------------------------------------------------------------------------


def test_polars_columns_come_back() -> None:
    pytest.importorskip("polars")
    from helpers.polars_cases import ALIASED

    for name, series in ALIASED.items():
        for obj in (series, series.slice(1, 1), series.slice(0, 0), series.alias(""), series.to_frame()):
            result = restored(obj)
            assert type(result) is type(obj), name
            assert result.equals(obj, null_equal=True), name
            if hasattr(obj, "dtype"):
                assert (result.name, result.dtype) == (obj.name, obj.dtype)
            else:
                assert result.schema == obj.schema


def test_a_slice_of_a_polars_frame_has_its_own_rows() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"x": range(100_000), "y": [f"text number {i} of a frame" for i in range(100_000)]})
    assert to_frames(frame[:5]).nbytes < 1000
    assert restored(frame[70:75]).equals(frame[70:75])


# -- pandas -----------------------------------------------------------------------------


def pandas_columns() -> dict[str, Any]:
    pd = pytest.importorskip("pandas")
    return {
        "float": np.array([1.0, np.nan]),
        "int": np.array([1, 2]),
        "bool": np.array([True, False]),
        "text": ["a", None],
        "category": pd.Categorical(["x", "y"], categories=["y", "x", "z"], ordered=True),
        "Int64": pd.array([1, None], "Int64"),
        "boolean": pd.array([True, None], "boolean"),
        "date": pd.to_datetime(["2020", "2021"]),
        "zone": pd.to_datetime(["2020", "2021"], utc=True),
        "duration": pd.to_timedelta([1, 2]),
        "arrow": pd.array([1, 2], "int64[pyarrow]"),
        "interval": pd.interval_range(0, 2),
        "period": pd.period_range("2020", periods=2, freq="D"),
    }


def test_pandas_dtypes_come_back() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(pandas_columns())
    pd.testing.assert_frame_equal(restored(frame), frame)
    for name in frame:
        pd.testing.assert_series_equal(restored(frame[name]), frame[name])


def test_pandas_numbers_alias() -> None:
    pd = pytest.importorskip("pandas")
    series = pd.Series(np.arange(8.0))
    split = to_frames(series)
    assert split.copied_bytes == 0
    assert np.shares_memory(from_frames(split.header, split.frames).to_numpy(), series.to_numpy())


@pytest.mark.parametrize("name", [None, "x", 7, ("a", 1)])
def test_pandas_names_and_indexes_come_back(name: Any) -> None:
    pd = pytest.importorskip("pandas")
    series = pd.Series([1.0, 2.0], index=pd.Index(["a", "b"], name="row"), name=name)
    pd.testing.assert_series_equal(restored(series), series)
    index = pd.Index([1, 2], name=name)
    pd.testing.assert_index_equal(restored(index), index)
    frame = pd.DataFrame({name or 0: [1, 2]}, index=pd.MultiIndex.from_tuples([(1, "a"), (2, "b")]))
    frame.attrs["unit"] = "m"
    pd.testing.assert_frame_equal(restored(frame), frame)
    assert restored(frame).attrs == {"unit": "m"}


def test_pandas_rows_without_columns_come_back() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [1, 2]})
    assert restored(frame[[]]).shape == (2, 0)
    pd.testing.assert_frame_equal(restored(frame.iloc[:0]), frame.iloc[:0])
    pd.testing.assert_frame_equal(restored(frame.iloc[1:]), frame.iloc[1:], check_index_type="equiv")


def test_the_own_framework_as_target_keeps_its_types() -> None:
    pd = pytest.importorskip("pandas")
    series = pd.Series([1.0, 2.0], name="x")
    split = to_frames(series)
    pd.testing.assert_series_equal(from_frames(split.header, split.frames, to="pandas"), series)
    assert type(from_frames(split.header, split.frames, to="pyarrow")) is pa.Table


# -- objects without a framework -----------------------------------------------------------


def test_an_arrow_stream_of_another_library_becomes_a_table() -> None:
    class Foreign:
        def __init__(self, table: Any) -> None:
            self.table = table

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self.table.__arrow_c_stream__(requested_schema)

    table = pa.table({"x": [1, 2]})
    assert restored(Foreign(table)).equals(table)


@pytest.mark.parametrize("place", ["column", "series", "index", "level"])
@pytest.mark.parametrize("values", [[{"a": 1}, {"b": 2}], [1, "a"], [[1], [2, 3]], [None, object()]])
def test_objects_of_pandas_are_refused(place: str, values: list[object]) -> None:
    """Arrow would guess a type for them, and dicts would come back with the keys of all dicts."""
    pd = pytest.importorskip("pandas")
    column = pd.Series(values, dtype=object, name="a")
    index = pd.Index(range(2), dtype=object, name="a")
    x = {
        "column": lambda: column.to_frame(),
        "series": lambda: column,
        "index": lambda: pd.DataFrame({"x": [1, 2]}, index=index),
        "level": lambda: pd.DataFrame({"x": [1, 2]}, index=pd.MultiIndex.from_arrays([[1, 2], index])),
    }[place]()
    with pytest.raises(zc.UnsupportedConversionError, match=r"column 'a' holds Python objects") as caught:
        zc.share(x)
    assert caught.value.code == "object-dtype"
