"""pandas: what goes out and comes in, whose memory it is, and what becomes of the index."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry
from zerocopy._frameworks.pandas import metadata as pandas_metadata
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.arrow_schema import Field
from zerocopy.tables.column import Table
from zerocopy.tables.object_column import arrow_of_objects
from zerocopy.tables.tensor_column import TensorColumn

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")

from pandas.testing import assert_frame_equal, assert_index_equal, assert_series_equal  # noqa: E402

NUMBERS = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "bool", "complex64", "complex128"),
]
ARROW = {
    "str": lambda: pd.Series(["a", None, "c"]),
    "string[pyarrow]": lambda: pd.Series(["a", None, "c"], dtype="string[pyarrow]"),
    "list": lambda: pd.Series(pd.array([[1], None, [2, 3]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))),
    "decimal": lambda: pd.Series(
        pd.array([decimal.Decimal("1.5"), None, None], dtype=pd.ArrowDtype(pa.decimal128(5, 2)))
    ),
    "arrow int": lambda: pd.Series(pd.array([1, None, 3], dtype="int64[pyarrow]")),
    "period": lambda: pd.Series(pd.period_range("2020", periods=3)),
    "interval": lambda: pd.Series(pd.interval_range(0, 3)),
}


def buffers(array) -> Iterator[tuple[int, int]]:
    """Each buffer of an Arrow array but the bitmaps: the first address, and the one past the last."""
    for chunk in getattr(array, "chunks", [array]):
        if isinstance(chunk, pa.ExtensionArray):
            chunk = chunk.storage
        if pa.types.is_struct(chunk.type):
            for i in range(chunk.type.num_fields):
                yield from buffers(chunk.field(i))
        elif pa.types.is_list(chunk.type):
            yield chunk.buffers()[1].address, chunk.buffers()[1].size
            yield from buffers(chunk.values)
        else:
            yield from ((b.address, b.size) for b in chunk.buffers()[1:] if b)


def storage(series) -> list[tuple[int, int]]:
    """The buffers of a pandas series, NumPy-backed or Arrow-backed."""
    if isinstance(series.dtype, np.dtype):
        array = series.to_numpy(copy=False)
        return [(address(array), array.nbytes)]
    return list(buffers(pa.chunked_array(series)))


def numbers(dtype: str) -> np.ndarray:
    return np.array([0, 1, 1, 0, 1]).astype(dtype)


# -- columns out ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_plain_columns_are_aliased(dtype: str, to: str) -> None:
    frame = pd.DataFrame({"x": numbers(dtype)})
    (result,) = zc.convert(frame, to, copy=False).values()
    assert zc.shares_memory(frame["x"].to_numpy(copy=False), result)
    assert zc.explain(frame, to).zero_copy
    assert str(np.asarray(result).dtype) == dtype
    np.testing.assert_array_equal(np.asarray(result), numbers(dtype))
    series = zc.convert(frame["x"], to)  # twice: the careful way, and the fast one
    again = zc.convert(frame["x"], to)
    assert zc.shares_memory(series, result)
    assert zc.shares_memory(again, result)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_plain_columns_go_to_arrow_and_back_in_the_same_memory(dtype: str) -> None:
    frame = pd.DataFrame({"x": numbers(dtype)})
    if dtype.startswith("complex"):
        with pytest.raises(zc.UnsupportedConversionError, match=r"column 'x'.*complex"):
            zc.convert(frame, "pyarrow")
        return
    table = zc.convert(frame, "pyarrow", copy=False)
    assert [p for p, _ in buffers(table["x"])] == [p for p, _ in storage(frame["x"])]
    back = zc.convert(table, "pandas", copy=False)
    assert [p for p, _ in storage(back["x"])] == [p for p, _ in storage(frame["x"])]


@pytest.mark.parametrize("make", ARROW.values(), ids=ARROW)
def test_arrow_columns_stay_in_arrows_memory(make) -> None:
    frame = make().to_frame("x")
    table = zc.convert(frame, "pyarrow", copy=False)
    assert list(buffers(table["x"])) == storage(frame["x"])
    back = zc.convert(table, "pandas", copy=False)
    assert storage(back["x"]) == storage(frame["x"])
    assert isinstance(back["x"].dtype, pd.ArrowDtype)
    assert back["x"].array.__arrow_array__().equals(table["x"])


def test_nan_stays_nan_and_none_of_it_is_null() -> None:
    frame = pd.DataFrame({"x": [1.5, np.nan]})
    table = zc.convert(frame, "pyarrow")
    assert table["x"].null_count == 0
    assert np.isnan(table["x"][1].as_py())
    assert np.isnan(zc.convert(frame, "torch")["x"][1].item())
    back = zc.convert({"x": np.array([1.5, np.nan])}, "pandas")
    assert back["x"].dtype == "float64"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_dates_are_aliased_and_nat_is_null(unit: str, kind: str) -> None:
    values = np.array([1, "NaT", 3], f"{kind}[{unit}]")
    frame = pd.DataFrame({"t": values})
    table = zc.convert(frame, "pyarrow", copy=False)
    assert table["t"].type == (pa.timestamp(unit) if kind == "M8" else pa.duration(unit))
    assert table["t"].null_count == 1
    assert [p for p, _ in buffers(table["t"])] == [p for p, _ in storage(frame["t"])]
    with pytest.raises(zc.LossyConversionError, match="column 't': it has 1 null"):
        zc.convert(frame, "numpy")
    with pytest.raises(zc.UnsupportedConversionError, match="column 't': it is"):
        zc.convert(frame, "torch")
    masked = zc.convert(frame, "numpy", nulls="mask")["t"]
    assert masked.values.dtype == values.dtype
    assert masked.mask.tolist() == [False, True, False]
    assert zc.shares_memory(masked.values.view("i8"), frame["t"].to_numpy(copy=False).view("i8"))
    with pytest.raises(zc.CopyRequiredError, match="mask"):
        zc.convert(frame, "numpy", nulls="mask", copy=False)
    encoded = zc.convert(frame.iloc[[0, 2]].reset_index(drop=True), "torch", encode=True)["t"]
    assert encoded.values.tolist() == [1, 3]
    assert encoded.unit == unit


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "+02:00", "-09:30", "dateutil/Europe/Berlin", datetime.UTC]
)
def test_time_zones_travel_and_times_are_aliased(zone) -> None:
    frame = pd.DataFrame({"t": pd.date_range("2020", periods=3, tz=zone, unit="us")})
    table = zc.convert(frame, "pyarrow", copy=False)
    assert table["t"].equals(pa.chunked_array(frame["t"]))
    assert table["t"].type.tz == pa.array(frame["t"]).type.tz
    assert [p for p, _ in buffers(table["t"])] == [p for p, _ in buffers(pa.chunked_array(frame["t"]))]
    encoded = zc.convert(frame["t"], "numpy", encode=True)
    assert encoded.timezone == table["t"].type.tz
    assert zc.shares_memory(encoded.values, frame["t"].array.asi8)
    assert not encoded.values.flags.writeable
    assert_frame_equal(table.to_pandas(), frame, check_dtype=zone != "dateutil/Europe/Berlin")


@pytest.mark.parametrize("dtype", ["Int64", "UInt8", "Float32", "boolean"])
def test_nullable_columns_have_their_values_and_a_mask(dtype: str) -> None:
    frame = pd.DataFrame({"x": pd.array([1, None, 0], dtype=dtype)})
    with pytest.raises(zc.LossyConversionError, match="column 'x': it has 1 null"):
        zc.convert(frame, "torch")
    masked = zc.convert(frame, "torch", nulls="mask")["x"]
    assert masked.mask.tolist() == [False, True, False]
    assert masked.values[[0, 2]].tolist() == [1, 0]
    assert zc.explain(frame, "torch", nulls="mask").leaves["['x'].values"].zero_copy == (dtype != "boolean")
    assert zc.convert(frame, "torch", nulls=1)["x"].tolist() == [1, 1, 0]
    full = frame.iloc[[0, 2]].reset_index(drop=True)
    (plain,) = zc.convert(full, "numpy", copy=False).values()
    assert plain.dtype == frame["x"].dtype.numpy_dtype
    assert not plain.flags.writeable  # written to, it would change the frame and its shallow copies
    assert zc.shares_memory(plain, full["x"].to_numpy(plain.dtype, copy=False))
    table = zc.convert(frame, "pyarrow")
    assert table["x"].null_count == 1
    assert_frame_equal(table.to_pandas(), frame)


@pytest.mark.parametrize("kind", ["str", "int", "ordered"])
def test_categories_go_as_codes(kind: str) -> None:
    values = [3, None, 1] if kind == "int" else ["b", None, "a"]
    frame = pd.DataFrame({"c": pd.Categorical(values, ordered=kind == "ordered")})
    with pytest.raises(zc.UnsupportedConversionError, match="column 'c': it is dictionary"):
        zc.convert(frame, "torch")
    with pytest.raises(zc.LossyConversionError, match="column 'c': it has 1 null"):
        zc.convert(frame, "torch", encode=True)
    encoded, mask = zc.convert(frame, "numpy", encode=True, nulls="mask")["c"]
    assert zc.shares_memory(encoded.values, frame["c"].array.codes)
    assert mask.tolist() == [False, True, False]
    assert encoded.ordered == (kind == "ordered")
    names = encoded.categories.tolist() if kind == "int" else encoded.categories.to_pylist()
    assert names == list(frame["c"].cat.categories)
    table = zc.convert(frame, "pyarrow", copy=False)
    assert table["c"].to_pylist() == values
    assert_frame_equal(table.to_pandas(), frame)


def test_what_has_no_counterpart_names_its_column_and_stands_in_no_ones_way() -> None:
    frame = pd.DataFrame({"x": [1, 0], "s": pd.arrays.SparseArray([0, 1])})
    frame["l"] = np.array([1, 2], np.longdouble)
    for to in ("torch", "pyarrow"):
        with pytest.raises(
            zc.UnsupportedConversionError, match=r"'s': it is Sparse.*'l': it is (long|float128)"
        ) as caught:
            zc.convert(frame, to)
        assert "to_dense()" in str(caught.value)
        assert not zc.explain(frame, to).possible
    assert zc.convert(frame, "torch", columns=["x"])["x"].tolist() == [1, 0]
    assert_frame_equal(zc.convert(frame, "pandas", copy=True), frame)


def test_other_byte_orders_and_bytes() -> None:
    frame = pd.DataFrame({"x": np.array([1, 258], ">i4"), "b": np.array([b"ab", b"c"], "S2")}, copy=False)
    plan = zc.explain(frame, "numpy", columns=["x"])
    assert not plan.zero_copy
    assert "other order" in str(plan)
    assert zc.convert(frame, "numpy", columns=["x"])["x"].tolist() == [1, 258]
    table = zc.convert(frame, "pyarrow")
    assert table["x"].to_pylist() == [1, 258]
    if frame["b"].dtype.kind == "S":
        assert table["b"].to_pylist() == [b"ab", b"c\0"]


# -- objects --------------------------------------------------------------------


def objects(values: list) -> pd.DataFrame:
    return pd.DataFrame({"o": pd.Series(values, dtype=object)})


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["a", None, "b"], "string", ["a", None, "b"]),
        (["a", float("nan"), pd.NA], "string", ["a", None, None]),
        ([1, None], "int64", [1, None]),
        ([1, pd.NA], "int64", [1, None]),
        ([True, None], "bool", [True, None]),
        ([1, 2.5], "double", [1.0, 2.5]),
        ([b"a", None], "binary", [b"a", None]),
        ([datetime.date(2020, 1, 2), None], "date32[day]", [datetime.date(2020, 1, 2), None]),
        ([pd.Timestamp("2020"), pd.NaT], "timestamp[us]", [datetime.datetime(2020, 1, 1), None]),
        ([decimal.Decimal("1.5"), None], "decimal128(2, 1)", [decimal.Decimal("1.5"), None]),
        ([[1], [2, 3]], "list<item: int64>", [[1], [2, 3]]),
        ([], "null", []),
    ],
)
def test_objects_of_one_type_are_copied_to_arrow(values, kind: str, expected) -> None:
    frame = objects(values)
    plan = zc.explain(frame, "pyarrow")
    assert not plan.zero_copy
    table = zc.convert(frame, "pyarrow")
    assert str(table["o"].type) == kind
    assert table["o"].to_pylist() == expected
    assert frame["o"].tolist() == values or frame["o"].isna().any()
    if values:
        with pytest.raises(zc.CopyRequiredError, match="in another form"):
            zc.convert(frame, "pyarrow", copy=False)


def test_floats_among_objects_keep_their_nan() -> None:
    column = zc.convert(objects([1.5, float("nan"), None]), "pyarrow")["o"]
    assert column.null_count == 1
    assert np.isnan(column[1].as_py())


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["a", 1], "numbers and text"),
        (["a", b"b"], "bytes and text"),
        ([datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 5)], "dates and timestamps"),
        ([1 + 2j, object()], "numbers and object"),
        ([object()], "no type for"),
        ([2**70], "no type for"),
        ([1, True], "bool and numbers"),
        (["\ud800"], "no type for"),
        ([pd.Timestamp(1, unit="ns")], "nanoseconds"),
        ([pd.Timedelta(1, unit="ns")], "nanoseconds"),
        ([pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2020", tz="Asia/Tokyo")], "several time zones"),
        ([pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2020")], "several time zones"),
    ],
)
def test_mixed_objects_are_refused_by_name(values, why: str) -> None:
    frame = objects(values)
    with pytest.raises(zc.UnsupportedConversionError, match=f"column 'o': it holds .*{why}"):
        zc.convert(frame, "pyarrow")
    assert not zc.explain(frame, "pyarrow").possible
    with pytest.raises(zc.UnsupportedConversionError, match="column 'o': it holds"):
        zc.convert(frame, "numpy", encode=True)
    assert_frame_equal(zc.convert(frame, "pandas", copy=True), frame)


def test_tensors_refuse_objects_without_arrow_and_encode_them_with_it(monkeypatch) -> None:
    frame = objects(["ab", "c"])
    with monkeypatch.context() as patched:
        patched.setattr(pa, "array", None)  # not even called
        with pytest.raises(zc.UnsupportedConversionError, match="'o': it holds Python objects") as caught:
            zc.convert(frame, "torch")
    assert "astype" in str(caught.value)
    assert "columns=[...]" in str(caught.value)
    assert zc.convert(frame, "torch", encode=True)["o"].to_pylist() == ["ab", "c"]
    text = pd.DataFrame({"o": pd.array(["ab", None], dtype="string[python]")})
    with pytest.raises(zc.UnsupportedConversionError, match="column 'o': it is text"):
        zc.convert(text, "torch")
    assert zc.convert(text, "pyarrow")["o"].to_pylist() == ["ab", None]


def test_text_of_numpy_is_typed_as_objects_are() -> None:
    assert arrow_of_objects(pa, np.array(["a", "bc"])).to_pylist() == ["a", "bc"]
    if hasattr(np.dtypes, "StringDType"):
        assert arrow_of_objects(pa, np.array(["a", "bc"], np.dtypes.StringDType())).to_pylist() == ["a", "bc"]


# -- the index ------------------------------------------------------------------

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
@pytest.mark.parametrize("asked", [None, True, False])
def test_the_index_travels_as_it_should(index, levels: int, asked: bool | None) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, 3.5]}, index=index)
    options = {} if asked is None else {"index": asked}
    count = {None: levels, True: index.nlevels, False: 0}[asked]
    table = zc.convert(frame, "pyarrow", **options)
    assert table.num_columns == 1 + count
    expected = frame if count or asked is None else frame.reset_index(drop=True)
    # pyarrow's own reader, then ours: both give the index back under its name.
    assert_frame_equal(table.to_pandas(), expected)
    back = zc.convert(table, "pandas")
    assert_frame_equal(back, expected, check_dtype=False)
    assert_index_equal(back.index, expected.index, exact="equiv")
    flat = zc.convert(table, "pandas", index=False)
    assert flat.shape == (3, 1 + count)
    assert_index_equal(flat.index, pd.RangeIndex(3))
    tensors = zc.convert(frame, "numpy", columns=["x"], **options)
    assert list(tensors) == ["x"]


def test_the_index_in_tensors() -> None:
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


def test_an_index_of_arrows_memory_is_aliased_and_levels_are_copied() -> None:
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


def test_choosing_columns_leaves_no_dangling_index() -> None:
    frame = pd.DataFrame({"x": [1.5], "y": [2]}, index=pd.Index([7], name="i"))
    table = zc.convert(frame, "pyarrow", columns=["y"])
    assert table.to_pandas().columns.tolist() == ["y"]
    assert zc.convert(table, "pandas")["y"].tolist() == [2]


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
def test_labels_come_back(labels) -> None:
    frame = pd.DataFrame([[1.5, 2.5], [3.5, 4.5]], columns=labels)
    frame.attrs["unit"] = "m"
    table = zc.convert(frame, "pyarrow")
    assert table.column_names == [str(label) for label in labels]
    back = zc.convert(table, "pandas")
    assert_frame_equal(back, frame, check_dtype=False, check_column_type="equiv")
    assert back.attrs == frame.attrs
    copied = zc.convert(frame, "pandas", copy=True)
    assert_frame_equal(copied, frame, check_column_type="equiv")
    if str(labels.dtype) != "bool":  # pyarrow takes "False" for true
        assert_frame_equal(table.to_pandas(), frame, check_column_type="equiv")


@pytest.mark.parametrize(
    "labels",
    [pd.CategoricalIndex(["a"]), pd.timedelta_range("1s", periods=1), pd.period_range("2020", periods=1)],
)
def test_labels_of_odd_types_become_text_and_break_nobody(labels) -> None:
    table = zc.convert(pd.DataFrame([[1.5]], columns=labels), "pyarrow")
    assert table.to_pandas().iloc[0, 0] == 1.5
    assert zc.convert(table, "pandas").columns.tolist() == [str(labels[0])]


def test_duplicates_are_refused_where_labels_are_keys() -> None:
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
def test_empty_frames(shape) -> None:
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


def test_metadata_that_nobody_can_read_is_left_alone() -> None:
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


# -- into pandas ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
def test_tensors_become_columns_of_numpy_in_the_same_memory(dtype: str) -> None:
    array = numbers(dtype)
    frame = zc.convert({"x": array, 3: array[::-1]}, "pandas", copy=False)
    assert frame.columns.tolist() == ["x", 3]
    assert frame["x"].dtype == array.dtype
    for label in frame.columns:
        assert zc.shares_memory(frame[label].to_numpy(copy=False), array)
    np.testing.assert_array_equal(frame[3].to_numpy(), array[::-1])
    series = zc.convert(array, "pandas", copy=False)
    assert isinstance(series, pd.Series)
    assert series.name is None
    assert zc.shares_memory(series.to_numpy(copy=False), array)
    copied = zc.convert({"x": array}, "pandas", copy=True)
    assert not zc.shares_memory(copied["x"].to_numpy(copy=False), array)


def test_matrices_become_one_block() -> None:
    for array in (np.arange(6.0).reshape(3, 2), np.asfortranarray(np.arange(6.0).reshape(3, 2))):
        frame = zc.convert(array, "pandas", names=["a", "b"], copy=False)
        assert zc.shares_memory(frame.to_numpy(copy=False), array)
        np.testing.assert_array_equal(frame.to_numpy(), array)
        assert frame.columns.tolist() == ["a", "b"]
        assert not zc.shares_memory(zc.convert(array, "pandas", copy=True).to_numpy(copy=False), array)
    for _ in range(2):  # the careful way, and the fast one
        frame = zc.convert(np.asfortranarray(np.eye(3)), "pandas")
        assert_frame_equal(frame, pd.DataFrame(np.eye(3), columns=["column_0", "column_1", "column_2"]))
        assert_series_equal(zc.convert(np.arange(3), "pandas"), pd.Series(np.arange(3)))
    wide = zc.convert(np.zeros((2, 1000)), "pandas")
    assert wide.shape == (2, 1000)
    assert wide.columns[-1] == "column_999"
    x = jax.numpy.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(zc.convert(x, "pandas").to_numpy(), np.asarray(x))


def test_writing_into_an_alias_is_said_and_prevented_where_it_is_asked() -> None:
    array = np.arange(3.0)
    assert any("copy-on-write" in warning for warning in zc.explain({"x": array}, "pandas").warnings)
    array.flags.writeable = False
    frame = zc.convert({"x": array}, "pandas", copy=False)
    with pytest.raises(ValueError, match="read-only"):
        frame.loc[0, "x"] = 9.0
    plan = zc.explain({"x": array}, "pandas", writable=True)
    assert not plan.zero_copy
    assert "immutable" in str(plan)
    frame = zc.convert({"x": array}, "pandas", writable=True)
    frame.loc[0, "x"] = 9.0
    assert array[0] == 0
    arrow = pa.table({"x": [1, 2, 3]})
    result = zc.convert(arrow, "pandas", writable=True)
    assert zc.explain(arrow, "pandas", writable=True).zero_copy
    result.loc[0, "x"] = 9
    assert arrow["x"].to_pylist() == [1, 2, 3]
    assert result["x"].tolist() == [9, 2, 3]


def test_dates_of_numpy_become_pandas_dates() -> None:
    for unit in ("s", "ms", "us", "ns"):
        for kind in ("M8", "m8"):
            array = np.array([1, "NaT", 3], f"{kind}[{unit}]")
            frame = zc.convert({"t": array}, "pandas", copy=False)
            assert frame["t"].dtype == array.dtype
            assert zc.shares_memory(frame["t"].to_numpy(copy=False).view("i8"), array.view("i8"))
            assert frame["t"].isna().tolist() == [False, True, False]


def test_misaligned_memory_is_copied_for_pandas() -> None:
    packed = np.zeros(3, np.dtype([("a", "i1"), ("b", "f8")]))
    packed["b"] = [1, 2, 3]
    plan = zc.explain({"b": packed["b"]}, "pandas")
    assert not plan.zero_copy
    assert "aligned" in str(plan)
    assert zc.convert({"b": packed["b"]}, "pandas")["b"].tolist() == [1, 2, 3]


def test_tensors_in_rows_become_a_column_of_tensors() -> None:
    array = np.arange(12.0).reshape(2, 2, 3)
    frame = zc.convert({"x": array}, "pandas", copy=False)
    assert isinstance(frame["x"].dtype.pyarrow_dtype, pa.FixedShapeTensorType)
    back = zc.convert(frame, "numpy", copy=False)["x"]
    np.testing.assert_array_equal(back, array)
    assert zc.shares_memory(back, array)


TYPES = [
    *(pa.null(), pa.bool_(), pa.int8(), pa.float16(), pa.string(), pa.large_string(), pa.binary()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"), pa.timestamp("ns", "UTC"), pa.duration("s")),
    *(pa.decimal128(5, 2), pa.list_(pa.int8()), pa.list_(pa.int8(), 2), pa.struct([("a", pa.int8())])),
    *(pa.map_(pa.string(), pa.int8()), pa.dictionary(pa.int32(), pa.string()), pa.binary(3)),
    *(
        pa.string_view(),
        pa.binary_view(),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.list_view(pa.int8()),
    ),
]


def sample_of(kind) -> pa.ChunkedArray:
    simple = {
        pa.lib.Type_BOOL: True,
        pa.lib.Type_DATE32: datetime.date(2020, 1, 1),
        pa.lib.Type_DATE64: datetime.date(2020, 1, 1),
        pa.lib.Type_TIME32: datetime.time(1),
        pa.lib.Type_TIME64: datetime.time(1),
        pa.lib.Type_DECIMAL128: decimal.Decimal("1.25"),
        pa.lib.Type_FIXED_SIZE_BINARY: b"abc",
        pa.lib.Type_STRUCT: {"a": 1},
        pa.lib.Type_MAP: [("k", 1)],
        pa.lib.Type_NA: None,
    }
    if pa.types.is_run_end_encoded(kind):
        one = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([5, None]))
        return pa.chunked_array([one, one])
    text = any(word in str(kind) for word in ("string", "binary")) and kind.id not in simple
    value = simple.get(kind.id, [1, 2] if "list" in str(kind) else 1)
    if text:
        value = "a" * 20 if "string" in str(kind) else b"a" * 20
    if pa.types.is_dictionary(kind):
        chunk = pa.array(["a", None, "a"]).dictionary_encode()
        return pa.chunked_array([chunk, chunk])
    return pa.chunked_array([pa.array([value, None, value], kind), pa.array([value], kind)])


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_types_of_arrow_in_pandas(kind) -> None:
    array = sample_of(kind)
    table = pa.table({"x": array})
    plan = zc.explain(table, "pandas")
    frame = zc.convert(table, "pandas")
    assert frame["x"].tolist() is not None
    assert repr(frame)
    assert len(frame.iloc[[1, 0]]) == 2
    result = frame["x"].array.__arrow_array__()
    assert result.to_pylist() == array.to_pylist()
    if "view" in str(kind) or "run_end" in str(kind):
        assert not plan.zero_copy
        with pytest.raises(zc.CopyRequiredError, match="pandas cannot"):
            zc.convert(table, "pandas", copy=False)
    else:
        assert result.type == kind or pa.types.is_dictionary(kind)
        assert result.num_chunks == array.num_chunks
        assert plan.zero_copy == bool(array.nbytes)
        assert sum(plan.copied_bytes for plan in plan.leaves.values()) == 0


def test_a_cast_of_list_views_is_wrong_and_not_used() -> None:
    """apache/arrow#50976: the cast forgets the sizes."""
    views = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 1], pa.int32()), pa.array([1, 2, 0], pa.int32()), pa.array([7, 8, 9])
    )
    rows = [[9], [7, 8], []]
    assert views.to_pylist() == rows
    series = zc.convert(views, "pandas")
    series.array.__arrow_array__().validate(full=True)
    assert series.array.__arrow_array__().to_pylist() == rows
    with pytest.raises(pa.ArrowInvalid):
        views.cast(pa.list_(pa.int64())).validate(full=True)


