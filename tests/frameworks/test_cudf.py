"""cuDF and pylibcudf without a GPU: over stubs that present host memory as device memory."""

from __future__ import annotations

import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from helpers import cuda_stubs, cudf_stubs
from helpers.cuda_producers import SpeaksCAI
from helpers.cudf_stubs import DataFrame, Index, RangeIndex, Series, upload

import zerocopy as zc
from zerocopy import registry
from zerocopy.describe import describe
from zerocopy.protocols import cuda_driver

TARGETS = ["cupy", "numba"]
NUMBERS = [f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)] + ["float32", "float64"]


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    yield cudf_stubs.install(monkeypatch)
    cuda_stubs.forget()


def series(values, kind=None) -> Series:
    array = pa.array(values, kind) if not isinstance(values, pa.Array) else values
    return Series(upload(array), dtype=cudf_stubs._dtype_of(array))


def frame(**columns) -> DataFrame:
    return DataFrame({name: series(values) for name, values in columns.items()})


def device_pointer(column: Series) -> int:
    col, _ = column.to_pylibcudf()
    return col.data().ptr


def host(x):
    return zc.convert(x, to="numpy")


def calls(machine, name):
    return [
        entry for entry in machine.log if entry == name or (isinstance(entry, tuple) and entry[0] == name)
    ]


# -- types and their frameworks --------------------------------------------------------------


def test_types_belong_to_the_framework_of_their_module() -> None:
    for obj in (frame(a=[1]), series([1]), Index(upload(pa.array([1]))), RangeIndex(3)):
        assert registry.by_type(type(obj)).name == "cudf"
    for obj in (frame(a=[1]).to_pylibcudf()[0], upload(pa.array([1]))):
        assert registry.by_type(type(obj)).name == "pylibcudf"


