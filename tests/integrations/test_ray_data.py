"""batch(): functions of any framework in Ray Data's map_batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.ray_cluster import local_ray

import zerocopy as zc
import zerocopy.integrations.ray
from zerocopy.integrations.ray import batch

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
TENSORS = ["torch", "jax", "tensorflow"]
TABLES = ["polars", "pandas", "pyarrow"]

# Ray Data warns about its own defaults.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`use_\w+` is deprecated:DeprecationWarning:ray\.data\.context"
)


def _columns() -> dict[str, Any]:
    columns = {"x": np.arange(6.0), "y": np.arange(12, dtype="i4").reshape(6, 2)}
    for column in columns.values():
        column.flags.writeable = False  # as Ray Data's are
    return columns


# -- without Ray --------------------------------------------------------------------------


@pytest.mark.parametrize("to", [*TENSORS, "numpy"])
def test_columns_become_arrays_and_results_numpy(to: str) -> None:
    pytest.importorskip(to)

    def compute(columns: dict[str, Any], factor: int) -> dict[str, Any]:
        assert {zc.view(column).shape for column in columns.values()} == {(6,), (6, 2)}
        assert all(type(column).__module__.startswith(to[:3]) for column in columns.values())
        return {"z": columns["x"] * factor, "y": columns["y"]}

    result = batch(compute, to=to)(_columns(), factor=3)
    assert {type(value) for value in result.values()} == {np.ndarray}
    assert result["z"].tolist() == [0, 3, 6, 9, 12, 15]
    assert np.array_equal(result["y"], _columns()["y"])


@pytest.mark.parametrize("make", [dict, pa.table, pd.DataFrame], ids=["numpy", "pyarrow", "pandas"])
@pytest.mark.parametrize("to", [*TENSORS, *TABLES])
def test_every_format_into_every_framework(make: Any, to: str) -> None:
    pytest.importorskip(to)
    columns = make({"x": np.arange(6.0), "i": np.arange(6)})
    result = batch(lambda values: values, to=to)(columns)
    if to in TABLES:
        assert isinstance(result, pa.Table)
        assert result.to_pydict() == {"x": [0.0, 1, 2, 3, 4, 5], "i": [0, 1, 2, 3, 4, 5]}
    else:
        assert {name: value.tolist() for name, value in result.items()}["i"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.hazard("training#writes-to-the-store-of-ray")
@pytest.mark.parametrize("make", [dict, pa.table, pd.DataFrame], ids=["numpy", "pyarrow", "pandas"])
def test_a_write_to_tensors_does_not_change_the_batch(make: Any) -> None:
    pytest.importorskip("torch")
    columns = _columns() if make is dict else make({"x": np.arange(6.0)})

    def write(tensors: Any) -> Any:
        for tensor in tensors.values():
            tensor[:] = 9
        return tensors

    result = batch(write, to="torch")(columns)
    assert set(result["x"].tolist()) == {9}
    assert np.asarray(columns["x"]).tolist() == [0, 1, 2, 3, 4, 5]


def test_writable_columns_are_aliased() -> None:
    """map_batches(..., zero_copy_batch=False) gives copies for the function to write to."""
    pytest.importorskip("torch")
    columns = {"x": np.arange(6.0)}
    assert np.shares_memory(batch(lambda tensors: tensors, to="torch")(columns)["x"], columns["x"])


def test_options_are_those_of_convert() -> None:
    pytest.importorskip("torch")
    result = batch(lambda tensors: tensors, to="torch", dtype="float32")(_columns())
    assert {value.dtype for value in result.values()} == {np.dtype("f4")}
    table = pa.table({"x": [1.0, None], "text": ["a", "b"]})
    result = batch(lambda tensors: tensors, to="torch", columns=["x"], nulls=0.0)(table)
    assert result["x"].tolist() == [1, 0]


def test_tables_and_columns_of_tables_are_returned_as_arrow() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": ["x", None]})
    assert batch(lambda _: frame, to="numpy")(_columns()).to_pydict() == {"a": ["x", None]}
    result = batch(lambda _: {"a": frame["a"], "b": np.arange(2)}, to="numpy")(_columns())
    assert result.to_pydict() == {"a": ["x", None], "b": [0, 1]}


def test_lists_in_results_are_kept() -> None:
    assert batch(lambda _: {"a": ["x", "y"]}, to="numpy")(_columns()) == {"a": ["x", "y"]}


def test_generators_yield_batches() -> None:
    pytest.importorskip("torch")

    def halves(columns: Any) -> Iterator[Any]:
        yield {"x": columns["x"][:3]}
        yield {"x": columns["x"][3:]}

    results = batch(halves, to="torch")(_columns())
    assert [result["x"].tolist() for result in results] == [[0, 1, 2], [3, 4, 5]]


class Scale:
    def __init__(self, factor: float, to_fail: bool = False) -> None:
        self.factor = factor

    def __call__(self, columns: Any) -> Any:
        return {"x": columns["x"] * self.factor}


def test_a_class_stays_a_class() -> None:
    pytest.importorskip("torch")
    wrapped = batch(Scale, to="torch")
    assert isinstance(wrapped, type)
    assert wrapped.__name__ == "Scale"
    assert wrapped(2.0)(_columns())["x"].tolist() == [0, 2, 4, 6, 8, 10]
    assert batch(Scale(3.0), to="torch")(_columns())["x"].tolist() == [0, 3, 6, 9, 12, 15]


def test_it_can_be_pickled() -> None:
    pytest.importorskip("torch")
    cloudpickle = pytest.importorskip("ray.cloudpickle")
    for made in (batch(lambda columns: {"x": columns["x"] + 1}, "torch"), batch(Scale, "torch")):
        loaded = pickle.loads(cloudpickle.dumps(made))
        loaded = loaded(1.0) if isinstance(loaded, type) else loaded
        assert len(loaded(_columns())["x"]) == 6


# -- errors -------------------------------------------------------------------------------


def test_an_unknown_framework_is_refused_at_once() -> None:
    with pytest.raises(zc.errors.UnknownFrameworkError, match="torch"):
        batch(lambda columns: columns, to="troch")


def test_fn_must_be_synchronous_and_callable() -> None:
    async def later(columns: Any) -> Any:
        return columns

    class Later:
        async def __call__(self, columns: Any) -> Any:
            yield columns

    for fn in (later, Later, Later()):
        with pytest.raises(TypeError, match="asynchronous"):
            batch(fn, "numpy")
    with pytest.raises(TypeError, match="must be a function or a class"):
        batch(3, "numpy")


def test_columns_of_objects_are_refused_by_name() -> None:
    pytest.importorskip("torch")
    columns = {"x": np.arange(2.0), "texts": np.array(["a", "b"], object)}
    for to in ("torch", "jax"):
        with pytest.raises(zc.UnsupportedConversionError, match="texts"):
            batch(lambda tensors: tensors, to=to)(columns)


def test_a_result_without_names_is_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError, match=r"return \{\"name\": array\}") as info:
        batch(lambda columns: columns["x"], to="numpy")(_columns())
    assert info.value.code == "container-type"


# -- with Ray -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> Iterator[Any]:
    module = pytest.importorskip("ray.data")
    with local_ray(runtime_env=zerocopy.integrations.ray.runtime_env()):
        context = module.DataContext.get_current()
        context.enable_progress_bars = False
        yield module


@pytest.mark.parametrize("batch_format", ["numpy", "pyarrow", "pandas"])
@pytest.mark.parametrize("to", ["torch", "polars", pytest.param("jax", marks=pytest.mark.full)])
def test_map_batches(data, to: str, batch_format: str) -> None:
    pytest.importorskip(to)

    def double(columns: Any) -> Any:
        if to == "polars":
            return columns.with_columns(columns["x"] * 2)
        return {"x": columns["x"] * 2, "y": columns["y"]}

    table = pa.table({"x": np.arange(1000.0), "y": np.arange(1000, dtype="i4")})
    dataset = data.from_arrow(table).map_batches(
        batch(double, to=to, **({} if to != "jax" else {"dtype": "float32"})),
        batch_format=batch_format,
        batch_size=300,
    )
    rows = dataset.to_pandas().sort_values("y")
    assert rows["x"].tolist() == (np.arange(1000.0) * 2).tolist()


def test_map_batches_with_actors_and_arrays_in_cells(data) -> None:
    pytest.importorskip("torch")

    class Sum:
        def __init__(self, start: int) -> None:
            self.start = start

        def __call__(self, columns: Any) -> Any:
            columns["data"][:] += self.start  # the batch is private
            yield {"sum": columns["data"].sum(dim=(1, 2))}

    dataset = data.range_tensor(100, shape=(2, 2)).map_batches(
        batch(Sum, to="torch"), fn_constructor_args=(1,), concurrency=1
    )
    assert sorted(row["sum"] for row in dataset.take_all()) == [4 * i + 4 for i in range(100)]


def test_an_error_in_fn_names_its_cause(data) -> None:
    import ray

    def fail(columns: Any) -> Any:
        raise ZeroDivisionError("in fn")

    with pytest.raises(ray.exceptions.RayTaskError, match="in fn"):
        data.range(10).map_batches(batch(fail, to="numpy")).take_all()