def test_to_pandas_copies_where_we_alias() -> None:
    """Hazard 6: ``Table.to_pandas`` copies, and makes floats of integers with nulls."""
    table = pa.table({"x": [1, None, 3]})
    assert table.to_pandas()["x"].dtype == "float64"
    ours = zc.convert(table, "pandas", copy=False)
    assert ours["x"].dtype == "int64[pyarrow]"
    assert storage(ours["x"]) == list(buffers(table["x"]))


# -- whose memory it is ----------------------------------------------------------


def test_aliases_escape_copy_on_write() -> None:
    """Hazard 3: pandas does not know of them; all that it does is mark them read-only."""
    series = pd.Series([1.0, 2.0])
    alias = series.to_numpy(copy=False)
    assert not alias.flags.writeable
    series.iloc[0] = 9.0
    assert alias[0] == 9.0
    frame = pd.DataFrame({"x": [1.0, 2.0]})
    for _ in range(2):
        result = zc.convert(frame, "numpy")["x"]
        assert not result.flags.writeable
        assert not zc.convert(frame["x"], "numpy").flags.writeable
    assert any("change the source" in warning for warning in zc.explain(frame, "torch").warnings)
    written = zc.convert(frame, "torch", writable=True)["x"]
    written[0] = 7
    assert frame["x"].tolist() == [1.0, 2.0]
    snapshot = zc.convert(frame, "pyarrow", copy=True)
    frame.iloc[0, 0] = 5.0
    assert snapshot["x"].to_pylist() == [1.0, 2.0]


