"""``accepts``: which arguments are converted, what the caller gets back, and the errors."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import pickle
import re
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.frameworks import HOST

import zerocopy as zc
from zerocopy import registry
from zerocopy.device import Device
from zerocopy.functions import conversions

torch = pytest.importorskip("torch")


@zc.accepts("torch")
def doubled(x: Any, factor: float = 2.0) -> Any:
    assert isinstance(x, torch.Tensor)
    return x * factor


@zc.accepts("torch")
def same(*args: Any, **named: Any) -> Any:
    return (args, named)


def kinds(*objects: Any) -> list[str]:
    return [type(each).__name__ for each in objects]


# -- the framework of the caller ----------------------------------------------------------


@pytest.mark.parametrize("caller", ["numpy", "torch", "jax", "tensorflow", "polars", "pandas", "pyarrow"])
def test_results_are_of_the_callers_framework(caller: str) -> None:
    pytest.importorskip(caller)
    x = zc.convert(np.arange(4, dtype=np.float32), caller)
    for _ in range(3):  # by the slow path, then by routes
        result = doubled(x)
        assert type(result) is type(x)
        assert zc.convert(result, "numpy").tolist() == [0, 2, 4, 6]
        assert type(doubled(x, factor=3)) is type(x)
        assert type(doubled(x=x)) is type(x)


def test_arguments_and_results_alias() -> None:
    @zc.accepts("torch")
    def tail(x: Any) -> Any:
        x[0] = 5
        return x[1:]

    x = np.zeros(3)
    for _ in range(3):
        result = tail(x)
        assert zc.view(result).ptr == zc.view(x).ptr + 8
        result[0] = 7
        assert x.tolist() == [5, 7, 0]


def test_the_first_array_decides_positional_ones_first() -> None:
    x, t = np.zeros(2), torch.zeros(2)
    for _ in range(3):
        args, _ = same(1, "a", None, t, x)
        assert kinds(*args) == ["int", "str", "NoneType", "Tensor", "Tensor"]
        args, named = same(1, x, t=t)
        assert kinds(*args, *named.values()) == ["int", "ndarray", "ndarray"]
        args, named = same(1, b=t, a=x)
        assert kinds(*args, *named.values()) == ["int", "Tensor", "Tensor"]


def test_results_are_unchanged_without_arrays_or_with_native_ones() -> None:
    marker = object()

    @zc.accepts("torch")
    def constant(x: Any = None) -> Any:
        return marker

    for _ in range(3):
        assert constant() is constant(3) is constant(torch.zeros(1)) is marker


@pytest.mark.parametrize("value", [None, True, 3, 1.5, 2j, "text", b"bytes"])
def test_plain_results_pass(value: Any) -> None:
    @zc.accepts("torch")
    def constant(x: Any) -> Any:
        return value

    for _ in range(3):
        assert constant(np.zeros(2)) is value


@pytest.mark.parametrize("caller", ["polars", "pandas", "pyarrow"])
def test_results_without_dimensions_are_unchanged_for_tables_and_columns(caller: str) -> None:
    pytest.importorskip(caller)
    x = np.array([1.0, 3.0])
    table = zc.convert({"a": x}, "pyarrow.Table" if caller == "pyarrow" else caller)
    for array in (zc.convert(x, caller), table):

        @zc.accepts("torch", layout="matrix")
        def total(x: Any) -> Any:
            return x.sum()

        @zc.accepts("numpy", layout="matrix")
        def parts(x: Any) -> Any:
            return x, {"mean": x.mean(), "0-d": np.asarray(2)}

        for _ in range(2):  # by the slow path, then by routes
            assert type(total(array)) is torch.Tensor
            _, numbers = parts(array)
            assert kinds(*numbers.values()) == ["float64", "ndarray"]


def test_results_without_dimensions_are_converted_for_arrays() -> None:
    xarray = pytest.importorskip("xarray")
    total = zc.accepts("torch")(torch.sum)
    assert kinds(total(np.ones(2)), total(xarray.DataArray(np.ones(2)))) == ["ndarray", "DataArray"]


def test_returns_names_the_framework_of_all_results() -> None:
    to_numpy = zc.accepts("torch", returns="numpy")(lambda *x: torch.ones(2))
    unchanged = zc.accepts("torch", returns=None)(lambda *x: torch.ones(2))
    for _ in range(3):
        for x in ((), (np.zeros(2),), (torch.zeros(2),), (1,)):
            assert isinstance(to_numpy(*x), np.ndarray)
            assert isinstance(unchanged(*x), torch.Tensor)


def test_an_object_of_no_framework_gets_the_functions_own_results() -> None:
    for _ in range(3):
        args, _ = same(memoryview(bytearray(8)))
        assert kinds(*args) == ["Tensor"]


# -- kinds of arguments -------------------------------------------------------------------


@dataclasses.dataclass
class Batch:
    x: Any
    name: str


class Pair(NamedTuple):
    left: Any
    right: Any


def test_containers_are_converted_leaf_by_leaf() -> None:
    seen: list[Any] = []

    @zc.accepts("torch")
    def record(tree: Any) -> Any:
        seen.append(tree)
        return tree

    x = np.arange(3.0)
    tree = {"a": [x, None, "text", b"raw"], "b": Batch(x, "n"), "c": Pair(x, 2)}
    result = record(tree)
    assert kinds(seen[0]["a"][0], seen[0]["b"].x, seen[0]["c"].left) == ["Tensor"] * 3
    assert seen[0]["a"][1:] == [None, "text", b"raw"]
    assert isinstance(seen[0]["c"], Pair)
    assert kinds(result["a"][0], result["b"].x, result["c"].left) == ["ndarray"] * 3
    assert result["b"].name == "n"
    assert zc.shares_memory(result["a"][0], x)
    assert isinstance(tree["a"][0], np.ndarray)


TABLES = [name for name in HOST if registry.by_name(name).tables]


@pytest.mark.parametrize("target", TABLES)
def test_a_dict_of_columns_is_one_table_as_convert_gives(target: str) -> None:
    pytest.importorskip(target)
    columns = {"a": np.arange(3.0), "b": [1, 2, 3]}
    keep = zc.accepts(target, returns=None)(lambda data, *rest, **named: data)
    expected = zc.convert(columns, target)
    for made in (keep(columns), keep(columns), keep(data=columns), keep(types.MappingProxyType(columns))):
        assert type(made) is type(expected)
        assert zc.convert(made, "pyarrow").to_pydict() == {"a": [0.0, 1.0, 2.0], "b": [1, 2, 3]}
    plan = keep.explain(columns)["data"]
    assert (plan.zero_copy, plan.steps) == ((right := zc.explain(columns, target)).zero_copy, right.steps)


@pytest.mark.parametrize("target", TABLES)
@pytest.mark.parametrize(
    "value",
    [
        {"a": np.arange(3.0), "mode": "fast"},
        {"a": np.arange(3.0), "b": np.arange(2.0)},
        {"a": {"b": np.arange(3.0)}},
        [np.arange(3.0), ["x"]],
    ],
    ids=["a word", "lengths", "nested", "list"],
)
def test_containers_that_are_not_tables_stay_containers(target: str, value: Any) -> None:
    pytest.importorskip(target)
    made = zc.accepts(target, returns=None)(lambda data: data)(value)
    assert type(made) is type(value)
    assert len(made) == len(value)


def test_a_dict_of_text_and_arrays_is_a_frame_and_its_result_is_a_dict() -> None:
    pl = pytest.importorskip("polars")
    columns = {"a": np.arange(3.0), "b": ["x", "y", "z"]}
    seen: list[Any] = []

    @zc.accepts("polars")
    def total(df: Any) -> Any:
        seen.append(df)
        return {"a": df["a"], "sum": df["a"].sum()}

    result = total(columns)
    assert seen[0].equals(pl.DataFrame(columns))
    assert isinstance(result["a"], np.ndarray)
    options = {"b": ["x"]}
    assert zc.accepts("polars", returns=None)(lambda o: o)(options) is options


def test_arguments_without_arrays_are_passed_themselves() -> None:
    shape, options, function, dtype = [2, 3], {"a": 1, "b": b"raw"}, len, torch.float32
    for _ in range(2):
        args, named = same(np.zeros(2), shape, function, dtype, b"raw", options=options)
        assert args[1] is not shape  # the result is a new container
        received = zc.accepts("torch", returns=None)(lambda *a, **k: (a, k))
        args, named = received(np.zeros(2), shape, function, dtype, b"raw", options=options)
        assert args[1] is shape
        assert args[2] is function
        assert args[3] is dtype
        assert args[4] == b"raw"
        assert named["options"] is options


def test_arguments_selects_parameters() -> None:
    @zc.accepts("torch", arguments=["x", "more"], returns=None)
    def f(index: Any, x: Any, *rest: Any, key: Any = None, **more: Any) -> list[str]:
        return kinds(index, x, *rest, key, *more.values())

    a = np.zeros(1)
    for _ in range(3):
        assert f(a, a) == ["ndarray", "Tensor", "NoneType"]
        assert f(a, a, a, key=a, other=a) == ["ndarray", "Tensor", "ndarray", "ndarray", "Tensor"]
        assert f(x=a, index=a) == ["ndarray", "Tensor", "NoneType"]
    g = zc.accepts("torch", arguments="x", returns=None)(lambda i, x, k=None: kinds(i, x, k))
    for _ in range(3):
        assert g(a, a, a) == ["ndarray", "Tensor", "ndarray"]
        assert g(a, k=a, x=a) == ["ndarray", "Tensor", "ndarray"]
    with pytest.raises(ValueError, match="has no parameter 'y'"):
        zc.accepts("torch", arguments="y")(lambda x: x)


def test_defaults_are_not_converted() -> None:
    default = np.zeros(2)
    f = zc.accepts("torch", returns=None)(lambda x, y=default: y)
    assert f(np.zeros(2)) is default


def test_options_of_convert_apply_to_arguments() -> None:
    x = np.arange(3)
    cast = zc.accepts("torch", dtype="float32", copy=True, returns=None)(lambda x: x)
    for _ in range(3):
        assert cast(x).dtype is torch.float32
        assert not zc.shares_memory(cast(x), x)
    reversed_array = np.arange(6.0).reshape(2, 3)[:, ::-1]
    strict = zc.accepts("torch", copy=False)(lambda x: x)
    with pytest.raises(zc.CopyRequiredError, match=r"argument 'x' of .*<lambda>\(\) \(numpy.ndarray "):
        strict(reversed_array)
    with pytest.raises(TypeError, match="unexpected keyword argument 'coyp'"):
        zc.accepts("torch", coyp=True)
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.accepts("troch")
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.accepts("torch", returns="nunpy")


# -- kinds of functions -------------------------------------------------------------------


class Model:
    @zc.accepts("torch")
    def __init__(self, weights: Any) -> None:
        self.weights = weights

    @zc.accepts("torch")
    def __call__(self, x: Any) -> Any:
        return x * self.weights

    @classmethod
    @zc.accepts("torch")
    def inner(cls, x: Any) -> Any:
        return x

    @zc.accepts("torch")
    @classmethod
    def outer(cls, x: Any) -> Any:
        return x

    @zc.accepts("torch")
    @staticmethod
    def static(x: Any) -> Any:
        return x


def test_methods() -> None:
    x = np.arange(3.0)
    for _ in range(3):
        model = Model(x)
        assert isinstance(model.weights, torch.Tensor)
        assert isinstance(model(x), np.ndarray)
        for method in (Model.inner, Model.outer, Model.static, model.static, model.inner):
            assert isinstance(method(x), np.ndarray)
            assert zc.shares_memory(method(x), x)


def test_a_dataclass_is_not_converted_as_self() -> None:
    @dataclasses.dataclass
    class Layer:
        weights: Any

        @zc.accepts("torch", returns=None)
        def owner(self, x: Any) -> Any:
            return self

    layer = Layer(np.zeros(2))
    assert layer.owner(np.zeros(2)) is layer


def test_other_callables() -> None:
    x = np.zeros((2, 2))
    for function in (torch.relu, torch.nn.ReLU(), functools.partial(torch.sum, dim=0)):
        assert isinstance(zc.accepts("torch")(function)(x), np.ndarray)

    class Asynchronous:
        async def __call__(self, x: Any) -> Any:
            return x

    assert inspect.iscoroutinefunction(zc.accepts("torch")(Asynchronous()))
    with pytest.raises(ValueError, match="are not known"):
        zc.accepts("torch", arguments="x")(torch.relu)
    with pytest.raises(TypeError, match="decorate its __init__"):
        zc.accepts("torch")(Model)
    with pytest.raises(TypeError, match="not callable"):
        zc.accepts("torch")(3)


def test_async_functions() -> None:
    @zc.accepts("torch")
    async def f(x: Any) -> Any:
        await asyncio.sleep(0)
        return x + 1

    assert inspect.iscoroutinefunction(f)
    assert isinstance(asyncio.run(f(np.zeros(2))), np.ndarray)


def test_generators_pass_on_send_throw_close_and_return() -> None:
    events: list[Any] = []

    @zc.accepts("torch")
    def f(x: Any) -> Any:
        try:
            sent = yield x
            events.append(type(sent).__name__)
            try:
                yield x + 1
            except KeyError:
                yield "caught"
            return x
        finally:
            events.append("closed")

    assert inspect.isgeneratorfunction(f)
    x = np.zeros(2)
    items = f(x)
    assert zc.shares_memory(next(items), x)
    assert isinstance(items.send(x), np.ndarray)
    assert items.throw(KeyError("k")) == "caught"
    with pytest.raises(StopIteration) as stop:
        next(items)
    assert isinstance(stop.value.value, np.ndarray)
    assert events == ["Tensor", "closed"]
    items = f(x)
    next(items)
    items.close()
    assert events[-1] == "closed"
    assert kinds(*f(x)) == ["ndarray", "ndarray"]
    events.clear()

    @zc.accepts("torch")
    def bad(x: Any) -> Any:
        try:
            yield object()
        finally:
            events.append("closed")

    with pytest.raises(zc.UnsupportedConversionError, match="result of"):
        next(bad(x))
    assert events == ["closed"]


def test_async_generators() -> None:
    events: list[str] = []

    @zc.accepts("torch")
    async def f(x: Any) -> Any:
        try:
            sent = yield x
            events.append(type(sent).__name__)
            try:
                yield x
            except KeyError:
                yield "caught"
        finally:
            events.append("closed")

    async def main() -> None:
        x = np.zeros(2)
        items = f(x)
        assert isinstance(await anext(items), np.ndarray)
        assert isinstance(await items.asend(x), np.ndarray)
        assert await items.athrow(KeyError("k")) == "caught"
        await items.aclose()
        assert events == ["Tensor", "closed"]
        assert kinds(*[item async for item in f(x)]) == ["ndarray", "ndarray"]

    assert inspect.isasyncgenfunction(f)
    asyncio.run(main())


def test_errors_of_results_are_not_thrown_into_generators() -> None:
    """A generator that catches errors must not catch the error that its result cannot be converted."""
    seen: list[BaseException] = []

    @zc.accepts("torch")
    def f(x: Any) -> Any:
        try:
            yield object()
        except Exception as error:  # noqa: BLE001
            seen.append(error)
        yield x

    @zc.accepts("torch")
    async def g(x: Any) -> Any:
        try:
            yield object()
        except Exception as error:  # noqa: BLE001
            seen.append(error)
        yield x

    async def main() -> None:
        async for _ in g(np.zeros(2)):
            pass

    with pytest.raises(zc.UnsupportedConversionError, match="result of"):
        list(f(np.zeros(2)))
    with pytest.raises(zc.UnsupportedConversionError, match="result of"):
        asyncio.run(main())
    assert seen == []


def test_an_attribute_func_does_not_change_the_kind_of_a_function() -> None:
    """A class with an attribute `func`, such as a registered task, is not a partial."""

    class Task:
        def __init__(self) -> None:
            self.func = self.items

        def items(self, x: Any) -> Any:
            yield x

        def __call__(self, x: Any) -> Any:
            return x + 1

    assert isinstance(zc.accepts("torch")(Task())(np.zeros(2)), np.ndarray)
    items = zc.accepts("torch")(functools.partial(Task().items))(np.zeros(2))
    assert kinds(*items) == ["ndarray"]


def test_the_decorated_function_is_like_the_function() -> None:
    assert doubled.__wrapped__(torch.ones(1)).item() == 2  # type: ignore[attr-defined]
    assert doubled.__name__ == "doubled"
    assert list(inspect.signature(doubled).parameters) == ["x", "factor"]
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def test_cloudpickle_sends_a_decorated_closure() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    factor = 3
    f = zc.accepts("torch")(lambda x: x * factor)
    f(np.ones(2))
    received = pickle.loads(cloudpickle.dumps(f))
    for _ in range(3):
        assert received(np.ones(2)).tolist() == [3, 3]


def test_routes_that_are_dropped_are_made_again() -> None:
    x = np.zeros(2)
    for _ in range(3):
        doubled(x)
    zc.register(registry.by_name("numpy"))
    for _ in range(3):
        assert isinstance(doubled(x), np.ndarray)


def test_explain() -> None:
    x = np.zeros((4, 2))
    plans = same.explain(1, x, [x, 1], key=x[:, ::-1])  # type: ignore[attr-defined]
    assert list(plans) == ["args[1]", "args[2]", "key"]
    assert [plan.zero_copy for plan in plans.values()] == [True, True, False]


# -- errors -------------------------------------------------------------------------------


def test_an_argument_that_cannot_be_converted_is_named_before_the_function_runs() -> None:
    ran: list[int] = []

    @zc.accepts("torch")
    def f(x: Any, *rest: Any, **more: Any) -> None:
        ran.append(1)

    bad = np.array(["text"])
    for args, named, name in (((bad,), {}, "x"), ((1, 2, bad), {}, "rest[1]"), ((1,), {"k": [bad]}, "k")):
        with pytest.raises(zc.ZeroCopyError) as raised:
            f(*args, **named)
        assert str(raised.value).startswith(f"argument {name!r} of ")
        assert raised.value.remedy
    assert not ran


def test_a_result_that_is_not_an_array_is_refused() -> None:
    class Fitted:
        pass

    @zc.accepts("torch")
    def fit(x: Any) -> Any:
        return Fitted()

    for _ in range(2):
        with pytest.raises(zc.UnsupportedConversionError, match=r"result of .*fit\(\): .*Fitted") as raised:
            fit(np.zeros(2))
        assert raised.value.code == "result-not-an-array"
        assert "@zc.accepts('torch', returns=None)" in raised.value.remedy
    fixed = zc.accepts("torch", returns=None)(fit.__wrapped__)
    assert isinstance(fixed(np.zeros(2)), Fitted)


def test_a_result_that_the_caller_cannot_hold_is_refused() -> None:
    f = zc.accepts("torch")(lambda x: x.requires_grad_())
    for _ in range(2):
        with pytest.raises(zc.ZeroCopyError, match=r"result of .*<lambda>\(\) \(torch"):
            f(np.zeros(2))


def test_errors_of_the_function_are_its_own() -> None:
    error = zc.UnsupportedConversionError("inner", "why")

    @zc.accepts("torch")
    def f(x: Any) -> Any:
        raise error

    for _ in range(3):
        with pytest.raises(zc.UnsupportedConversionError) as raised:
            f(np.zeros(2))
        assert raised.value is error
        assert raised.value.asked == "inner"
        assert raised.value.__context__ is None


def test_errors_name_the_function_and_the_argument_not_convert() -> None:
    """The caller of the function did not call ``convert``."""

    @zc.accepts("torch", copy=False)
    def f(x: Any, *, y: Any = None) -> Any:
        return torch.ones(2)

    backwards = np.arange(3.0)[::-1]
    for call, place in (
        (lambda: f(backwards), "argument 'x' of "),
        (lambda: f(np.zeros(2), y=[backwards]), "argument 'y' of "),
    ):
        with pytest.raises(zc.CopyRequiredError) as raised:
            call()
        assert raised.value.asked.startswith(place)
        assert raised.value.asked.endswith("f() (numpy.ndarray float64 (3,), to='torch', copy=False)")

    @zc.accepts("torch", returns="numpy")
    def g(x: Any) -> Any:
        return x.to_sparse()

    with pytest.raises(zc.UnsupportedConversionError) as refused:
        g(np.ones(2))
    assert re.search(r"^result of .*g\(\) \(torch", refused.value.asked)


def test_a_container_that_holds_itself_is_refused_by_name() -> None:
    cyclic: list[Any] = [np.zeros(1)]
    cyclic.append(cyclic)
    with pytest.raises(zc.UnsupportedConversionError, match=r"argument 'x' of doubled\(\)"):
        doubled(cyclic)


# -- devices ------------------------------------------------------------------------------


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a dict from the `id` of an array to the device on which it seems to lie."""
    table: dict[int, Device] = {}
    real = conversions._device_of
    monkeypatch.setattr(conversions, "_device_of", lambda array: table.get(id(array)) or real(array))
    return table


