"""xarray: arrays, datasets and variables as sources and targets, and the labels that a conversion loses."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import oracle
from helpers.tiers import sampled

import zerocopy as zc
from zerocopy import registry

xr = pytest.importorskip("xarray")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

DAYS = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "M8[ns]")


def grid() -> Any:
    """Return an array of two dimensions with labels of all kinds."""
    return xr.DataArray(
        np.arange(6.0).reshape(2, 3),
        dims=("y", "x"),
        coords={"y": [10, 20], "x": ["a", "b", "c"], "height": 2.0},
        name="air",
        attrs={"units": "K"},
    )


def rows() -> Any:
    """Return a dataset whose variables have one dimension, with a coordinate of dates."""
    variables = {"a": ("t", np.arange(3.0), {"units": "m"}), "b": ("t", np.arange(3))}
    return xr.Dataset(variables, coords={"t": DAYS, "level": ("t", np.ones(3))}, attrs={"title": "rows"})


def several() -> Any:
    """Return a dataset of several dimensions."""
    variables = {"a": (("x", "y"), np.arange(6.0).reshape(2, 3)), "b": ("x", np.arange(2)), "s": 5.0}
    return xr.Dataset(variables | {"c": ("x", np.ones(2))}, coords={"x": [1, 2], "y": ["p", "q", "r"]})


def agrees(x: Any, to: str, **options: Any) -> Any:
    """Convert, and check that the plan reports whether memory is shared (P3)."""
    plan = zc.explain(x, to, **options)
    result = zc.convert(x, to, **options)
    assert plan.zero_copy == zc.shares_memory(x, result) == (plan.copied_bytes == 0), str(plan)
    return result


def lost(x: Any, to: str, **options: Any) -> str:
    """Return the warning about labels; empty if there is none."""
    return "".join(w for w in zc.explain(x, to, **options).warnings if "labels of xarray" in w)


# -- arrays -------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", "torch", "pandas", "pyarrow"])
def test_array_is_aliased_and_writes_show(to: str) -> None:
    pytest.importorskip(to)
    x = grid()
    for source in (x, x.variable):
        result = agrees(source, to, copy=False)
        x[0, 1] = 42.0
        assert zc.shares_memory(x.data, result)
        back = zc.convert(result, "numpy", layout="matrix") if to == "pandas" else zc.convert(result, "numpy")
        assert back[0, 1] == 42.0
        copy = zc.convert(source, to, copy=True)
        assert not zc.shares_memory(source, copy)
    assert zc.view(x).shape == (2, 3)
    assert x.identical(x.copy())


def test_jax_array_inside_is_aliased_by_its_own_framework() -> None:
    jnp = pytest.importorskip("jax.numpy")
    inner = jnp.arange(64, dtype="float32")
    x = xr.DataArray(inner, dims="t")
    for to in ("jax", "numpy", "torch"):
        pytest.importorskip(to)
        result = agrees(x, to)
        assert zc.shares_memory(inner, result)
    # JAX's memory is immutable, and stays marked.
    assert not zc.convert(x, "numpy").flags.writeable
    assert zc.view(x).readonly


def test_readonly_memory_stays_marked() -> None:
    values = np.arange(4.0)
    values.flags.writeable = False
    x = xr.DataArray(values)
    assert not agrees(x, "numpy").flags.writeable
    assert not agrees(values, "xarray").data.flags.writeable
    writable = zc.convert(values, "xarray", writable=True)
    assert writable.data.flags.writeable
    assert not zc.shares_memory(values, writable)
    dates = DAYS.copy()
    dates.flags.writeable = False
    assert np.shares_memory(zc.convert(dates, "xarray").data, dates)


@pytest.mark.hazard("other-frameworks#read-only-dates")
def test_xarray_copies_read_only_dates() -> None:
    """Hazard: the constructor copies dates in read-only memory; `zerocopy` aliases them."""
    dates = DAYS.copy()
    dates.flags.writeable = False
    assert not np.shares_memory(xr.DataArray(dates).data, dates)
    result = agrees(dates, "xarray", copy=False)
    assert np.shares_memory(result.variable._data, dates)
    assert result.values.tolist() == dates.tolist()


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "tensorflow"])
def test_explain_names_the_labels_that_a_tensor_lacks(to: str) -> None:
    pytest.importorskip(to)
    warning = lost(grid().astype("f4"), to)
    for text in (to, "name 'air'", "dimensions 'y', 'x'", "coordinates", "'height'", "attributes 'units'"):
        assert text in warning
    assert not lost(xr.DataArray(np.ones((2, 2))), to)
    assert lost(xr.DataArray(np.ones(2), dims="t"), to).endswith("the dimensions 't' are lost")
    assert not zc.explain(grid(), "xarray", copy=True).warnings


def test_labels_that_a_table_keeps_are_not_reported() -> None:
    x = grid()
    frame = agrees(x, "pandas")
    assert list(frame.columns) == ["a", "b", "c"]
    assert "'x'" not in lost(x, "pandas")
    assert "'y'" in lost(x, "pandas")
    indexed = agrees(x, "pandas", index=True)
    assert indexed.index.tolist() == [10, 20]
    assert indexed.index.name == "y"
    assert "'y'" not in lost(x, "pandas", index=True)
    assert list(zc.convert(x, "pandas", names=["u", "v", "w"]).columns) == ["u", "v", "w"]
    numbered = x.assign_coords(x=[1, 2, 3])
    assert list(zc.convert(numbered, "pandas").columns) == ["column_0", "column_1", "column_2"]
    twice = x.assign_coords(x=["a", "a", "b"])
    assert list(zc.convert(twice, "pandas").columns) == ["column_0", "column_1", "column_2"]


def test_array_of_one_dimension_is_a_named_column() -> None:
    x = rows()["a"]
    series = agrees(x, "pandas", copy=False)
    assert series.name == "a"
    assert series.index.tolist() == [0, 1, 2]
    assert "'t'" in lost(x, "pandas")
    frame = agrees(x, "pandas", index=True)
    assert (list(frame.columns), frame.index.name) == (["a"], "t")
    assert frame.index.tolist() == pd.DatetimeIndex(DAYS).tolist()
    pytest.importorskip("polars")
    assert agrees(x, "polars").name == "a"


@pytest.mark.parametrize(
    "options", [{"copy": True}, {"dtype": "float32"}, {"writable": False}, {"writable": True}], ids=str
)
def test_xarray_to_xarray_keeps_all_labels(options: dict[str, Any]) -> None:
    for x in (grid(), grid().variable, rows()["a"], rows(), several(), grid()["y"], rows()["t"]):
        if "dtype" in options and getattr(x, "dtype", np.dtype("f4")).kind == "M":
            continue
        result = zc.convert(x, "xarray", **options)
        assert type(result) is type(x)
        expected = x
        if "dtype" in options:
            names = getattr(x, "data_vars", None)
            expected = x.astype("f4") if names is None else x.assign({n: x[n].astype("f4") for n in names})
        assert result.identical(expected)
        plan = zc.explain(x, "xarray", **options)
        assert plan.shares_memory == zc.shares_memory(x, result)
        assert not (options.get("copy") and zc.shares_memory(x, result))
        assert zc.convert(x, "xarray") is x


def test_copy_shares_no_coordinate() -> None:
    x = rows()
    copy = zc.convert(x, "xarray", copy=True)
    array = zc.convert(x["a"], "xarray", copy=True)
    x["level"][0] = 9.0
    assert copy["level"][0] == array["level"][0] == 1.0
    copy.attrs["title"] = array.attrs["units"] = "other"
    assert (x.attrs, x["a"].attrs) == ({"title": "rows"}, {"units": "m"})


def test_a_copy_needs_no_version_of_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """xarray supports versions of pandas that are older than the oldest one of the target pandas."""
    monkeypatch.setattr(registry.by_name("pandas"), "module", lambda: pytest.fail("it is not a target"))
    x = xr.DataArray(np.arange(3.0), dims="row", coords={"row": [1, 2, 3]})
    assert zc.convert(x, "xarray", copy=True).identical(x)


def test_dates_and_text_are_aliased_or_refused() -> None:
    days = xr.DataArray(DAYS, dims="t")
    assert zc.shares_memory(agrees(days, "numpy"), DAYS)
    with pytest.raises(zc.UnsupportedConversionError, match="encode=True"):
        zc.convert(days, "torch")
    assert zc.convert(xr.DataArray(["u", "v"]), "numpy").tolist() == ["u", "v"]
    table = xr.DataArray(DAYS.reshape(3, 1))
    assert zc.convert(table, "xarray", copy=True).identical(table)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(table, "torch")
    assert "x.data.view('int64')" in str(caught.value)
    assert zc.convert(table.data.view("int64"), "torch").shape == (3, 1)


@pytest.mark.hazard("other-frameworks#index-of-another-type")
@pytest.mark.filterwarnings("ignore:`pandas.Index` does not support")
def test_index_variables() -> None:
    x = xr.DataArray(np.ones(3), dims="t", coords={"t": [5.0, 6.0, 7.0]})
    assert agrees(x["t"], "numpy", copy=False).tolist() == [5.0, 6.0, 7.0]
    assert not zc.convert(x["t"], "numpy").flags.writeable  # pandas' indexes are immutable
    # pandas has no index of float16: xarray computes its values.
    half = xr.DataArray(np.ones(2), dims="t", coords={"t": np.array([1, 2], "f2")})["t"]
    result = agrees(half, "numpy")
    assert (result.dtype, result.tolist()) == (half.dtype, [1, 2])
    assert rows()["t"].values.tolist() == agrees(rows()["t"], "numpy").tolist()
    names = grid()["x"]
    with pytest.raises(zc.UnsupportedConversionError, match=r"x\.values\.tolist\(\)"):
        zc.convert(names, "torch")
    assert zc.convert(names, "pandas").tolist() == ["a", "b", "c"]


def multi_index() -> Any:
    index = pd.MultiIndex.from_tuples([("p", 1), ("q", 2)], names=["l", "m"])
    return xr.Dataset({"v": ("row", np.ones(2))}, coords=xr.Coordinates.from_pandas_multiindex(index, "row"))


def test_multi_index() -> None:
    x = multi_index()
    frame = zc.convert(x, "pandas")
    assert frame.index.tolist() == [("p", 1), ("q", 2)]
    assert list(frame.index.names) == ["l", "m"]
    assert agrees(x["m"], "numpy").tolist() == [1, 2]
    assert zc.explain(x["m"], "numpy").reasons[0].code == "computed-index"
    assert list(zc.convert(x["row"], "pandas").columns) == ["l", "m"]
    back = zc.convert(frame, "xarray")
    assert back.indexes["m"].tolist() == [("p", 1), ("q", 2)]
    assert zc.convert(x, "xarray", copy=True).identical(x)


# -- lazy values --------------------------------------------------------------------------


def opened() -> tuple[Any, list[Any]]:
    """Return an array over a file that was not read, and the list of its reads."""
    from xarray.backends import BackendArray
    from xarray.core import indexing

    values, reads = np.arange(6.0).reshape(2, 3), []

    class File(BackendArray):
        shape, dtype = values.shape, values.dtype

        def __getitem__(self, key: Any) -> Any:
            reads.append(key)
            return values[key.tuple]

    cached = indexing.MemoryCachedArray(indexing.CopyOnWriteArray(indexing.LazilyIndexedArray(File())))
    return xr.DataArray(xr.Variable(("y", "x"), cached), name="v"), reads


@pytest.mark.hazard("other-frameworks#lazy-variables")
def test_opened_file_is_read_by_convert_alone() -> None:
    x, reads = opened()
    plan = zc.explain(x, "numpy")
    assert (plan.copied_bytes, plan.reasons[0].code) == (48, "array-method")
    assert "x.compute()" in plan.reasons[0].remedy
    with pytest.raises(zc.CopyRequiredError, match=r"compute\(\)"):
        zc.convert(x, "numpy", copy=False)
    dataset = xr.Dataset({"v": x})
    assert zc.explain(dataset, "numpy").copied_bytes == 48
    assert not reads
    result = zc.convert(x, "numpy")
    assert result.tolist() == np.arange(6.0).reshape(2, 3).tolist()
    assert reads
    read = opened()[0].compute()
    assert agrees(read, "numpy", copy=False).shape == (2, 3)
    assert zc.convert(opened()[0], "xarray", copy=True).identical(opened()[0].compute())


def test_file_whose_values_are_cached_is_aliased() -> None:
    x, _ = opened()
    assert not zc.explain(x, "numpy").zero_copy
    values = x.values  # xarray reads them, and keeps them
    result = agrees(x, "numpy", copy=False)
    assert np.shares_memory(values, result)


@pytest.mark.hazard("other-frameworks#lazy-variables")
def test_chunks_of_dask_are_a_declared_copy() -> None:
    dask_array = pytest.importorskip("dask.array")
    calls = []

    def make(block: Any) -> Any:
        calls.append(block.shape)
        return block

    lazy = dask_array.map_blocks(make, dask_array.ones((4, 4), chunks=2), dtype=float, meta=np.empty((0, 0)))
    x = xr.DataArray(lazy, dims=("u", "v"), name="w")
    plan = zc.explain(x, "numpy")
    assert not calls
    assert plan.copied_bytes == 128
    assert "lazy, in 4 chunks" in plan.reasons[0].why
    assert not plan.zero_copy
    assert zc.convert(x, "numpy").tolist() == np.ones((4, 4)).tolist()


def _file(values: Any, reads: list[Any]) -> Any:
    """Return a lazy array of xarray over a file of these values, which adds its reads to a list."""
    from xarray.backends import BackendArray
    from xarray.core import indexing

    class File(BackendArray):
        shape, dtype = values.shape, values.dtype

        def __getitem__(self, key: Any) -> Any:
            return indexing.explicit_indexing_adapter(
                key,
                self.shape,
                indexing.IndexingSupport.BASIC,
                lambda place: reads.append(place) or values[place],
            )

    return indexing.MemoryCachedArray(indexing.CopyOnWriteArray(indexing.LazilyIndexedArray(File())))


def _chunks(values: Any, reads: list[Any]) -> Any:
    """Return chunks of Dask, which add themselves to a list when they are computed."""
    dask_array = pytest.importorskip("dask.array")
    lazy = dask_array.from_array(values, chunks=2)
    return lazy.map_blocks(
        lambda block: reads.append(block.shape) or block, dtype=lazy.dtype, meta=values[:0]
    )


_TEXT = np.array(["a", "bc", "d", "bc"])
#: Values that tensors lack, as files of xarray and chunks of Dask hold them.
LAZY_VALUES = {
    "dates": np.array(["2024-01-01", "NaT", "1900-01-03", "2024-01-02"], "M8[ns]"),
    "seconds": np.array([0, 1, 2, 3], "M8[s]"),
    "durations": np.array([1, 2, 3, 4], "m8[ms]"),
    "text": _TEXT,
    "text of objects": _TEXT.astype(object),
    "text with None": np.array(["a", None, "b", "c"], object),
    "bytes": _TEXT.astype("S2"),
    "dates of two dimensions": np.arange(8).astype("M8[us]").reshape(4, 2),
    "text of two dimensions": np.array([["a", "b"], ["c", "d"]]),
}
LAZY_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("numpy", {}), ("numpy", {"copy": True}), ("pandas", {}), ("pyarrow", {}), ("xarray", {"copy": True}),
    ("numpy", {"encode": True, "nulls": "mask"}), ("pandas", {"index": True}),
    ("numpy", {"dtype": "float32"}),
]  # fmt: skip


def outcome(x: Any, to: str, options: dict[str, Any]) -> Any:
    """Return the values and the type of a result, or the code of the error."""
    try:
        result = zc.convert(x, to, **options)
    except zc.ZeroCopyError as error:
        return type(error), error.code
    parts = result if isinstance(result, dict) else {"": result}
    return type(result), {
        label: (type(part), str(part.to_pylist() if hasattr(part, "to_pylist") else part))
        for label, part in parts.items()
    }


@pytest.mark.parametrize(("to", "options"), LAZY_CALLS)
@pytest.mark.parametrize("name", LAZY_VALUES)
@pytest.mark.parametrize("lazy", [_file, _chunks])
@pytest.mark.hazard("other-frameworks#lazy-variables")
def test_lazy_values_convert_as_those_in_memory(
    lazy: Any, name: str, to: str, options: dict[str, Any]
) -> None:
    values, reads = LAZY_VALUES[name], []
    dims = ("row", "x")[: values.ndim]
    array = xr.DataArray(xr.Variable(dims, lazy(values, reads)), name="v")
    numbers = xr.Variable("row", np.arange(len(values)))
    dataset = xr.Dataset({"v": array, "n": numbers})
    for x in (array, array.variable, dataset, array[1:3]):
        before = len(reads)
        plan = zc.explain(x, to, **options)
        assert len(reads) == before
        assert not plan.zero_copy
        result = outcome(x, to, options)
        assert result == outcome(x.compute(), to, options)
        if isinstance(result[1], dict):
            assert plan.possible
            assert to == "xarray" or "array-method" in {reason.code for reason in plan.reasons}
            shared = zc.shares_memory(x, zc.convert(x, to, **options))
            assert not shared or (x is dataset and plan.shares_memory is None)


@pytest.mark.parametrize("name", LAZY_VALUES)
@pytest.mark.parametrize("lazy", [_file, _chunks])
def test_lazy_values_need_a_copy_and_stay_lazy_in_xarray(lazy: Any, name: str) -> None:
    values, reads = LAZY_VALUES[name], []
    array = xr.DataArray(xr.Variable(("row", "x")[: values.ndim], lazy(values, reads)), name="v")
    dataset = xr.Dataset({"v": array, "w": ("row", np.arange(float(len(values))))})
    for x in (array, dataset):
        for to in ("numpy", "pandas"):
            with pytest.raises(zc.CopyRequiredError):
                zc.convert(x, to, copy=False)
        assert zc.convert(x, "xarray", copy=False) is x
    chosen = zc.convert(dataset, "xarray", columns=["v"], copy=False)
    assert list(chosen) == ["v"]
    assert not reads
    assert list(zc.convert(dataset, "numpy", columns=["w"])) == ["w"]
    assert chosen["v"].compute().identical(array.compute())


def test_types_of_lazy_dates_are_refused_before_they_are_read() -> None:
    pytest.importorskip("torch")
    reads: list[Any] = []
    for lazy in (_file, _chunks):
        for name in ("dates", "durations"):
            x = xr.DataArray(xr.Variable("row", lazy(LAZY_VALUES[name], reads)))
            with pytest.raises(zc.UnsupportedConversionError, match="encode=True"):
                zc.convert(x, "torch")
            assert not zc.explain(x, "torch").possible
    assert not reads


def test_lazy_columns_of_a_netcdf_file(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    path = str(tmp_path / "rows.nc")
    names = ("dates", "durations", "text", "text of objects")
    xr.Dataset({name: ("row", LAZY_VALUES[name]) for name in names}).to_netcdf(path, engine="scipy")
    with xr.open_dataset(path, engine="scipy") as lazy:
        for to, options in LAZY_CALLS:
            assert outcome(lazy, to, options) == outcome(xr.load_dataset(path, engine="scipy"), to, options)


# -- datasets as tables -------------------------------------------------------------------


def test_dataset_of_one_dimension_is_a_table() -> None:
    x = rows()
    frame = agrees(x, "pandas", copy=False)
    assert list(frame.columns) == ["a", "b", "level"]
    assert frame.index.name == "t"
    assert frame.attrs == {"title": "rows"}
    assert zc.shares_memory(x["a"], frame)
    assert list(zc.convert(x, "pandas", index=False).columns) == ["a", "b"]
    table = agrees(x, "pyarrow", copy=False)
    assert table.column_names == ["a", "b", "level", "t"]
    assert table["t"].to_pylist() == pd.DatetimeIndex(DAYS).tolist()
    arrays = (
        zc.convert(x, "torch", index=False) if registry.by_name("torch").installed() else {"a": 0, "b": 0}
    )
    assert list(arrays) == ["a", "b"]
    x["a"][0] = 42.0
    assert table["a"][0].as_py() == 42.0
    assert "attributes of 'a'" in lost(x, "pandas")
    assert "'t'" in lost(x, "pandas", index=False)
    assert "'t'" not in lost(x, "pandas")


@pytest.mark.parametrize("through", ["pandas", "pyarrow", "nanoarrow"])
def test_dataset_comes_back_with_its_dimension(through: str) -> None:
    pytest.importorskip(through)
    x = rows().drop_vars("level")
    x["a"].attrs.clear()
    back = zc.convert(zc.convert(x, through), "xarray")
    assert back.identical(x)
    assert zc.shares_memory(back["a"], x["a"])


@pytest.mark.hazard("other-frameworks#datasets-of-tensors")
def test_dataset_of_several_dimensions_is_a_dict_of_arrays() -> None:
    torch = pytest.importorskip("torch")
    x = several()
    result = agrees(x, "torch", copy=False)
    assert {name: tuple(t.shape) for name, t in result.items()} == {
        "a": (2, 3),
        "b": (2,),
        "s": (),
        "c": (2,),
    }
    assert all(isinstance(t, torch.Tensor) for t in result.values())
    x["a"][0, 0] = 42.0
    assert result["a"][0, 0] == 42.0
    assert zc.convert(x, "numpy", columns=["b"])["b"].tolist() == [0, 1]
    assert list(zc.convert(x[["b"]], "numpy", index=True)) == ["b", "x"]
    for text in ("dimensions 'x', 'y'", "coordinates 'x', 'y'"):
        assert text in lost(x, "torch")
    nested = zc.convert({"data": [x]}, "numpy")
    assert nested["data"][0]["a"].shape == (2, 3)


@pytest.mark.hazard("other-frameworks#variables-along-different-dimensions")
@pytest.mark.parametrize("to", ["pandas", "pyarrow", "polars"])
def test_dataset_of_several_dimensions_is_not_a_table(to: str) -> None:
    pytest.importorskip(to)
    x = several()
    before = x.copy(deep=True)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(x, to)
    assert caught.value.code == "different-lengths"
    assert 'columns=["b", "c"]' in str(caught.value)
    assert list(zc.convert(x, to, columns=["b", "c"]).columns) if to != "pyarrow" else True
    assert x.identical(before)
    square = xr.Dataset({"a": ("x", np.ones(3)), "b": ("y", np.ones(3))})  # equal lengths, other rows
    assert not zc.explain(square, to).possible
    flat = xr.Dataset({"a": (("x", "y"), np.ones((2, 2)))})
    assert not zc.explain(flat, to).possible
    assert zc.convert(flat["a"], to) is not None
    with pytest.raises(zc.UnsupportedConversionError, match="dimension"):
        zc.convert(x, "numpy", layout="matrix")


@pytest.mark.parametrize("to", ["pandas", "polars", "pyarrow", "nanoarrow", "duckdb", "xarray"])
def test_the_fast_path_refuses_other_dimensions(to: str) -> None:
    """The route that a dataset of one dimension leaves refuses datasets of several, or of none."""
    pytest.importorskip(to)
    zc.convert(xr.Dataset({"a": ("x", np.ones(3))}), to)
    for shape in ((), (2, 2), (3, 2, 2)):
        dims = ("x", "y", "z")[: len(shape)]
        for x in (
            xr.Dataset({"a": (dims, np.ones(shape))}),
            xr.Dataset({"a": (dims, np.ones(shape)), "b": ("w", np.ones(3))}),
        ):
            assert zc.explain(x, to).possible == (to == "xarray")
            if to == "xarray":
                assert zc.convert(x, to) is x
                continue
            with pytest.raises(zc.UnsupportedConversionError) as caught:
                zc.convert(x, to)
            assert caught.value.code == "different-lengths"


def test_dataset_is_not_one_array() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=r"to_dataarray\(\)"):
        zc.view(rows())
    assert zc.view(rows()[["a"]].to_dataarray()).shape == (1, 3)
    assert zc.shares_memory(rows(), rows()) is False
    x = several()
    assert zc.shares_memory(x, x["a"])
    assert zc.convert(xr.Dataset(), "numpy") == {}


# -- to xarray ----------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "pyarrow", "tensorflow"])
def test_arrays_become_arrays_with_default_dimensions(to: str) -> None:
    pytest.importorskip(to)
    memory = np.arange(64, dtype="f4").reshape(4, 16)
    x = zc.convert(memory, to)
    result = agrees(x, "xarray")
    assert isinstance(result, xr.DataArray)
    assert result.dims == ("dim_0", "dim_1")
    assert result.name is None
    assert not result.coords
    assert result.values.tolist() == memory.tolist()
    assert not zc.shares_memory(x, zc.convert(x, "xarray", copy=True))


def test_write_through_the_result_changes_the_source() -> None:
    memory = np.arange(6.0)
    for _ in range(2):  # the slow path, then the fast path
        result = zc.convert(memory, "xarray")
        result[2] = 42.0
        assert memory[2] == 42.0
        memory[2] = 1.0
        assert result[2] == 1.0


def test_index_of_a_frame_becomes_a_coordinate() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]}, index=pd.Index([5, 6], name="k"))
    frame.attrs["title"] = "f"
    x = agrees(frame, "xarray", copy=False)
    assert (dict(x.sizes), x["k"].values.tolist(), x.attrs) == ({"k": 2}, [5, 6], {"title": "f"})
    assert x["a"].dims == ("k",)
    assert dict(zc.convert(frame, "xarray", index=False).sizes) == {"dim_0": 2}
    assert not zc.convert(frame.reset_index(drop=True), "xarray").coords
    unnamed = zc.convert(frame.rename_axis(None), "xarray")
    assert unnamed["dim_0"].values.tolist() == [5, 6]
    same = frame.rename_axis("a")  # the name of a column, too
    assert zc.convert(same, "xarray")["dim_0"].values.tolist() == [5, 6]


def test_nulls_text_and_categories_are_extension_arrays() -> None:
    table = pa.table({"n": [1, None], "s": ["u", None], "f": [1.5, 2.5], "t": pa.array([True, None])})
    x = agrees(table, "xarray", copy=False)
    assert isinstance(x["f"].data, np.ndarray)
    assert x["n"].data.isna().tolist() == [False, True]
    assert zc.convert(x, "pyarrow").select(["n", "s", "f", "t"]).equals(table)
    frame = pd.DataFrame(
        {
            "i": pd.array([1, None], "Int64"),
            "c": pd.Categorical(["u", "v"]),
            "z": pd.DatetimeIndex(DAYS[:2]).tz_localize("UTC"),
            "d": [pd.Timestamp("2020"), pd.NaT],
            "s": ["u", None],
        }
    )
    x = agrees(frame, "xarray", copy=False)
    assert x["d"].dtype.kind == "M"
    back = zc.convert(x, "pandas")
    for label in frame:
        assert back[label].isna().tolist() == frame[label].isna().tolist()
        assert back[label].dropna().tolist() == frame[label].dropna().tolist()


def test_dict_of_columns_and_tensors_is_a_dataset() -> None:
    columns = {"a": np.arange(3.0), "b": np.arange(6).reshape(3, 2)}
    x = agrees(columns, "xarray", copy=False)
    assert {name: x[name].dims for name in x} == {"a": ("dim_0",), "b": ("dim_0", "b_dim_1")}
    columns["a"][0] = 42.0
    assert x["a"][0] == 42.0
    masked = zc.Masked(np.arange(3), np.array([False, True, False]))
    assert agrees({"m": masked}, "xarray")["m"].data.isna().tolist() == [False, True, False]
    with pytest.raises(zc.UnsupportedConversionError, match="differ in length"):
        zc.convert({"a": np.ones(3), "b": np.ones(2)}, "xarray")
    assert "xarray.Dataset(x)" in "".join(zc.explain({"a": rows()["a"]}, "xarray").warnings)


@pytest.mark.hazard("other-frameworks#dates-in-days")
def test_days_become_seconds_with_a_reason() -> None:
    days = np.array(["2020-01-01", "1500-01-01", "NaT"], "M8[D]")
    plan, x = zc.explain(days, "xarray"), zc.convert(days, "xarray")
    assert not plan.zero_copy
    assert plan.reasons
    assert x.dtype == "M8[s]"
    np.testing.assert_array_equal(x.values, days)
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(days, "xarray", copy=False)


def test_duplicate_names_are_refused() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(zc.UnsupportedConversionError, match="several columns are called 'a'"):
        zc.convert(frame, "xarray")


def test_shared_memory_is_opened_with_labels() -> None:
    for x in (grid(), rows()["a"], rows()):
        shared = zc.share(x)
        result = zc.convert(shared, "numpy" if isinstance(x, xr.DataArray) else "xarray")
        if isinstance(x, xr.DataArray):
            assert result.tolist() == x.values.tolist()
        else:
            np.testing.assert_array_equal(result["a"], x["a"])


def test_forms_are_targets() -> None:
    x = np.arange(3.0)
    dataset = agrees(x, "xarray.Dataset", copy=False)
    assert list(dataset) == ["column_0"]
    matrix = zc.convert(np.ones((2, 2)), xr.Dataset)
    assert {name: matrix[name].dims for name in matrix} == {"column_0": ("dim_0",), "column_1": ("dim_0",)}
    arrays = zc.convert({"a": x, "b": np.ones((2, 2))}, xr.DataArray)
    assert all(isinstance(array, xr.DataArray) for array in arrays.values())
    assert zc.convert(rows(), xr.Dataset, copy=True).identical(rows())
    assert zc.convert(grid(), xr.DataArray, copy=True).identical(grid())
    assert "'y'" in "".join(zc.explain(grid(), "xarray.Dataset").warnings)


# -- lifetimes ----------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", "torch", "pandas", "pyarrow"])
def test_result_keeps_the_memory_and_frees_it(to: str) -> None:
    pytest.importorskip(to)
    memory = np.arange(1000.0)
    freed = weakref.ref(memory)
    x = xr.DataArray(memory, dims="t")
    result = zc.convert(x, to, copy=False)
    del memory, x
    gc.collect()
    assert float(zc.convert(result, "numpy")[999]) == 999.0
    del result
    gc.collect()
    assert freed() is None


def test_dataset_keeps_the_memory_of_a_table() -> None:
    table = pa.table({"a": np.arange(1000.0)})
    x = zc.convert(table, "xarray", copy=False)
    del table
    gc.collect()
    assert float(x["a"][999]) == 999.0


# -- explain and convert agree, for every object, target and option ------------------------------


def objects() -> dict[str, Any]:
    """Return objects of xarray, pandas and NumPy: numbers, dates, text and Python objects."""
    text, python = np.array(["u", "v"]), np.array(["u", "v"], object)
    frozen = python.copy()
    frozen.flags.writeable = False
    labelled = xr.DataArray(text, dims="t", coords={"t": ["p", "q"]}, name="n")
    columns = {"a": ("t", python), "b": ("t", np.arange(2))}
    return {
        "grid": grid(),
        "plain grid": xr.DataArray(np.ones((2, 3))),
        "cube": xr.DataArray(np.ones((2, 3, 2))),
        "scalar": xr.DataArray(1.5),
        "column": rows()["a"],
        "plain column": xr.DataArray(np.arange(3.0), dims="t"),
        "variable": grid().variable,
        "rows": rows(),
        "several": several(),
        "nothing": xr.Dataset(),
        "dates": xr.DataArray(DAYS, dims="t"),
        "text": labelled,
        "objects": labelled.astype(object),
        "objects that are read-only": xr.DataArray(xr.Variable("t", frozen, fastpath=True)),
        "grid of objects": xr.DataArray(np.array([["u", "v"]], object)),
        "coordinate of text": labelled["t"],
        "variable of text": labelled["t"].variable,
        "numbers with labels of text": xr.DataArray(np.ones(2), dims="t", coords={"t": ["p", "q"]}),
        "dataset of objects": xr.Dataset(columns, coords={"t": ["p", "q"]}),
        "dataset of extensions": xr.Dataset({"a": ("t", pd.array(["u", "v"], dtype="string[pyarrow]"))}),
        "ndarray of objects": python,
        "ndarray of text": text,
        "series of objects": pd.Series(python, dtype=object),
        "series of text": pd.Series(["u", "v"], dtype="string[python]"),
        "frame of objects": pd.DataFrame({"a": python, "b": [1, 2]}),
    }


EVERY_OPTION: list[dict[str, Any]] = [
    *({}, {"index": True}, {"index": False}, {"index": True, "copy": True}),
    *({"writable": True}, {"writable": False}, {"copy": True}, {"copy": False}, {"device": "cpu"}),
    *({"writable": True, "copy": False}, {"encode": True}, {"layout": "columns"}, {"validate": "full"}),
    *({"names": ["a"]}, {"leaves": "keep"}, {"dtype": "float32"}, {"index": True, "layout": "columns"}),
    {"index": True, "writable": True},
]
KNOWN = [f for f in registry.known() if f.installed() and "cpu" in f.device_kinds]
TARGETS = [f.name for f in KNOWN if f.name != "mxnet"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("to", [*TARGETS, "xarray.DataArray", "xarray.Dataset"])
@pytest.mark.parametrize("kind", objects())
def test_explain_agrees_for_every_object_and_option(kind: str, to: str) -> None:
    x = objects()[kind]
    first = list(objects()).index(kind) + [*TARGETS, "xarray.DataArray", "xarray.Dataset"].index(to)
    for (options,) in sampled(8, EVERY_OPTION, first=first):
        oracle.agrees(x, to, **options)


def test_grid_with_its_index_is_a_dict_of_arrays_for_the_form_of_arrays() -> None:
    x = grid()
    result = zc.convert(x, "xarray.DataArray", index=True)
    assert list(result) == ["a", "b", "c", "y"]
    assert result["b"].values.tolist() == [1.0, 4.0]
    assert result["y"].values.tolist() == [10, 20]
    x[1, 1] = 42.0
    assert result["b"][1] == 42.0


def test_writable_copies_objects_that_are_read_only() -> None:
    frozen = np.array(["u", "v"], object)
    frozen.flags.writeable = False
    x = xr.DataArray(xr.Variable("t", frozen, fastpath=True))
    result = zc.convert(x, "xarray", writable=True)
    assert result.data.flags.writeable
    assert not np.shares_memory(result.data, frozen)
    result[0] = "w"
    assert x.values.tolist() == ["u", "v"]
    with pytest.raises(zc.CopyRequiredError):
        zc.convert(x, "xarray", writable=True, copy=False)
    open_to_writes = xr.DataArray(xr.Variable("t", frozen.copy(), fastpath=True))
    assert zc.convert(open_to_writes, "xarray", writable=True, copy=False).data is open_to_writes.data


def test_pandas_does_not_copy_the_text_of_an_index() -> None:
    """Hazard: a deep copy of xarray aliases text that pandas holds in Arrow's buffers; copy=True does not."""
    x = xr.DataArray(np.ones(2), dims="t", coords={"t": ("t", ["u", "v"], {"units": "k"})})
    if x.indexes["t"].dtype == object:
        pytest.skip("this pandas has no text in Arrow's memory")
    assert zc.shares_memory(x.indexes["t"], x.copy(deep=True).indexes["t"])
    for source in (x, x["t"], x.to_dataset(name="n"), x["t"].variable):
        copy = zc.convert(source, "xarray", copy=True)
        assert copy.identical(source)
        assert not zc.shares_memory(source, copy)


@pytest.mark.parametrize("target", ["pandas", "polars", "pyarrow", "numpy"])
@pytest.mark.parametrize("other", [3.0, ("s", [1, 2, 3]), (("s", "u"), [[1, 2, 3]])])
@pytest.mark.parametrize("options", [{}, {"index": True}, {"index": False}], ids=str)
def test_selected_variables_have_rows_of_their_own(target: str, other: object, options: dict) -> None:
    pytest.importorskip(target)
    x = xr.Dataset({"a": other, "b": ("t", [1.0, 2.0])})
    assert zc.explain(x, target, columns=["b"], **options).possible
    result = zc.convert(x, target, columns=["b"], **options)
    assert np.asarray(result["b"]).tolist() == [1.0, 2.0]