def test_series_in_a_dict_keep_copy_on_write() -> None:
    source = pd.Series([1.0, 2.0], index=[5, 6])
    text = pd.Series(["a", "b"], dtype="category")
    frame = zc.convert({"x": source, "c": text}, "pandas", copy=False)
    assert_index_equal(frame.index, pd.RangeIndex(2))
    assert zc.shares_memory(frame["x"].to_numpy(copy=False), source.to_numpy(copy=False))
    frame.loc[0, "x"] = 9.0
    frame.loc[0, "c"] = "b"
    assert source.tolist() == [1.0, 2.0]
    assert text.tolist() == ["a", "b"]
    assert frame["c"].dtype == text.dtype


def test_a_copy_of_pandas_own_keeps_all_of_it_and_none_of_its_memory() -> None:
    frame = pd.DataFrame(
        {
            "x": [1.0, 2.0],
            "o": pd.Series([object(), "a"], dtype=object),
            "c": pd.Categorical(["a", "b"]),
            "n": pd.array([1, None], dtype="Int64"),
            "p": pd.period_range("2020", periods=2),
            "t": pd.date_range("2020", periods=2, tz="Asia/Tokyo"),
        },
        index=pd.Index([3, 4], name="i"),
    )
    assert zc.convert(frame, "pandas") is frame
    copied = zc.convert(frame, "pandas", copy=True)
    assert_frame_equal(copied, frame)
    assert not zc.shares_memory(copied["x"].to_numpy(copy=False), frame["x"].to_numpy(copy=False))
    series = zc.convert(frame["x"], "pandas", copy=True)
    assert_series_equal(series, frame["x"])
    assert not zc.shares_memory(series.to_numpy(copy=False), frame["x"].to_numpy(copy=False))
    one = zc.convert(frame, "pandas", columns=["c", "x"])
    assert one.columns.tolist() == ["c", "x"]


