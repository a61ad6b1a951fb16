"""Objects whose natural form is an array, and objects that only ``__array__`` exports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted
from helpers.table_cases import TABLES, TENSORS

import zerocopy as zc
from zerocopy import registry

VALUES = np.arange(6, dtype="f4").reshape(2, 3)


class OnlyArray:
    """An object with ``__array__`` of NumPy 2, which counts its reads."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self.reads = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.reads += 1
        return self._values.copy() if copy else self._values


class Described(OnlyArray):
    """The same, with a shape and a dtype of its own."""

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)
    ndim = property(lambda self: self._values.ndim)


class Older(Described):
    """Written before NumPy 2: no keyword ``copy``, and the object's own memory as the result."""

    def __array__(self, dtype: Any = None) -> Any:
        self.reads += 1
        return self._values


class WithStream(Described):
    """An array of several dimensions that exports a stream of its values too, as xarray's do."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        pa = pytest.importorskip("pyarrow")
        return pa.table({"x": self._values.ravel()}).__arrow_c_stream__()


class WithArrow(Described):
    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        pa = pytest.importorskip("pyarrow")
        return pa.array(self._values.ravel()).__arrow_c_array__()


KINDS = [OnlyArray, Described, Older, WithStream, WithArrow]
HOST = [n for n in (*TENSORS, *TABLES) if "cpu" in registry.by_name(n).device_kinds]


def _numbers(result: Any) -> Any:
    return zc.convert(result, "numpy", layout="matrix") if _is_table(result) else zc.convert(result, "numpy")


def _is_table(result: Any) -> bool:
    owner = registry.by_type(type(result))
    return owner is not None and owner.table(result) is not None


@pytest.mark.hazard("producers#array-method-that-copies")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", HOST)
@pytest.mark.parametrize("kind", KINDS)
def test_array_method_is_a_declared_copy(kind: type, to: str) -> None:
    source = kind(VALUES)
    plan = zc.explain(source, to)
    assert plan.possible
    assert not plan.zero_copy
    assert plan.copied_bytes == VALUES.nbytes
    result = zc.convert(source, to)
    np.testing.assert_array_equal(_numbers(result), VALUES)
    if to != "duckdb":  # a relation has no memory
        assert not zc.shares_memory(source, result)
        assert not zc.shares_memory(VALUES, result)
        assert not zc.shares_memory(VALUES, zc.convert(source, to, copy=True))
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(source, to, copy=False)
    assert caught.value.code == "array-method"


@pytest.mark.parametrize("kind", [Described, Older, WithStream, WithArrow])
def test_explain_does_not_read_an_object_that_has_shape_and_dtype(kind: type) -> None:
    source = kind(VALUES)
    plan = zc.explain(source, "numpy")
    assert (plan.protocol, source.reads) == ("__array__", 0)
    assert plan.source.endswith("float32 (2, 3)")
    zc.convert(source, "numpy")
    assert source.reads == 1


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (4,), (2, 1, 3)])
def test_array_method_keeps_every_shape(shape: tuple[int, ...]) -> None:
    values = np.zeros(shape, ">i2")
    for kind in (OnlyArray, Described, Older):
        result = zc.convert(kind(values), "numpy")
        assert (result.shape, result.dtype) == (shape, np.dtype("i2"))


class _Frame(Described):
    columns = ("a", "b")

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        pa = pytest.importorskip("pyarrow")
        return pa.table({"a": [1, 2], "b": ["x", "y"]}).__arrow_c_stream__()


class _Series(Described):
    def to_frame(self) -> Any:
        raise AssertionError

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        pa = pytest.importorskip("pyarrow")
        return pa.chunked_array([["x", "y"]]).__arrow_c_stream__()


class _Interchange(_Frame):
    def __dataframe__(self) -> Any:
        raise AssertionError


def test_tables_with_array_method_remain_tables() -> None:
    pytest.importorskip("pyarrow")
    for kind in (_Frame, _Interchange):
        assert zc.convert(kind(VALUES), "pyarrow").to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    assert zc.convert(_Series(VALUES), "pyarrow").to_pylist() == ["x", "y"]


@pytest.mark.parametrize("name", ["columns", "keys", "__dataframe__"])
def test_tables_and_groups_without_columns_of_arrow_are_refused(name: str) -> None:
    group = type("Group", (Described,), {name: lambda self: ["a"]})(VALUES)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(group, "numpy")
    assert caught.value.code == "not-an-array"
    assert group.reads == 0


# -- wrong producers --------------------------------------------------------------


def _raises(self: Any, *args: Any, **options: Any) -> Any:
    raise OSError("the file was closed")


def _returns(value: Any) -> Callable[..., Any]:
    return lambda self, *args, **options: self if value is None else value


WRONG = {
    "raises": (_raises, "producer-raised"),
    "returns itself": (_returns(None), "invalid-producer"),
    "returns a list": (_returns([1, 2]), "invalid-producer"),
    "returns another shape": (_returns(np.zeros(7, "f4")), "invalid-producer"),
    "returns another dtype": (_returns(np.zeros((2, 3), "i8")), "invalid-producer"),
    "returns masked values": (
        _returns(np.ma.masked_array(VALUES, mask=VALUES > 2)),
        "masked",
    ),
}


@pytest.mark.hazard("producers#wrong-array-method")
@pytest.mark.parametrize("to", ["numpy", "torch", "pandas", "pyarrow"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_array_method_is_refused(wrong: str, to: str) -> None:
    pytest.importorskip(to)
    method, code = WRONG[wrong]
    source = type("Wrong", (Described,), {"__array__": method})(VALUES)
    with pytest.raises(zc.ZeroCopyError) as caught:
        zc.convert(source, to)
    assert caught.value.code == code
    if code == "producer-raised":
        assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("values", "code"),
    [(np.array([{}], object), "python-objects"), (np.array(["2020"], "M8[D]"), "missing-dtype")],
)
def test_dtypes_that_tensors_lack_are_refused_without_a_read(values: Any, code: str) -> None:
    source = Described(values)
    plan = zc.explain(source, "numpy")
    assert (plan.possible, plan.reasons[0].code, source.reads) == (False, code, 0)


def test_shape_that_raises_is_reported_by_the_read() -> None:
    class Closed(Described):
        shape = property(_raises)
        __array__ = _raises

    with pytest.raises(zc.UnsupportedConversionError, match="the file was closed"):
        zc.convert(Closed(VALUES), "numpy")


def test_size_that_is_not_known_yet_is_read() -> None:
    class Lazy(Described):
        shape = (float("nan"), 3)

    assert zc.convert(Lazy(VALUES), "numpy").shape == (2, 3)


# -- libraries ----------------------------------------------------------------------


@pytest.mark.hazard("producers#shape-lost-in-columns")
@pytest.mark.parametrize("to", ["numpy", "torch", "pandas"])
def test_xarray_over_numpy_is_aliased(to: str) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip(to)
    for values in (VALUES.copy(), np.arange(8.0)[::2], np.array(3.0)):
        if to == "pandas" and not values.ndim:
            continue
        array = xarray.DataArray(values)
        for source in (array, array.variable):
            plan = zc.explain(source, to)
            result = zc.convert(source, to)
            assert plan.zero_copy
            assert zc.shares_memory(source, result)
            assert zc.shares_memory(values, result)
            assert zc.view(source).shape == values.shape


def test_xarray_of_dates_and_text_are_numpy_arrays() -> None:
    xarray = pytest.importorskip("xarray")
    for values in (np.array(["2020", "2021"], "M8[ns]"), np.array(["a", "b"])):
        array = xarray.DataArray(values)
        result = zc.convert(array, "numpy")
        assert zc.explain(array, "numpy").zero_copy == zc.shares_memory(array, result) == True  # noqa: E712
        assert result.tolist() == values.tolist()


def test_xarray_over_a_file_is_not_read_by_explain(tmp_path: Any) -> None:
    xarray = pytest.importorskip("xarray")
    loads = []

    class Lazy(xarray.backends.BackendArray):
        shape, dtype = VALUES.shape, VALUES.dtype

        def __getitem__(self, key: Any) -> Any:
            loads.append(key)
            return VALUES[key.tuple]

    from xarray.core import indexing

    array = xarray.DataArray(indexing.LazilyIndexedArray(Lazy()), dims=("a", "b"))
    assert zc.explain(array, "numpy").copied_bytes == VALUES.nbytes
    assert not loads
    np.testing.assert_array_equal(zc.convert(array, "numpy"), VALUES)


def test_hdf5_dataset_is_read_by_convert_alone(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=VALUES)
        plan = zc.explain(dataset, "numpy")
        assert (plan.copied_bytes, plan.reasons[0].code) == (VALUES.nbytes, "array-method")
        np.testing.assert_array_equal(zc.convert(dataset, "numpy"), VALUES)
        with pytest.raises(zc.UnsupportedConversionError):
            zc.convert(file, "numpy")
        assert list(zc.convert({name: file[name] for name in file}, "numpy")) == ["x"]
    with pytest.raises(zc.UnsupportedConversionError):
        zc.convert(dataset, "numpy")


def test_zarr_array_is_copied() -> None:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array({}, shape=VALUES.shape, dtype="f4")
    array[:] = VALUES
    assert zc.explain(array, "numpy").copied_bytes == VALUES.nbytes
    np.testing.assert_array_equal(zc.convert(array, "numpy"), VALUES)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(zarr.group({}), "numpy")
    assert caught.value.code == "not-an-array"


@pytest.mark.hazard("producers#interface-over-a-new-buffer")
def test_interface_over_a_new_buffer_each_time_is_a_copy() -> None:
    class Fresh:
        @property
        def __array_interface__(self) -> dict[str, Any]:
            return {"shape": (12,), "typestr": "|u1", "version": 3, "data": bytes(range(12))}

    source = Fresh()
    plan, result = zc.explain(source, "numpy"), zc.convert(source, "numpy")
    assert plan.zero_copy == zc.shares_memory(source, result) == False  # noqa: E712
    assert plan.reasons[0].code == "exporter-copies"
    assert result.tolist() == list(range(12))
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(source, "numpy", copy=False)


def test_interface_over_one_buffer_is_aliased() -> None:
    class Stable:
        buffer = bytearray(range(6))

        @property
        def __array_interface__(self) -> dict[str, Any]:
            return {"shape": (6,), "typestr": "|u1", "version": 3, "data": memoryview(self.buffer)}

    source = Stable()
    assert zc.explain(source, "numpy").zero_copy
    assert zc.shares_memory(source, zc.convert(source, "numpy"))


def test_fix_for_a_umat_of_opencv() -> None:
    class UMat:
        def get(self) -> np.ndarray:
            return VALUES

        def isSubmatrix(self) -> bool:
            return False

    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(UMat(), "numpy")
    assert caught.value.calls == ('zc.convert(x.get(), "numpy")',)


def test_sequence_names_its_values() -> None:
    class Rows:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, key: Any) -> Any:
            return [1, 2, 3][key]

    x = Rows()
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, "numpy")
    assert pasted(caught.value.calls[0], {"zc": zc, "x": x, "numpy": np}).tolist() == [1, 2, 3]
