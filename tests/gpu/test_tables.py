"""Tables on the GPU: cuDF and pylibcudf with all others, Arrow's device interface, host tables.

Expected values and pointers come from cuDF: zerocopy does not read columns that zerocopy created,
except where two conversions are compared.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util

import numpy as np
import pytest
from helpers.gpu_arrays import DEVICE, MARKS, NAMES, have, same, side

import zerocopy as zc

pytestmark = MARKS

pa = pytest.importorskip("pyarrow")

ROWS = 1000
NUMBERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)] + [
    "float32",
    "float64",
    "bool",
]
HOSTS = ["numpy", "pandas", "pyarrow", "polars", "duckdb", "nanoarrow", "tensorflow"]


@pytest.fixture
def cudf():
    return pytest.importorskip("cudf")


@pytest.fixture
def plc(cudf):
    return importlib.import_module("pylibcudf")


def numbers(dtype: str = "float64", rows: int = ROWS) -> np.ndarray:
    values = np.arange(rows) % 100
    return (values % 2 == 0) if dtype == "bool" else values.astype(dtype)


def values_ptr(series) -> int:
    """Return the address of a series' first value according to cuDF."""
    return series.__cuda_array_interface__["data"][0]


def nulls_of(series) -> int:
    """Return the number of null rows; isna() would also count NaN."""
    return series.to_pylibcudf()[0].null_count()


