"""pandas as a target: aliases, types that pandas cannot use, copy-on-write."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pytest
from helpers.pandas_cases import NUMBERS, buffers, numbers, storage

import zerocopy as zc
from zerocopy import registry
from zerocopy.protocols.arrow_schema import Field
from zerocopy.tables.column import Table
from zerocopy.tables.tensor_column import TensorColumn

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
from pandas.testing import assert_frame_equal, assert_index_equal, assert_series_equal  # noqa: E402


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
    for _ in range(2):  # slow path, then fast path
        frame = zc.convert(np.asfortranarray(np.eye(3)), "pandas")
        assert_frame_equal(frame, pd.DataFrame(np.eye(3), columns=["column_0", "column_1", "column_2"]))
        assert_series_equal(zc.convert(np.arange(3), "pandas"), pd.Series(np.arange(3)))
    wide = zc.convert(np.zeros((2, 1000)), "pandas")
    assert wide.shape == (2, 1000)
    assert wide.columns[-1] == "column_999"
    x = jax.numpy.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(zc.convert(x, "pandas").to_numpy(), np.asarray(x))


@pytest.mark.hazard("pandas#aliases-escape-copy-on-write")
def test_writes_to_an_alias_are_warned_of_and_prevented_on_request() -> None:
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


@pytest.mark.hazard("pandas#copies-and-type-changes-of-to_pandas")
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_arrow_types_keep_their_values_in_pandas(kind) -> None:
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


#: Out of order, with a gap, and with one item twice.
LIST_VIEWS = pa.ListViewArray.from_arrays(
    pa.array([4, 2, 0, 0], pa.int32()), pa.array([1, 1, 2, 1], pa.int32()), pa.array([1, 2, 3, 4, 5])
)
TEXT_VIEWS = pa.array(["a" * 20, "b", "c" * 30], pa.string_view())
RUN_VALUES = [
    *(pa.array(["a" * 20, None, "b"], kind) for kind in (pa.string(), pa.string_view(), pa.large_string())),
    pa.array([b"a" * 20, None, b"b"], pa.binary_view()),
    pa.array(["a", None, "b"]).dictionary_encode(),
    pa.array([[1], None, [2, 3]], pa.list_view(pa.int8())),
    pa.array([[1], None, [2, 3]], pa.large_list_view(pa.int8())),
    pa.array([{"a": 1}, None, {"a": 3}]),
    pa.array([None, None, None]),
    LIST_VIEWS.slice(1),
    pa.DictionaryArray.from_arrays(pa.array([2, None, 0]), LIST_VIEWS.slice(0, 3)),
    pa.DictionaryArray.from_arrays(pa.array([2, None, 0]), TEXT_VIEWS),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"a" * 16, None, b"b" * 16], pa.binary(16))),
]


@pytest.mark.parametrize("values", RUN_VALUES, ids=lambda values: str(values.type))
def test_runs_of_values_that_pyarrow_cannot_decode(values) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 6], pa.int16()), values)
    assert runs.to_pylist() == [values.to_pylist()[run] for run in (0, 0, 1, 2, 2, 2)]
    for chunks in ([runs], [runs.slice(1, 4)], [runs.slice(3), runs.slice(0, 3)], [runs.slice(2, 0)]):
        column = pa.chunked_array(chunks)
        assert zc.explain(column, "pandas").possible
        series = zc.convert(column, "pandas")
        assert series.array.__arrow_array__().to_pylist() == column.to_pylist()
        assert repr(series)
        last = list(range(len(column)))[-1:]
        assert series.take(last).array.__arrow_array__().to_pylist() == column.to_pylist()[-1:]


@pytest.mark.hazard("pyarrow#casts-of-list-views")
def test_list_views_are_not_cast() -> None:
    """apache/arrow#50976: the cast ignores the sizes."""
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


@pytest.mark.hazard("pandas#copies-and-type-changes-of-to_pandas")
def test_hazard_to_pandas_copies() -> None:
    """Hazard 6: ``Table.to_pandas`` copies, and turns integers with nulls into floats."""
    table = pa.table({"x": [1, None, 3]})
    assert table.to_pandas()["x"].dtype == "float64"
    converted = zc.convert(table, "pandas", copy=False)
    assert converted["x"].dtype == "int64[pyarrow]"
    assert storage(converted["x"]) == list(buffers(table["x"]))


@pytest.mark.hazard("pandas#aliases-escape-copy-on-write")
def test_aliases_escape_copy_on_write() -> None:
    """Hazard 3: pandas does not track them; it only marks them read-only."""
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
    assert any("changes the source" in warning for warning in zc.explain(frame, "torch").warnings)
    written = zc.convert(frame, "torch", writable=True)["x"]
    written[0] = 7
    assert frame["x"].tolist() == [1.0, 2.0]
    snapshot = zc.convert(frame, "pyarrow", copy=True)
    frame.iloc[0, 0] = 5.0
    assert snapshot["x"].to_pylist() == [1.0, 2.0]


@pytest.mark.hazard("pandas#aliases-escape-copy-on-write")
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


def test_copy_of_a_frame_keeps_values_and_types_in_new_memory() -> None:
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


@pytest.mark.hazard("pandas#64-bits-into-jax")
def test_jax_refuses_64_bits_with_x64_off(run_warm) -> None:
    """Hazard 7: ``jax.numpy.asarray(series)`` truncates 64 bits to 32 silently."""
    completed = run_warm(
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
    assert completed.returncode == 0, completed.stderr


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
def test_masked_dates_become_nat(kind: str) -> None:
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
        with pytest.raises(zc.UnsupportedConversionError, match="'x' is bfloat16, which pandas lacks"):
            zc.convert({"x": torch.ones(2, dtype=torch.bfloat16)}, "pandas")
        zc.convert(np.ones(2), "pandas")
        with pytest.raises(zc.UnsupportedConversionError, match="bfloat16, which pandas lacks"):
            zc.convert(torch.ones(2, dtype=torch.bfloat16), "pandas")


@pytest.mark.parametrize("form", ["Series", "DataFrame"])
def test_a_target_of_pandas_selects_the_type_of_the_result(form: str) -> None:
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    one = zc.convert(table, f"pandas.{form}", columns=["b"])
    assert type(one) is getattr(pd, form)
    assert one.squeeze().name == "b"


@pytest.mark.hazard("pandas#groups-of-dictionaries")
@pytest.mark.parametrize("kind", ["Categorical", "Enum"])
def test_groups_of_dictionaries_with_nulls(kind: str) -> None:
    pl = pytest.importorskip("polars")
    dtype = pl.Categorical if kind == "Categorical" else pl.Enum(["a", "b"])
    source = pl.DataFrame({"c": pl.Series(["a", None, "b"], dtype=dtype), "x": [1, 2, 3]})
    frame = zc.convert(source, to="pandas")
    with pytest.raises(OverflowError):
        frame.groupby("c")["x"].sum()
    groups = frame.groupby(pa.array(frame["c"]).to_pandas(), observed=True)["x"].sum()
    assert groups.to_dict() == {"a": 1, "b": 3}