def test_jax_refuses_64_bits_with_x64_off(run_python) -> None:
    """Hazard 7: ``jax.numpy.asarray(series)`` makes 32 bits of 64 without a word."""
    done = run_python(
        """
        import jax, numpy as np, pandas as pd, zerocopy as zc
        frame = pd.DataFrame({"x": [2**40, 1], "y": np.ones(2, "f4")})
        zc.convert(np.ones(3, "f4"), "jax"); zc.convert(frame[["y"]], "jax"); zc.convert(frame["y"], "jax")
        for _ in range(2):
            for obj in (frame, frame[["x"]], frame["x"]):
                try: zc.convert(obj, to="jax")
                except zc.LossyConversionError as error: assert "int64" in str(error), error
                else: raise AssertionError
        jax.config.update("jax_enable_x64", True)
        assert zc.convert(frame, "jax")["x"][0] == 2**40
        """
    )
    assert done.returncode == 0, done.stderr


def test_columns_are_the_same_by_the_documented_way() -> None:
    """``_iter_column_arrays`` is private: what it gives is what the series hold."""
    from zerocopy._frameworks.pandas.columns import column_arrays, column_arrays_by_series

    frame = pd.concat([make().to_frame() for make in ARROW.values()], axis=1)
    frame["x"], frame["y"], frame["t"] = 1, np.array([1.5, 2.5, 3.5]), pd.Timestamp("2020")
    ours, theirs = list(column_arrays(pd, frame)), list(column_arrays_by_series(frame))
    assert len(ours) == len(theirs) == frame.shape[1]
    for a, b in zip(ours, theirs, strict=True):
        assert storage(pd.Series(a, copy=False)) == storage(pd.Series(b, copy=False))