def installed(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")


# -- cuDF to the frameworks of the GPU --------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("target", NAMES)
def test_cudf_column_is_aliased(cudf, target: str, dtype: str) -> None:
    framework = side(target)
    values = numbers(dtype)
    frame = cudf.DataFrame({"x": values, "y": numbers()})
    plan = zc.explain(frame, target)
    result = zc.convert(frame, to=target)
    assert list(result) == ["x", "y"]
    assert framework.pointer(result["x"]) == values_ptr(frame["x"])
    same(framework, result["x"], values)
    assert plan.zero_copy
    assert plan.copied_bytes == 0


@pytest.mark.parametrize("target", NAMES)
def test_series_and_its_slice_are_aliased(cudf, target: str) -> None:
    framework = side(target)
    series = cudf.Series(numbers())
    part = series[10:20]
    assert framework.pointer(zc.convert(series, to=target)) == values_ptr(series)
    assert framework.pointer(zc.convert(part, to=target)) == values_ptr(series) + 80
    same(framework, zc.convert(part, to=target), numbers()[10:20])
    assert zc.shares_memory(series, zc.convert(series, to=target))
    assert not zc.shares_memory(series, zc.convert(series, to=target, copy=True))


@pytest.mark.parametrize("start", [0, 1, 7, 8, 31, 33])
@pytest.mark.parametrize("target", NAMES)
def test_mask_of_a_slice_keeps_its_offset(cudf, target: str, start: int) -> None:
    framework = side(target)
    null = np.arange(ROWS) % 3 == 1
    series = cudf.Series(pa.array(numbers(), mask=null))[start : start + 100]
    with pytest.raises(zc.LossyConversionError, match="nulls"):
        zc.convert(series, to=target)
    values, mask = zc.convert(series, to=target, nulls="mask")
    expected = null[start : start + 100]
    same(framework, mask, expected)
    assert framework.pointer(values) == values_ptr(series)
    valid_values = framework.values(values)[~expected]
    assert np.array_equal(valid_values, numbers()[start : start + 100][~expected])


@pytest.mark.parametrize("target", NAMES)
def test_nulls_are_filled(cudf, target: str) -> None:
    framework = side(target)
    frame = cudf.DataFrame.from_arrow(
        pa.table(
            {"i": pa.array([1, None, 3]), "f": pa.array([1.5, None, 2.5]), "b": pa.array([True, None, False])}
        )
    )
    result = zc.convert(frame, to=target, nulls={"i": -1, "f": "nan", "b": True})
    same(framework, result["i"], np.array([1, -1, 3]))
    assert np.isnan(framework.values(result["f"])).tolist() == [False, True, False]
    same(framework, result["b"], np.array([True, True, False]))
    assert nulls_of(frame["i"]) == 1, "the source keeps its nulls"


@pytest.mark.parametrize("target", NAMES)
def test_types_without_tensors_are_encoded(cudf, target: str) -> None:
    framework = side(target)
    table = pa.table(
        {
            "t": pa.array([0, 10**9], pa.timestamp("ns")),
            "d": pa.array([5, 7], pa.duration("ms")),
            "s": ["zero", "one"],
            "v": pa.array([[1, 2], [3]], pa.list_(pa.int64())),
            "r": pa.array([{"x": 1.0}, {"x": 2.0}]),
            "c": pa.array(["b", "a"]).dictionary_encode(),
        }
    )
    frame = cudf.DataFrame.from_arrow(table)
    with pytest.raises(zc.UnsupportedConversionError, match="column 't'"):
        zc.convert(frame, to=target)
    result = zc.convert(frame, to=target, encode="bytes")
    same(framework, result["t"].values, np.array([0, 10**9]))
    assert (result["t"].unit, result["d"].unit) == ("ns", "ms")
    same(framework, result["d"].values, np.array([5, 7]))
    assert result["s"].to_pylist() == ["zero", "one"]
    same(framework, result["v"].values, np.array([1, 2, 3]))
    assert framework.values(result["v"].offsets).tolist() == [0, 2, 3]
    same(framework, result["r"].values["x"], np.array([1.0, 2.0]))
    assert result["c"].to_pylist() == ["b", "a"]
    assert zc.explain(frame, target, encode="bytes").copied_bytes == 0


def test_decimals_are_scaled_integers(cudf) -> None:
    framework = side("cupy")
    wide = pa.array(["1.25", "-3.50"]).cast(pa.decimal128(20, 2))
    result = zc.convert(cudf.Series.from_arrow(wide), to="cupy", encode=True)
    assert result.scale == 2
    assert framework.values(result.values)[:, 0].astype("i8").tolist() == [125, -350]


@pytest.mark.parametrize("target", NAMES)
def test_index_is_converted(cudf, target: str) -> None:
    framework = side(target)
    frame = cudf.DataFrame({"a": [1, 2, 3]}, index=cudf.Index([7, 8, 9], name="i"))
    result = zc.convert(frame, to=target)
    assert list(result) == ["a", "i"]
    assert framework.values(result["i"]).tolist() == [7, 8, 9]
    assert list(zc.convert(frame, to=target, index=False)) == ["a"]
    plain = cudf.DataFrame({"a": [1, 2, 3]})
    assert list(zc.convert(plain, to=target)) == ["a"]
    both = frame.copy()
    both.index = cudf.MultiIndex.from_tuples([(1, 4), (1, 5), (2, 6)], names=["x", "y"])
    assert framework.values(zc.convert(both, to=target)["y"]).tolist() == [4, 5, 6]


@pytest.mark.parametrize("target", NAMES)
def test_empty_frames_become_empty_tensors(cudf, target: str) -> None:
    frame = cudf.DataFrame({"a": np.empty(0), "b": np.empty(0, "i4")})
    result = zc.convert(frame, to=target)
    assert tuple(result["a"].shape) == (0,)
    assert not zc.explain(frame, target).zero_copy


# -- the frameworks of the GPU to cuDF ----------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("source", NAMES)
def test_tensor_is_aliased_by_cudf(cudf, source: str, dtype: str) -> None:
    framework = side(source)
    if not framework.holds(dtype):
        pytest.skip(f"{source} has no {dtype}")
    x = framework.make(numbers(dtype))
    plan = zc.explain({"x": x}, "cudf")
    assert plan.zero_copy, str(plan)
    result = zc.convert({"x": x}, to="cudf")
    assert isinstance(result, cudf.DataFrame)
    assert values_ptr(result["x"]) == framework.pointer(x)
    assert result["x"].to_arrow().to_pylist() == numbers(dtype).tolist()
    assert isinstance(zc.convert(x, to="cudf"), cudf.Series)


@pytest.mark.parametrize("source", NAMES)
def test_nan_stays_nan(cudf, source: str) -> None:
    """cudf.Series(x) would convert NaN to nulls."""
    values = np.array([1.0, np.nan, 3.0])
    result = zc.convert({"x": side(source).make(values)}, to="cudf")
    assert nulls_of(result["x"]) == 0


@pytest.mark.parametrize("source", ["cupy", "torch", "numba"])
def test_gaps_are_copied(cudf, source: str) -> None:
    x = side(source).make(numbers(rows=20))[::2]
    assert not zc.explain({"x": x}, "cudf").zero_copy
    result = zc.convert({"x": x}, to="cudf")
    assert result["x"].to_arrow().to_pylist() == numbers(rows=20)[::2].tolist()


@pytest.mark.parametrize("source", NAMES)
def test_copy_true_does_not_alias_cudf(cudf, source: str) -> None:
    framework = side(source)
    x = framework.make(numbers())
    result = zc.convert({"x": x}, to="cudf", copy=True)
    assert values_ptr(result["x"]) != framework.pointer(x)
    assert result["x"].to_arrow().to_pylist() == numbers().tolist()


@pytest.mark.parametrize("source", NAMES)
def test_frame_outlives_its_tensors(cudf, source: str) -> None:
    framework = side(source)
    result = zc.convert({"x": framework.make(numbers(rows=1 << 20))}, to="cudf")
    gc.collect()
    junk = [framework.make(np.full(1 << 20, -1.0)) for _ in range(4)]
    assert result["x"].sum() == numbers(rows=1 << 20).sum()
    assert junk


@pytest.mark.parametrize("target", NAMES)
def test_tensors_outlive_their_frame(cudf, target: str) -> None:
    framework = side(target)
    result = zc.convert(cudf.DataFrame({"x": numbers(rows=1 << 20)}), to=target)
    gc.collect()
    junk = [cudf.Series(np.full(1 << 20, -1.0)) for _ in range(4)]
    same(framework, result["x"], numbers(rows=1 << 20))
    assert junk


@pytest.mark.parametrize("source", ["cupy", "torch"])
def test_cudf_waits_for_work_on_another_stream(cudf, source: str) -> None:
    """cuDF ignores the interface's stream, so zerocopy orders the streams."""
    framework = side(source)
    if source == "cupy":
        cupy = importlib.import_module("cupy")
        stream = cupy.cuda.Stream(non_blocking=True)
    else:
        torch = importlib.import_module("torch")
        stream = torch.cuda.Stream()
    x = framework.make(np.zeros(1 << 24))
    with stream if source == "cupy" else torch.cuda.stream(stream):
        for i in range(20):
            framework.fill(x, float(i))
        result = zc.convert({"x": x}, to="cudf")
    assert (result["x"].min(), result["x"].max()) == (19.0, 19.0)


# -- the host ---------------------------------------------------------------------


@pytest.mark.parametrize("target", HOSTS)
def test_cudf_columns_are_copied_to_the_host(cudf, target: str) -> None:
    installed(target)
    frame = cudf.DataFrame({"x": numbers(), "y": numbers("int32")})
    plan = zc.explain(frame, target)
    assert not plan.zero_copy
    assert plan.copied_bytes == ROWS * 12
    result = zc.convert(frame, to=target)
    back = zc.convert(result, to="pyarrow")
    assert back["x"].to_pylist() == numbers().tolist()
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(frame, to=target, copy=False)


@pytest.mark.parametrize("source", HOSTS)
def test_host_tables_are_transferred_to_cudf(cudf, source: str) -> None:
    """to="cudf" transfers host memory."""
    installed(source)
    x = zc.convert(pa.table({"x": numbers(), "y": numbers("int32")}), to=source)
    result = zc.convert(x, to="cudf")
    assert isinstance(result, cudf.DataFrame)
    assert result["x"].to_arrow().to_pylist() == numbers().tolist()
    assert str(result["y"].dtype) == "int32"


TYPES = {
    "null ints": lambda: pa.array([1, None, 3]),
    "bool": lambda: pa.array([True, None, False]),
    "string": lambda: pa.array(["a", None, "två"]),
    "large_string": lambda: pa.array(["a", None, "c"], pa.large_string()),
    "string_view": lambda: pa.array(["a", None, "a text of more than twelve bytes"], pa.string_view()),
    "timestamp": lambda: pa.array([0, None, 2], pa.timestamp("us")),
    "zone": lambda: pa.array([0, None, 2], pa.timestamp("ns", "Europe/Oslo")),
    "duration": lambda: pa.array([0, None, 2], pa.duration("ms")),
    "decimal": lambda: pa.array(["1.5", None, "2.5"]).cast(pa.decimal128(12, 2)),
    "list": lambda: pa.array([[1], None, [2, 3]], pa.list_(pa.int64())),
    "large_list": lambda: pa.array([[1], None, [2, 3]], pa.large_list(pa.int64())),
    "fixed list": lambda: pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
    "struct": lambda: pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "z"}]),
    "dictionary": lambda: pa.array(["b", None, "a"]).dictionary_encode(),
    "date32": lambda: pa.array([0, None, 2], pa.date32()),
    "date64": lambda: pa.array([0, None, 86_400_000], pa.date64()),
    "null": lambda: pa.array([None, None, None]),
    "bool8": lambda: pa.array([True, False, True]).cast(pa.bool8()),
}


