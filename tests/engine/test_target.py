"""``to``: names, modules and types of every framework; hints for what is close to them."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers.frameworks import HOST
from helpers.pasting import pasted

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import routes

INSTALLED = [
    name
    for name, info in registry.frameworks().items()
    if info.installed and "cpu" in info.devices and info.kind != "compound"
]
X = np.arange(6, dtype="f4").reshape(2, 3)


def attribute(name: str, path: str) -> Any:
    named: Any = importlib.import_module(name)
    for part in path.split("."):
        named = getattr(named, part, None)
    return named


def forms() -> list[tuple[str, str]]:
    """Return each framework with the attributes of its module that ``to`` takes."""
    pairs = [(name, path) for name in INSTALLED for path in registry.by_name(name).types]
    for name in INSTALLED:
        module = importlib.import_module(name)
        public = [key for key, value in vars(module).items() if isinstance(value, type)]
        pairs += [(name, key) for key in public if registry.by_name(name).variant(key) is not None]
    return pairs


FORMS = forms()


@pytest.mark.parametrize("name", INSTALLED)
def test_the_module_of_every_framework_is_a_target(name: str) -> None:
    module = importlib.import_module(name)
    assert type(zc.convert(X, module)) is type(zc.convert(X, name))
    assert zc.explain(X, module).target == zc.explain(X, name).target


@pytest.mark.parametrize(("name", "path"), FORMS, ids=str)
def test_types_and_their_names_are_targets(name: str, path: str) -> None:
    """Each form is selected by its name and, if it is an attribute of the module, by the type itself."""
    named = attribute(name, path)
    targets = [f"{name}.{path}", *([named] if named is not None else [])]
    for x in (X, X[0], {"a": X[0]}):
        plans = [zc.explain(x, to) for to in targets]
        assert len({(plan.possible, plan.zero_copy, plan.target) for plan in plans if plan.possible}) <= 1
        for to, plan in zip(targets, plans, strict=True):
            if not plan.possible:
                assert not isinstance(plan.error, zc.errors.UnknownFrameworkError), plan
                continue
            result = zc.convert(x, to)
            result = result["a"] if isinstance(result, dict) else result
            if isinstance(named, type):
                assert isinstance(result, named)


def test_frameworks_list_types_of_their_own_objects() -> None:
    assert {name for name, _ in FORMS} >= {*HOST} - {"numba"}


@pytest.mark.parametrize("name", HOST)
def test_the_type_of_a_result_is_a_target(name: str) -> None:
    result = zc.convert(X, name)
    assert type(zc.convert(X, type(result))) is type(result)


def test_forms_of_pandas_are_what_they_name() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 2]})
    assert isinstance(zc.convert(frame, pd.Series), pd.Series)
    assert isinstance(zc.convert(frame["a"], pd.DataFrame), pd.DataFrame)
    assert zc.convert(frame, pd.DataFrame) is frame
    assert list(zc.convert(np.arange(3), "pandas.DataFrame").columns) == ["column_0"]
    with pytest.raises(zc.UnsupportedConversionError, match="a series is one column, and the table has 3"):
        zc.convert(X, pd.Series)


@pytest.mark.parametrize("target", ["torch", "torch.Tensor"])
def test_types_and_modules_have_routes(target: str) -> None:
    torch = pytest.importorskip("torch")
    to = torch if target == "torch" else torch.Tensor
    x = np.arange(3.0)
    zc.convert(x, to)
    assert zc.shares_memory(x, routes.routes_of(to, {})[np.ndarray](x))


# -- hints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alias", "name"),
    [("tf", "tensorflow"), ("np", "numpy"), ("jnp", "jax"), ("pd", "pandas"), ("pl", "polars"),
     ("pa", "pyarrow"), ("cp", "cupy"), ("pytorch", "torch"), ("TF", "tensorflow"), ("torch.nn", "torch"),
     ("polarss", "polars"), ("pandas.Frame", "pandas")],
)  # fmt: skip
def test_aliases_get_a_hint(alias: str, name: str) -> None:
    for function in (zc.convert, zc.explain):
        with pytest.raises(zc.errors.UnknownFrameworkError) as error:
            function(X, alias)
        assert error.value.remedy.startswith(f"did you mean '{name}'? choose from awkward, cuda.core, "), (
            error.value
        )


def test_every_framework_has_distinct_aliases() -> None:
    aliases = [alias for name in registry.frameworks() for alias in registry.by_name(name).aliases]
    assert len(aliases) == len({*aliases})
    assert not {*aliases} & registry.frameworks().keys()


@pytest.mark.parametrize(
    "to", [[1], {}, None, 3, 1.5, object(), memoryview(b"torch"), b"torch", {"torch"}, ("torch",)]
)
def test_other_objects_are_refused_with_the_names(to: object) -> None:
    for function in (zc.convert, zc.explain):
        with pytest.raises(zc.errors.UnknownFrameworkError, match="To fix: choose from awkward, ") as error:
            function(X, to)
        assert error.value.__cause__ is None
        assert error.value.__suppress_context__ or error.value.__context__ is None


@pytest.mark.parametrize("cls", [np.float32, np.matrix, np.generic, int, ModuleType, zc.Plan])
def test_types_that_convert_does_not_make_are_refused(cls: type) -> None:
    with pytest.raises(zc.errors.UnknownFrameworkError, match="it is not a type that convert makes"):
        zc.convert(X, cls)


def test_subclasses_are_refused_with_the_framework() -> None:
    torch, pa = pytest.importorskip("torch"), pytest.importorskip("pyarrow")
    for cls, name in ((torch.nn.Parameter, "torch"), (pa.FloatArray, "pyarrow")):
        with pytest.raises(zc.errors.UnknownFrameworkError, match=f"To fix: pass to='{name}'"):
            zc.convert(X, cls)


@pytest.mark.parametrize("to", ["numpy", np, np.ndarray], ids=str)
@pytest.mark.parametrize("x", [X, [X], {"a": X}, 3], ids=["array", "list", "dict", "number"])
def test_swapped_arguments_get_the_right_call(to: Any, x: Any) -> None:
    for function in (zc.convert, zc.explain):
        with pytest.raises(zc.errors.UnknownFrameworkError, match="the arguments are swapped") as error:
            function(to, x)
    call = error.value.remedy.partition(": ")[2]
    if x is X:
        assert pasted(call, {"zc": zc, "x": x, "numpy": np}) is x


def test_messages_show_modules_and_types_as_they_are_written() -> None:
    torch = pytest.importorskip("torch")
    for to, text in ((torch, "to=torch"), (torch.Tensor, "to=torch.Tensor"), ("torch", "to='torch'")):
        with pytest.raises(zc.UnsupportedConversionError, match=rf"convert\(str, {text}\)"):
            zc.convert("text", to)


def test_a_plugin_without_types_takes_its_own_class() -> None:
    from helpers.frameworks import registry_restored

    class Ring:
        pass

    class Rings(zc.Framework):
        name = "rings"
        root_modules = (Ring.__module__.partition(".")[0],)

        def owns(self, cls: type) -> bool:
            return cls is Ring

    import sys

    with registry_restored():
        sys.modules["rings"] = ModuleType("rings")
        try:
            zc.register(Rings())
            plan = zc.explain(X, Ring)
        finally:
            del sys.modules["rings"]
    assert not plan.possible
    assert plan.error.code == "missing-hook"