def test_the_source_is_left_as_it_was() -> None:
    frame = pd.DataFrame({"x": [1.5, None], "s": ["a", None], "c": pd.Categorical(["a", None])})
    before = frame.copy()
    for to in ("pyarrow", "numpy", "torch"):
        zc.explain(frame, to)
        zc.convert(
            frame, to, encode=None if to == "pyarrow" else True, nulls=None if to == "pyarrow" else "mask"
        )
        assert_frame_equal(frame, before)


def test_frames_go_through_polars() -> None:
    pytest.importorskip("polars")
    frame = pd.DataFrame(
        {
            "i": [1, 2],
            "f": [1.5, np.nan],
            "s": ["a", None],
            "d": np.array(["2020-01-01", "NaT"], "M8[us]"),
            "n": pd.array([1, None], dtype="Int64"),
        }
    )
    between = zc.convert(frame, "polars")
    assert between.columns == list(frame.columns)
    assert between["f"].null_count() == 0
    back = zc.convert(between, "pandas")
    assert back["i"].tolist() == [1, 2]
    assert back["s"].isna().tolist() == [False, True]
    assert back["d"].isna().tolist() == [False, True]
    assert back["n"].isna().tolist() == [False, True]
    assert np.isnan(back["f"].array.__arrow_array__()[1].as_py())