@pytest.mark.parametrize("kind", TYPES)
def test_types_survive_the_device_or_are_named_by_the_plan(cudf, kind: str) -> None:
    """The plan names each type that returns as another one."""
    array = TYPES[kind]()
    table = pa.table({"x": array})
    plan = zc.explain(table, "cudf")
    assert plan.possible, str(plan)
    back = zc.convert(zc.convert(table, to="cudf"), to="pyarrow")["x"]
    assert back.null_count == array.null_count
    if kind == "dictionary":
        back = back.cast(pa.string())
        array = array.cast(pa.string())
    if not back.type.equals(array.type) and "list" not in kind and kind != "decimal" and "string" not in kind:
        assert any("'x'" in warning for warning in plan.warnings), str(back.type)
        return
    assert back.to_pylist() == array.to_pylist()


def test_pandas_index_survives_cudf(cudf) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=pd.Index([7, 8, 9], name="i"))
    frame_on_device = zc.convert(frame, to="cudf")
    assert frame_on_device.index.name == "i"
    assert frame_on_device.index.to_arrow().to_pylist() == [7, 8, 9]
    back = zc.convert(frame_on_device, to="pandas")
    assert back.index.tolist() == [7, 8, 9]
    assert back["a"].tolist() == [1, 2, 3]