def test_arguments_on_several_devices_are_refused(devices: Any) -> None:
    here, there = torch.zeros(2), torch.zeros(2)
    devices[id(there)] = Device(2, 1)
    f = zc.accepts("torch", returns=None)(lambda x, y: (x, y))
    with pytest.raises(zc.DeviceError) as raised:
        f(here, [there])
    assert "argument 'x' is on cpu, and argument 'y[0]' on cuda:1" in str(raised.value)
    assert "@zc.accepts('torch', device='cpu')" in raised.value.remedy
    assert raised.value.code == "several-devices"
    number = np.array(2.0)  # 0-d arrays on the host work with arrays of each device
    assert f(there, number)[0] is there
    assert f(there, here[0])[0] is there
    moved = zc.accepts("torch", device="cpu", returns=None)(lambda x, y: (x, y))
    assert moved(here, [there])[0] is here


def test_results_return_to_the_device_that_the_argument_was_moved_from(devices: Any) -> None:
    there = torch.zeros(2)
    devices[id(there)] = Device(2, 0)
    f = zc.accepts("torch", device="cpu")(lambda x: x)
    with pytest.raises(zc.ZeroCopyError, match=r"result of .*device='cuda:0'"):
        f(there)  # there is no such device
    devices[id(there)] = Device(1, 0)
    assert f(there) is there
    assert isinstance(f(np.zeros(2)), np.ndarray)