@pytest.mark.parametrize(("name", "package"), [("cudf", "cudf-cu13"), ("pylibcudf", "pylibcudf-cu13")])
def test_absent_cudf_is_not_imported_and_the_remedy_names_the_wheel(
    run_python, name: str, package: str
) -> None:
    completed = run_python(
        f"""
        import sys
        import numpy, zerocopy as zc
        print(zc.frameworks()[{name!r}].kind, {name!r} in sys.modules)
        sys.modules[{name!r}] = None  # as where it is not installed
        try: zc.convert({{"a": numpy.arange(3)}}, to={name!r})
        except zc.FrameworkNotInstalledError as error: print(error)
        """
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("table False\n")
    assert f"pip install {package}" in completed.stdout


# -- to tensors -------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_number_column_is_aliased(machine, target: str, dtype: str) -> None:
    values = np.array([0, 1, 1, 0, 1]).astype(dtype)
    source = DataFrame({"a": series(pa.array(values)), "b": series([1.0, 2.0, 3.0, 4.0, 5.0])})
    plan = zc.explain(source, target)
    result = zc.convert(source, to=target)
    assert list(result) == ["a", "b"]
    assert zc.view(result["a"]).ptr == device_pointer(source["a"])
    assert zc.view(result["a"]).dtype.name == dtype
    assert host(result["a"]).tolist() == values.tolist()
    leaf = plan.leaves["['a']"]
    assert (leaf.zero_copy, leaf.protocol, plan.copied_bytes) == (True, "cuda-array-interface", 0)
    assert not calls(machine, "to_arrow")


@pytest.mark.parametrize(("variable", "stream"), [(None, 1), ("1", 2)])
def test_consumers_wait_for_the_stream_of_cudf(machine, monkeypatch, variable, stream) -> None:
    if variable is not None:
        monkeypatch.setenv("CUDF_PER_THREAD_STREAM", variable)
    zc.convert(series([1, 2]), to="cupy", stream=9)
    ptr = 0 if stream == 1 else stream  # CuPy's number of the legacy default stream
    assert machine.log == [("record", ptr), ("wait", 9, ptr)]


@pytest.mark.parametrize(("owner", "device"), [(0, "cuda:0"), (None, "cuda:1")])
def test_a_column_is_on_the_device_of_its_memory(
    machine, monkeypatch, owner: int | None, device: str
) -> None:
    """If the driver does not know the memory, it is the current device."""
    column = series([1, 2])
    machine.current = 1
    monkeypatch.setattr(cuda_driver, "ordinal", lambda ptr: owner)
    assert str(describe(column).columns[0].device) == device


# -- nulls --------------------------------------------------------------------


def test_nulls_are_refused_by_name() -> None:
    source = frame(a=[1, 2], b=[None, 1.0], c=pa.array([None, None], pa.int8()))
    with pytest.raises(zc.LossyConversionError, match=r"'b' has 1 null.*'c' has 2 nulls"):
        zc.convert(source, to="cupy")
    assert host(zc.convert(source, to="cupy", columns=["a"])["a"]).tolist() == [1, 2]
    with pytest.raises(zc.LossyConversionError, match="has 1 null"):
        zc.convert(source["b"], to="cupy")


@pytest.mark.parametrize("target", TARGETS)
def test_mask_is_unpacked_on_the_device(machine, target: str) -> None:
    source = frame(a=[1, None, 3], b=[1, 2, 3])
    result = zc.convert(source, to=target, nulls="mask")
    assert zc.view(result["a"].values).ptr == device_pointer(source["a"])
    assert host(result["a"].mask).tolist() == [False, True, False]
    assert host(result["b"].mask).tolist() == [False] * 3
    assert {str(zc.view(part).device) for column in result.values() for part in column} == {"cuda:0"}
    assert len(calls(machine, "is_null")) == 1
    plan = zc.explain(source, target, nulls="mask")
    assert plan.leaves["['a'].values"].zero_copy
    assert "one byte per row" in plan.leaves["['a'].mask"].reasons[0].why
    assert plan.copied_bytes == 3


def test_older_pylibcudf_fills_nulls_on_the_host(monkeypatch) -> None:
    monkeypatch.delattr(cudf_stubs.Scalar, "from_py")
    assert host(zc.convert(series([1, None, 3]), to="cupy", nulls=5)).tolist() == [1, 5, 3]


# -- types that tensors lack ------------------------------------------------


def test_lists_and_structs_are_encoded_by_their_children() -> None:
    lists = series([[1, 2], [], [3]], pa.list_(pa.int32()))
    result = zc.convert(lists, to="cupy", encode=True)
    col, _ = lists.to_pylibcudf()
    assert zc.view(result.values).ptr == col.child(1).data().ptr
    assert host(result.values).tolist() == [1, 2, 3]
    assert host(result.offsets).tolist() == [0, 2, 2, 3]
    structs = series([{"x": 1, "y": True}, {"x": 2, "y": False}, {"x": 3, "y": True}])
    result = zc.convert(structs[1:3], to="cupy", encode=True)
    assert host(result.values["x"]).tolist() == [2, 3]
    assert host(result.values["y"]).tolist() == [False, True]
    col, _ = structs.to_pylibcudf()
    assert zc.view(result.values["x"]).ptr == col.child(0).data().ptr + 8


def test_column_without_counterpart_is_refused_by_its_type_name() -> None:
    col = upload(pa.array([1, 2]))
    col._type = cudf_stubs.DataType(cudf_stubs.TypeId.DURATION_DAYS)
    with pytest.raises(zc.UnsupportedConversionError, match="DURATION_DAYS"):
        zc.convert(col, to="cupy")
    with pytest.raises(zc.UnsupportedConversionError, match="DURATION_DAYS, which cuDF's frames lack"):
        zc.convert(col, to="cudf")


# -- to the host ------------------------------------------------------------------


def test_to_pyarrow_copies_with_a_reason(machine) -> None:
    source = frame(a=[1, None], s=["x", "y"])
    plan = zc.explain(source, "pyarrow")
    assert not plan.zero_copy
    assert plan.copied_bytes > 0
    assert "on cuda:0, and Arrow arrays are on the host" in plan.leaves["['a']"].reasons[0].why
    assert not calls(machine, "to_arrow")
    assert zc.convert(source, to="pyarrow").to_pydict() == {"a": [1, None], "s": ["x", "y"]}
    with pytest.raises(zc.CopyRequiredError, match="cuda:0"):
        zc.convert(source, to="pyarrow", copy=False)


# -- the index ----------------------------------------------------------------


def test_named_or_nondefault_index_is_converted() -> None:
    plain = frame(a=[1, 2, 3])
    assert zc.convert(plain, to="pyarrow").column_names == ["a"]
    assert zc.convert(plain, to="pyarrow", index=True).column_names == ["a", "__index_level_0__"]
    named = DataFrame(plain._data, RangeIndex(3, names=["i"]))
    assert zc.convert(named, to="pyarrow").to_pydict() == {"a": [1, 2, 3], "i": [0, 1, 2]}
    assert zc.convert(named, to="pyarrow", index=False).column_names == ["a"]
    stepped = DataFrame(plain._data, RangeIndex(3, start=10, step=5))
    assert zc.convert(stepped, to="pyarrow")["__index_level_0__"].to_pylist() == [10, 15, 20]


def test_series_index_is_converted_with_index_true() -> None:
    source = Series(upload(pa.array([1, 2])), Index(upload(pa.array([7, 8])), ["i"]), "a")
    assert host(zc.convert(source, to="cupy")).tolist() == [1, 2]
    assert {k: host(v).tolist() for k, v in zc.convert(source, to="cupy", index=True).items()} == {
        "a": [1, 2],
        "i": [7, 8],
    }


# -- to cudf ------------------------------------------------------------------


def test_cudf_to_cudf_returns_the_same_frame() -> None:
    source = frame(a=[1])
    assert zc.convert(source, to="cudf") is source


def test_device_tensors_are_aliased(machine) -> None:
    x = zc.convert(np.arange(5.0), to="cupy")
    y = zc.convert(np.arange(5, dtype="i4"), to="numba")
    flags = zc.convert(np.array([True] * 5), to="cupy")
    machine.log.clear()
    plan = zc.explain({"x": x, "y": y, "f": flags}, "cudf")
    assert plan.zero_copy, str(plan)
    result = zc.convert({"x": x, "y": y, "f": flags}, to="cudf")
    assert isinstance(result, DataFrame)
    assert device_pointer(result["x"]) == zc.view(x).ptr
    assert device_pointer(result["y"]) == zc.view(y).ptr
    assert cudf_stubs.to_arrow(result["f"]._col).to_pylist() == [True] * 5
    assert ("export", 1) in machine.log, "CuPy orders its work before cuDF's stream"


def test_cudf_waits_for_the_producers_stream(machine) -> None:
    """cuDF ignores the interface's stream."""
    x = zc.convert(np.arange(3.0), to="cupy")
    machine.log.clear()
    bare = SpeaksCAI(x._host, stream=5)
    zc.convert({"a": bare}, to="cudf")
    assert ("order", 5, 1, 0) in machine.log
    machine.log.clear()
    zc.convert({"a": SpeaksCAI(x._host, stream=1)}, to="cudf")
    assert not calls(machine, "order")


def test_memory_with_gaps_is_copied_on_the_device(machine) -> None:
    x = zc.convert(np.arange(10.0), to="cupy")[::2]
    plan = zc.explain({"x": x}, "cudf")
    assert not plan.zero_copy
    assert "without gaps" in plan.leaves["['x']"].reasons[0].why
    result = zc.convert({"x": x}, to="cudf")
    assert cudf_stubs.to_arrow(result["x"]._col).to_pylist() == [0, 2, 4, 6, 8]
    assert not calls(machine, "from_arrow")
    with pytest.raises(zc.CopyRequiredError, match="without gaps"):
        zc.convert({"x": x}, to="cudf", copy=False)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (np.zeros((2, 3)), r"column 'x' is a tensor of shape \(2, 3\)"),
        (np.zeros(2, "f2"), "column 'x' is float16, which cuDF lacks"),
        (np.zeros(2, "c8"), "column 'x' is complex64, which cuDF lacks"),
    ],
)
@pytest.mark.parametrize("on", ["cupy", "numpy"])
def test_tensors_that_cudf_lacks_are_refused(values, why: str, on: str) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=why):
        zc.convert({"x": zc.convert(values, to=on)}, to="cudf")