# -- pylibcudf and Arrow's device interface -------------------------------------------


@pytest.mark.parametrize("target", NAMES)
def test_pylibcudf_tables_are_aliased(cudf, plc, target: str) -> None:
    framework = side(target)
    frame = cudf.DataFrame({"x": numbers()})
    table, _ = frame.to_pylibcudf()
    result = zc.convert(table, to=target)
    assert framework.pointer(result["column_0"]) == values_ptr(frame["x"])
    assert values_ptr(zc.convert(table, to="cudf")["column_0"]) == values_ptr(frame["x"])
    assert isinstance(zc.convert(frame, to="pylibcudf"), plc.Table)


class DeviceArrow:
    """An object with Arrow's device interface alone."""

    def __init__(self, inner):
        self._inner = inner

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self._inner.__arrow_c_device_array__()


@pytest.mark.parametrize("target", NAMES)
def test_device_array_with_an_event_is_aliased(cudf, target: str) -> None:
    from zerocopy.protocols import arrow_c, arrow_schema

    framework = side(target)
    series = cudf.Series(pa.array([1.5, None, 2.5]))
    column, _ = series.to_pylibcudf()
    _, capsule = column.__arrow_c_device_array__()
    struct = arrow_c.ArrowDeviceArray.from_address(arrow_schema.pointer(capsule, arrow_c.DEVICE_ARRAY))
    assert struct.device_type == 2
    assert ctypes.c_void_p.from_address(struct.sync_event).value, "it points to an event"
    values, mask = zc.convert(DeviceArrow(column), to=target, nulls="mask")
    assert framework.pointer(values) == column.data().ptr
    assert framework.values(mask).tolist() == [False, True, False]
    assert framework.values(values)[[0, 2]].tolist() == [1.5, 2.5]
    assert zc.convert(DeviceArrow(column), to="numpy", nulls=0).tolist() == [1.5, 0, 2.5]