# -- tables and labels ------------------------------------------------------------


@zc.accepts("torch", layout="matrix")
def centred(x: Any) -> Any:
    return x - x.mean(0)


def test_arrays_series_and_frames_are_one_argument() -> None:
    pd, pl, pa = map(pytest.importorskip, ("pandas", "polars", "pyarrow"))
    values = np.array([[1.0, 3.0], [2.0, 5.0]])
    frame = pd.DataFrame(values, index=["u", "v"], columns=["a", "b"])
    for _ in range(2):  # by the plan, and by routes
        assert centred(values).tolist() == [[-0.5, -1.0], [0.5, 1.0]]
        assert centred(values[0]).tolist() == [-1.0, 1.0]
        assert centred(values[None]).shape == (1, 2, 2)
        pd.testing.assert_frame_equal(centred(frame), frame - frame.mean())
        pd.testing.assert_series_equal(centred(frame["b"]), frame["b"] - frame["b"].mean())
        named = pl.DataFrame(values, schema=["a", "b"])
        assert centred(named).to_dict(as_series=False) == {"a": [-0.5, 0.5], "b": [-1.0, 1.0]}
        assert (centred(named["b"]).name, centred(named["b"]).to_list()) == ("b", [-1.0, 1.0])
        table = pa.table({"a": [1.0, 2.0], "b": [3.0, 5.0]})
        assert centred(table).to_pydict() == {"a": [-0.5, 0.5], "b": [-1.0, 1.0]}
    plan = centred.explain(values)["x"]
    assert plan.zero_copy