def test_indexes_and_arrays_of_pandas_are_columns() -> None:
    index = pd.Index([3, 1, 2], name="i")
    assert zc.convert(index, "torch").tolist() == [3, 1, 2]
    assert zc.shares_memory(zc.convert(index, "numpy"), index.to_numpy(copy=False))
    assert zc.convert(pd.array([1, 2], dtype="Int64"), "torch").tolist() == [1, 2]
    levels = pd.MultiIndex.from_tuples([(1, 2.5), (3, 4.5)], names=["a", "b"])
    assert {k: v.tolist() for k, v in zc.convert(levels, "torch").items()} == {"a": [1, 3], "b": [2.5, 4.5]}
    assert zc.view(pd.Series([1, 2])).shape == (2,)
    with pytest.raises(zc.UnsupportedConversionError, match="a table is not one array"):
        zc.view(pd.DataFrame({"x": [1]}))
    series = zc.convert(pa.chunked_array([[1], [2]]), "pandas", copy=False)
    assert series.tolist() == [1, 2]
    assert series.array.__arrow_array__().num_chunks == 2


@pytest.mark.parametrize("dtype", ["int16", "uint64", "float32", "bool"])
def test_values_with_a_mask_become_nullable_columns_in_the_same_memory(dtype: str) -> None:
    values, mask = np.array([1, 0, 1]).astype(dtype), np.array([False, True, False])
    column = TensorColumn(registry.by_name("numpy").source(values), mask=lambda: mask)
    target = registry.by_name("pandas")
    assert target.column_reasons(column) == []
    series = target.from_column(Table("mine", ["x"], [column], 3, single=True))
    assert series.isna().tolist() == mask.tolist()
    assert str(series.dtype).lower() == {"bool": "boolean"}.get(dtype, dtype)
    values[0] = 0
    assert series[0] == 0