def test_device_arrow_memory_is_converted_to_cudf(cudf, plc) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None, 3]),
            "s": ["a", None, "c"],
            "v": pa.array([[1], [], [2, 3]], pa.list_(pa.int32())),
            "r": pa.array([{"x": 1.0}, {"x": 2.0}, {"x": 3.0}]),
            "b": [True, None, False],
            "t": pa.array([0, 1, 2], pa.timestamp("us")),
        }
    )
    for name, expected in zip(table.column_names, table.columns, strict=True):
        column = plc.Column.from_arrow(expected.combine_chunks())
        result = zc.convert(DeviceArrow(column), to="cudf")
        assert result.to_arrow().to_pylist() == expected.to_pylist(), name
        if name in ("i", "t"):
            assert values_ptr(result) == column.data().ptr
    two = DeviceArrow(plc.Table.from_arrow(table.select(["i", "t"])))
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called"):
        zc.convert(two, to="cudf")  # a pylibcudf.Table exports no names


def test_cudf_release_takes_the_gil(cudf) -> None:
    """cuDF's release callback does not take the GIL, so the capsule's destructor must hold it."""
    column, _ = cudf.Series(numbers()).to_pylibcudf()
    for _ in range(1000):
        zc.convert(DeviceArrow(column), to="numpy")
    gc.collect()
    assert column.size() == ROWS


# -- the host's tables to the GPU -------------------------------------------------


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", ["pyarrow", "pandas", "polars"])
def test_host_tables_become_device_tensors(source: str, target: str) -> None:
    installed(source)
    framework = side(target)
    table = zc.convert(pa.table({"x": numbers(), "y": numbers("int32")}), to=source)
    plan = zc.explain(table, target, device=DEVICE)
    assert (plan.zero_copy, plan.copied_bytes) == (False, ROWS * 12)
    result = zc.convert(table, to=target, device=DEVICE)
    assert framework.is_array(result["x"])
    same(framework, result["x"], numbers())
    same(framework, result["y"], numbers("int32"))


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("source", ["pyarrow", "pandas", "polars"])
def test_device_columns_become_host_tables(source: str, target: str) -> None:
    installed(source)
    framework = side(target)
    result = zc.convert({"x": framework.make(numbers()), "y": framework.make(numbers("int32"))}, to=source)
    back = zc.convert(result, to="pyarrow")
    assert back["x"].to_pylist() == numbers().tolist()
    with pytest.raises(zc.CopyRequiredError):
        zc.convert({"x": framework.make(numbers())}, to=source, copy=False)


@pytest.mark.parametrize("target", NAMES)
def test_nulls_of_host_tables_are_masked_or_filled_on_the_device(target: str) -> None:
    framework = side(target)
    table = pa.table({"x": pa.array([1.5, None, 2.5])})
    values, mask = zc.convert(table, to=target, device=DEVICE, nulls="mask")["x"]
    assert framework.is_array(values)
    assert framework.is_array(mask)
    assert framework.values(mask).tolist() == [False, True, False]
    filled = zc.convert(table, to=target, device=DEVICE, nulls=0)["x"]
    assert framework.values(filled).tolist() == [1.5, 0, 2.5]


@pytest.mark.parametrize("target", NAMES)
def test_host_table_becomes_a_device_matrix(target: str) -> None:
    framework = side(target)
    table = pa.table({"x": numbers(), "y": numbers()})
    result = zc.convert(table, to=target, device=DEVICE, layout="matrix")
    assert tuple(result.shape) == (ROWS, 2)
    assert np.array_equal(framework.values(result), np.column_stack([numbers(), numbers()]))


def test_two_frameworks_share_a_column(cudf) -> None:
    """A write through one alias is visible in the other, and in the frame."""
    if not have("cupy", "torch"):
        pytest.skip("CuPy and torch are needed")
    frame = cudf.DataFrame({"x": numbers()})
    x, y = zc.convert(frame, to="cupy")["x"], zc.convert(frame, to="torch")["x"]
    x[0] = 123.0
    importlib.import_module("cupy").cuda.Device(0).synchronize()
    assert float(y[0]) == 123.0
    assert frame["x"].iloc[0] == 123.0