def test_missing_driver_raises_device_error(monkeypatch) -> None:
    from zerocopy.protocols import cuda_driver

    monkeypatch.setattr(cuda_driver, "missing", lambda: zc.Reason("no NVIDIA driver", "install it"))
    with pytest.raises(zc.DeviceError, match="no NVIDIA driver"):
        zc.convert({"x": np.arange(3)}, to="cudf")


def test_host_table_is_transferred_once(machine) -> None:
    table = pa.table({"a": [1, None, 3], "s": ["x", None, "z"], "b": [True, False, None]})
    plan = zc.explain(table, "cudf")
    assert (plan.possible, plan.zero_copy, plan.copied_bytes > 0) == (True, False, True)
    assert "host memory" in plan.leaves["['a']"].reasons[-1].why
    result = zc.convert(table, to="cudf")
    assert len(calls(machine, "from_arrow")) == 1
    assert {n: result[n].to_arrow().to_pylist() for n in result} == table.to_pydict()
    with pytest.raises(zc.CopyRequiredError, match="host memory"):
        zc.convert(table, to="cudf", copy=False)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1], pa.time64("us")),
        pa.array([b"x"], pa.binary()),
        pa.array([b"xy"], pa.binary(2)),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.array([[b"x"]], pa.list_(pa.binary())),
        pa.array([1.5], pa.float16()),
        pa.array([Decimal(1)], pa.decimal256(40, 0)),
    ],
    ids=lambda a: str(a.type),
)
def test_types_that_cudf_lacks_are_refused(array) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=r"'x' is .*, which cuDF lacks") as caught:
        zc.convert(pa.table({"ok": [1], "x": array}), to="cudf")
    assert "'ok'" not in str(caught.value).split("which cuDF lacks")[0].split("column")[1]