@pytest.mark.parametrize("kind", ["M8[us]", "m8[ms]"])
def test_dates_under_a_mask_get_nat(kind: str) -> None:
    values, mask = np.array([1, 2, 3], kind), np.array([False, True, False])
    field = Field("tsu:") if kind.startswith("M") else Field("tDm")
    source = registry.by_name("numpy").source(values.view("i8"))
    target = registry.by_name("pandas")
    column = TensorColumn(source, field, lambda: mask)
    assert "NaT" in target.column_reasons(column)[0].why
    series = target.from_column(Table("mine", ["x"], [column], 3, single=True))
    assert series.dtype == values.dtype
    assert series.isna().tolist() == mask.tolist()
    assert not np.isnat(values).any()
    masked_already = TensorColumn(
        registry.by_name("numpy").source(np.array([1, "NaT", 3], kind).view("i8")), field, lambda: mask
    )
    assert target.column_reasons(masked_already) == []


def test_types_that_pandas_lacks_are_refused() -> None:
    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match="'x': it is bfloat16, which pandas lacks"):
            zc.convert({"x": torch.ones(2, dtype=torch.bfloat16)}, "pandas")
        zc.convert(np.ones(2), "pandas")
        with pytest.raises(zc.UnsupportedConversionError, match="bfloat16, which pandas lacks"):
            zc.convert(torch.ones(2, dtype=torch.bfloat16), "pandas")
