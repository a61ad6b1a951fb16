"""pandas as a source: columns in NumPy's and Arrow's memory, objects, indexes."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pytest
from helpers.pandas_cases import NUMBERS, buffers, numbers, storage
from helpers.versions import needs, text_of_numpy_2

import zerocopy as zc
from zerocopy.tables.object_column import arrow_of_objects

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
from pandas.testing import assert_frame_equal  # noqa: E402

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


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_plain_columns_are_aliased(dtype: str, to: str) -> None:
    frame = pd.DataFrame({"x": numbers(dtype)})
    (result,) = zc.convert(frame, to, copy=False).values()
    assert zc.shares_memory(frame["x"].to_numpy(copy=False), result)
    assert zc.explain(frame, to).zero_copy
    assert str(np.asarray(result).dtype) == dtype
    np.testing.assert_array_equal(np.asarray(result), numbers(dtype))
    series = zc.convert(frame["x"], to)  # twice: slow path, then fast path
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
    table = zc.convert(frame, "pyarrow", copy=False, dtype={"bool": "bool8"})
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


@pytest.mark.hazard("pandas#nan-becomes-null")
def test_nan_is_not_a_null() -> None:
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
    with pytest.raises(zc.LossyConversionError, match="column 't' has 1 null"):
        zc.convert(frame, "numpy")
    with pytest.raises(zc.UnsupportedConversionError, match="column 't' is"):
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
    "zone",
    [
        *("UTC", "Europe/Berlin", "+02:00", "-09:30", datetime.UTC),
        pytest.param("dateutil/Europe/Berlin", marks=needs("pandas", "3.1", "the zones of dateutil 4")),
    ],
)
def test_time_zones_are_kept_and_times_aliased(zone) -> None:
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
    with pytest.raises(zc.LossyConversionError, match="column 'x' has 1 null"):
        zc.convert(frame, "torch")
    masked = zc.convert(frame, "torch", nulls="mask")["x"]
    assert masked.mask.tolist() == [False, True, False]
    assert masked.values[[0, 2]].tolist() == [1, 0]
    assert zc.explain(frame, "torch", nulls="mask").leaves["['x'].values"].zero_copy == (dtype != "boolean")
    assert zc.convert(frame, "torch", nulls=1)["x"].tolist() == [1, 1, 0]
    full = frame.iloc[[0, 2]].reset_index(drop=True)
    (plain,) = zc.convert(full, "numpy", copy=False).values()
    assert plain.dtype == frame["x"].dtype.numpy_dtype
    assert not plain.flags.writeable  # a write would change the frame and its shallow copies
    assert zc.shares_memory(plain, full["x"].to_numpy(plain.dtype, copy=False))
    table = zc.convert(frame, "pyarrow")
    assert table["x"].null_count == 1
    assert_frame_equal(table.to_pandas(), frame)


@pytest.mark.parametrize("kind", ["str", "int", "ordered"])
def test_categories_become_codes(kind: str) -> None:
    values = [3, None, 1] if kind == "int" else ["b", None, "a"]
    frame = pd.DataFrame({"c": pd.Categorical(values, ordered=kind == "ordered")})
    with pytest.raises(zc.UnsupportedConversionError, match="column 'c' is dictionary"):
        zc.convert(frame, "torch")
    with pytest.raises(zc.LossyConversionError, match="column 'c' has 1 null"):
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


def test_unsupported_column_is_named_and_can_be_left_out() -> None:
    frame = pd.DataFrame({"x": [1, 0], "s": pd.arrays.SparseArray([0, 1])})
    frame["l"] = np.array([1, 2], np.longdouble)
    for to in ("torch", "pyarrow"):
        with pytest.raises(
            zc.UnsupportedConversionError, match=r"'s' is Sparse.*'l' is (long|float128)"
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
    assert "byte order" in str(plan)
    assert zc.convert(frame, "numpy", columns=["x"])["x"].tolist() == [1, 258]
    table = zc.convert(frame, "pyarrow")
    assert table["x"].to_pylist() == [1, 258]
    if frame["b"].dtype.kind == "S":
        assert table["b"].to_pylist() == [b"ab", b"c"]


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
    with pytest.raises(zc.UnsupportedConversionError, match=f"column 'o' holds .*{why}"):
        zc.convert(frame, "pyarrow")
    assert not zc.explain(frame, "pyarrow").possible
    with pytest.raises(zc.UnsupportedConversionError, match="column 'o' holds"):
        zc.convert(frame, "numpy", encode=True)
    assert_frame_equal(zc.convert(frame, "pandas", copy=True), frame)


def test_tensors_refuse_objects_without_arrow_and_encode_them_with_it(monkeypatch) -> None:
    frame = objects(["ab", "c"])
    with monkeypatch.context() as patched:
        patched.setattr(pa, "array", None)
        with pytest.raises(zc.UnsupportedConversionError, match="'o' holds Python objects"):
            zc.convert(frame, "torch")
    with pytest.raises(zc.UnsupportedConversionError) as caught:  # the message plans the call
        zc.convert(frame, "torch")
    assert 'zc.convert(x, "torch", encode=True)' in str(caught.value)
    assert zc.convert(frame, "torch", encode=True)["o"].to_pylist() == ["ab", "c"]
    text = pd.DataFrame({"o": pd.array(["ab", None], dtype="string[python]")})
    with pytest.raises(zc.UnsupportedConversionError, match="column 'o' is text"):
        zc.convert(text, "torch")
    assert zc.convert(text, "pyarrow")["o"].to_pylist() == ["ab", None]


def test_numpy_text_has_the_type_of_objects() -> None:
    for text in (np.array(["a", "bc"]), *text_of_numpy_2(["a", "bc"])):
        assert arrow_of_objects(pa, text).to_pylist() == ["a", "bc"]


def test_private_column_iterator_agrees_with_public_api() -> None:
    """``_iter_column_arrays`` is private: compare it with the arrays of the series."""
    from zerocopy._frameworks.pandas.tables import column_arrays, column_arrays_by_series

    frame = pd.concat([make().to_frame() for make in ARROW.values()], axis=1)
    frame["x"], frame["y"], frame["t"] = 1, np.array([1.5, 2.5, 3.5]), pd.Timestamp("2020")
    private, public = list(column_arrays(pd, frame)), list(column_arrays_by_series(frame))
    assert len(private) == len(public) == frame.shape[1]
    for a, b in zip(private, public, strict=True):
        assert storage(pd.Series(a, copy=False)) == storage(pd.Series(b, copy=False))


def test_source_is_not_changed() -> None:
    frame = pd.DataFrame({"x": [1.5, None], "s": ["a", None], "c": pd.Categorical(["a", None])})
    before = frame.copy()
    for to in ("pyarrow", "numpy", "torch"):
        zc.explain(frame, to)
        zc.convert(
            frame, to, encode=None if to == "pyarrow" else True, nulls=None if to == "pyarrow" else "mask"
        )
        assert_frame_equal(frame, before)


def test_frames_survive_polars() -> None:
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


ARRAYS = {
    "Int64": lambda: pd.array([1, 2, 3, 4, 5], dtype="Int64"),
    "Int64 with nulls": lambda: pd.array([1, None, 3, 4, 5], dtype="Int64"),
    "Float32 with nulls": lambda: pd.array([1.5, None, 3, 4, 5], dtype="Float32"),
    "boolean": lambda: pd.array([True, None, False, True, True], dtype="boolean"),
    "period": lambda: pd.period_range("2020", periods=5).array,
    "interval": lambda: pd.interval_range(0, 5).array,
    "time zone": lambda: pd.date_range("2020", periods=5, tz="US/Eastern").array,
    "duration": lambda: pd.timedelta_range(0, periods=5, freq="s").array,
    "category": lambda: pd.array([7, 8, 9, 7, 8], dtype="category"),
    "str": lambda: pd.array(["a", None, "b", "c", "d"], dtype="str"),
    "string of Python": lambda: pd.array(["a", None, "b", "c", "d"], dtype="string[python]"),
    "arrow": lambda: pd.array([1, 2, 3, 4, 5], dtype="int32[pyarrow]"),
}
PARTS = {"all": slice(None), "rest": slice(1, None), "even": slice(None, None, 2), "one": slice(0, 5, 5)}
PARTS |= {"reversed": slice(None, None, -1), "none": slice(0, 0)}


@pytest.mark.parametrize("to", ["numpy", "pyarrow", "polars", "nanoarrow", "pandas"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_plans_of_parts_of_extension_arrays_are_true(kind: str, part: str, to: str) -> None:
    pytest.importorskip(to)
    array = ARRAYS[kind]()[PARTS[part]]
    for x in (array, pd.Series(array), pd.DataFrame({"x": array})):
        plan = zc.explain(x, to)
        if not plan.possible:
            with pytest.raises(zc.ZeroCopyError):
                zc.convert(x, to)
            continue
        result = zc.convert(x, to)
        if len(array) and plan.shares_memory is not None:
            assert zc.shares_memory(x, result) == plan.shares_memory
            assert not plan.zero_copy or plan.shares_memory
        expected = zc.convert(x, "pyarrow").to_pylist()
        assert to == "numpy" or zc.convert(result, "pyarrow").to_pylist() == expected


@pytest.mark.hazard("pandas#copies-of-arrays-with-strides")
@pytest.mark.parametrize("kind", ["Int64 with nulls", "period", "interval"])
def test_hazard_arrow_copies_arrays_with_strides(kind: str) -> None:
    array = ARRAYS[kind]()
    for part, copies in ((array, False), (array[::2], True)):
        kept = [part.__arrow_array__() for _ in range(2)]
        first, second = ({b.address for b in x.buffers() if b is not None} for x in kept)
        assert (not first & second) == copies


def test_arrays_that_pandas_copies_for_arrow_say_so() -> None:
    array = ARRAYS["period"]()[::2]
    with pytest.raises(zc.CopyRequiredError, match=r"pandas copies these values for Arrow") as caught:
        zc.convert(array, "pyarrow", copy=False)
    assert caught.value.code == "exporter-copies"
    assert zc.explain(array.copy(), "pyarrow").zero_copy


@pytest.mark.parametrize("to", ["numpy", "pyarrow", "polars"])
def test_extension_arrays_with_two_dimensions_are_refused(to: str) -> None:
    dates = pd.array(np.arange(6).astype("M8[us]")).reshape(2, 3)  # as in the blocks of a frame
    assert not zc.explain(dates, to).possible
    with pytest.raises(zc.UnsupportedConversionError, match="2 dimensions") as caught:
        zc.convert(dates, to)
    assert caught.value.code == "too-many-dimensions"
    assert zc.convert(dates.ravel(), "numpy").shape == (6,)


def test_memory_of_booleans_with_nulls_is_compared() -> None:
    """pandas has no public view of them, but of a part without nulls."""
    x = pd.Series([None, True, None, False, True, None], dtype="boolean")
    assert zc.shares_memory(x, x.iloc[2:])
    assert zc.shares_memory(x, pd.DataFrame({"x": x}, copy=False))
    assert zc.shares_memory(x.iloc[::-1], x.iloc[:2])
    assert not zc.shares_memory(x.iloc[:3], x.iloc[3:])
    assert not zc.shares_memory(x, x.copy())
    for nulls in ("mask", 0):
        result, plan = zc.convert(x, "numpy", nulls=nulls), zc.explain(x, "numpy", nulls=nulls)
        assert zc.shares_memory(x, result) == plan.zero_copy is False


@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_lengths_of_null_views_are_ignored(kind: str) -> None:
    """pyarrow's cast adds them up, and wrote beyond its memory if the sum was too small."""
    text = b"a text that is longer than a view" * 40
    view = np.zeros((3, 4), np.int32)
    view[:2, 0], view[2, 0] = len(text), -(2**31)
    view[:2, 1] = np.frombuffer(text[:4], np.int32)
    buffers = [pa.py_buffer(b"\x03"), pa.py_buffer(view), pa.py_buffer(text)]
    array = pa.Array.from_buffers(getattr(pa, kind)(), 3, buffers, 1)
    values = [text.decode()] * 2 if kind == "string_view" else [text] * 2
    for source in (array, pa.table({"a": array}), array[1:]):
        series = zc.convert(source, "pandas.DataFrame" if isinstance(source, pa.Table) else "pandas.Series")
        column = series["a"] if isinstance(source, pa.Table) else series
        assert [*column.dropna()] == values[: len(column) - 1]


def test_arrow_columns_become_tensors_without_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """A series of each column took 25 us: ten columns took twice as long as the calls by hand."""
    frame = pd.DataFrame(
        {"a": pd.array([1, 2], "int64[pyarrow]"), "b": pd.array([0.5, 1.5], "double[pyarrow]")}
    )
    zc.convert(frame, "numpy")
    monkeypatch.setattr(pd.DataFrame, "iloc", property(lambda frame: pytest.fail("a series was made")))
    result = zc.convert(frame, "numpy")
    monkeypatch.undo()
    assert [*result] == ["a", "b"]
    assert [column.tolist() for column in result.values()] == [[1, 2], [0.5, 1.5]]
    assert not any(column.flags.writeable for column in result.values())
    assert zc.shares_memory(frame, result)