def test_duplicate_names_are_refused() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'a'"):
        zc.convert(table, to="cudf")


# -- pylibcudf ------------------------------------------------------------------


def test_pylibcudf_and_cudf_alias_each_other() -> None:
    source = frame(a=[1, None], s=["x", "y"])
    inner, _ = source.to_pylibcudf()
    result = zc.convert(inner, to="cudf")
    assert list(result) == ["column_0", "column_1"]
    assert device_pointer(result["column_0"]) == device_pointer(source["a"])
    back = zc.convert(source, to="pylibcudf")
    assert zc.explain(source, "pylibcudf").zero_copy
    assert any("names" in w for w in zc.explain(source, "pylibcudf").warnings)
    assert back.columns()[0].data().ptr == device_pointer(source["a"])
    assert zc.convert(inner, to="pylibcudf") is inner
    assert zc.convert(pa.table({"a": [1]}), to="pylibcudf").num_rows() == 1
    with pytest.raises(zc.UnsupportedConversionError, match="only the codes"):
        zc.convert(DataFrame({"c": series(pa.array(["a"]).dictionary_encode())}), to="pylibcudf")


def test_address_of_older_buffers_is_read_from_their_interface(monkeypatch) -> None:
    source = series([1, 2, 3])
    col, _ = source.to_pylibcudf()
    pointer, keeps = col.data().ptr, col.data()

    class Old:
        __cuda_array_interface__ = {"data": (pointer, False)}  # noqa: RUF012
        owner = keeps

    col._data = Old()
    assert zc.view(zc.convert(source, to="cupy")).ptr == pointer


def test_types_of_other_modules_are_not_owned() -> None:
    source = frame(a=[1])
    del sys.modules["cudf"]
    inner, _ = source.to_pylibcudf()
    assert host(zc.convert(inner, to="cupy")["column_0"]).tolist() == [1]


def test_types_that_cudf_stores_as_another_type_are_reported() -> None:
    table = pa.table(
        {
            "view": pa.array(["a", "b"], pa.string_view()),
            "flag": pa.array([True, False]).cast(pa.bool8()),
            "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)),
            "deep": pa.array([[["a"]], []], pa.large_list(pa.list_(pa.string_view()))),
            "day": pa.array([0, 1], pa.date32()),
            "code": pa.DictionaryArray.from_arrays(
                pa.array([1, 0], pa.uint32()), pa.array(["a", "b"], pa.string_view())
            ),
        },
        metadata={"by": "hand"},
    )
    result = zc.convert(table, to="cudf")
    assert {n: result[n].to_arrow().to_pylist() for n in result} == table.to_pydict()
    warnings = "\n".join(zc.explain(table, "cudf").warnings)
    for column in ("'flag'", "'pair'", "'deep'", "'day'", "metadata"):
        assert column in warnings
    assert "'view'" not in warnings
    assert "'code'" not in warnings