def test_labels_return_with_results_of_the_same_shape() -> None:
    pd, xr = pytest.importorskip("pandas"), pytest.importorskip("xarray")

    @zc.accepts("torch")
    def several(x: Any, y: Any = None) -> Any:
        return [x * 2, {"first": x[:1], "count": len(x)}]

    series = pd.Series([1.0, 2.0], index=["u", "v"], name="s")
    for _ in range(2):
        doubled, rest = several(series, np.ones(2))
        pd.testing.assert_series_equal(doubled, series * 2)
        assert (rest["first"].name, list(rest["first"].index), rest["count"]) == (None, [0], 2)
        labelled = xr.DataArray([1.0, 2.0], dims="t", coords={"t": [5, 6]}, name="s")
        assert several(labelled)[0].identical(labelled * 2)
    numbers = pd.DataFrame({0: [1.0, 2.0], (1, 2): [3.0, 4.0]})
    assert list(centred(numbers)) == [0, (1, 2)]


def test_objects_of_the_caller_s_framework_keep_their_own_labels() -> None:
    pd = pytest.importorskip("pandas")
    own = pd.Series([3.0, 4.0], index=[8, 9], name="own")

    @zc.accepts("torch")
    def made(x: Any) -> Any:
        return own

    for _ in range(2):
        assert made(pd.Series([1.0, 2.0], name="s")) is own
    assert (own.name, list(own.index)) == ("own", [8, 9])


def test_results_with_the_rows_of_a_frame_keep_its_index() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}, index=["u", "v", "w"])

    @zc.accepts("torch", layout="matrix")
    def several(x: Any) -> Any:
        return {"sum": x.sum(1), "column": x[:, :1], "total": x.sum(0)}

    for _ in range(2):
        results = several(frame)
        assert frame.assign(p=results["sum"])["p"].tolist() == [5.0, 7.0, 9.0]
        assert list(results["column"].index) == ["u", "v", "w"]
        assert list(results["total"].index) == [0, 1]
        assert list(several(frame[:2])["total"].index) == [0, 1], "not clear in a square frame"
        assert list(several(frame["a"].to_frame())["sum"].index) == ["u", "v", "w"]
