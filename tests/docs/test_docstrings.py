"""Every public docstring is complete: parameters, results, errors, an example."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

import zerocopy
from zerocopy.loading import explain, loader, stats
from zerocopy.pool.host import modes

pytest.importorskip("numpydoc", reason="it is in the group docs")

from numpydoc.docscrape import ClassDoc, FunctionDoc
from numpydoc.validate import validate

#: numpydoc's checks of completeness: a docstring, a one-sentence summary, types and descriptions, returns.
#: Its rules of style (infinitive verbs, "See Also", blank lines) are not used.
CODES = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "SS01", "SS02", "SS03", "SS04", "SS06"),
    *("PR04", "PR05", "PR07", "PR10", "RT01", "RT02", "RT03", "YD01"),
}
#: Classes of results and errors that are public through a function of `zerocopy`.
RESULT_CLASSES = {
    "loading.loader.Loader": loader.Loader,
    "loading.explain.LoaderPlan": explain.LoaderPlan,
    "loading.explain.ColumnPlan": explain.ColumnPlan,
    "loading.stats.LoaderStats": stats.LoaderStats,
    "loading.stats.Skipped": stats.Skipped,
    "pool.host.modes.HostStats": modes.HostStats,
}
#: Classes that users do not instantiate.
NOT_CALLED = {"Channel", "Shared", "Pool", "Weights", "Framework", *RESULT_CLASSES}
#: First words that say what a hook of `Framework` returns.
RESULTS = ("Return", "Whether", "Describe", "Import", "Check")


def public() -> Iterator[tuple[str, Any]]:
    """Yield each public object, and each public method and property of the classes among them."""
    names = {name: getattr(zerocopy, name) for name in zerocopy.__all__ if name != "__version__"}
    errors = [name for name in vars(zerocopy.errors) if name.endswith("Error") and name not in names]
    names |= {f"errors.{name}": getattr(zerocopy.errors, name) for name in errors}
    for name, obj in {**names, **RESULT_CLASSES}.items():
        yield name, obj
        if inspect.isclass(obj):
            for member, value in vars(obj).items():
                if not member.startswith("_") and isinstance(value, (FunctionType, property, classmethod)):
                    yield f"{name}.{member}", getattr(obj, member)


PUBLIC = dict(public())
#: Plugins override these and users do not call them: short docstrings, without sections for
#: parameters and results.
HOOKS = {
    name: obj for name, obj in PUBLIC.items() if name.startswith("Framework.") and inspect.isfunction(obj)
}
CALLABLE = {name: obj for name, obj in PUBLIC.items() if inspect.isfunction(obj) and name not in HOOKS}
CLASSES = {name: obj for name, obj in PUBLIC.items() if inspect.isclass(obj)}


def entries(obj: Any) -> dict[str, tuple[str, str]]:
    """Return types and descriptions of the documented parameters, and for a class of its attributes."""
    doc = ClassDoc(obj, config={"show_class_members": False}) if inspect.isclass(obj) else FunctionDoc(obj)
    sections = ["Parameters", "Attributes"] if inspect.isclass(obj) else ["Parameters"]
    return {
        name.strip(" *"): (entry.type, " ".join(entry.desc))
        for section in sections
        for entry in doc[section]
        for name in entry.name.split(",")
    }


def parameters(obj: Any) -> list[str]:
    """Return the parameters of a call, without `self` and variadic ones."""
    if inspect.isclass(obj) and issubclass(obj, zerocopy.ZeroCopyError) and "__init__" not in vars(obj):
        return []  # documented in the base class
    signature = inspect.signature(obj).parameters.values()
    return [p.name for p in signature if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


# numpydoc reads no module without a definition.
@pytest.mark.parametrize("name", [name for name, obj in PUBLIC.items() if not inspect.ismodule(obj)])
def test_docstring_passes_numpydoc(name: str) -> None:
    codes = CODES - {"RT01"} if name in HOOKS else CODES
    report = validate(f"zerocopy.{name}")
    assert [f"{code} {message}" for code, message in report["errors"] if code in codes] == []


@pytest.mark.parametrize("name", HOOKS)
def test_hook_docstring_names_parameters_and_result(name: str) -> None:
    text = inspect.getdoc(HOOKS[name]) or ""
    assert text.startswith(RESULTS)
    assert [each for each in parameters(HOOKS[name]) if f"`{each}`" not in text] == []


@pytest.mark.parametrize("name", [*CALLABLE, *(name for name in CLASSES if name not in NOT_CALLED)])
def test_docstring_lists_the_parameters_of_the_signature(name: str) -> None:
    """All of them and no others, in order, each with type and description."""
    expected, documented = parameters(PUBLIC[name]), entries(PUBLIC[name])
    assert [each for each in documented if each in expected] == expected
    variadic = {
        p.name
        for p in inspect.signature(PUBLIC[name]).parameters.values()
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    assert name in CLASSES or set(documented) - variadic == set(expected)
    assert [each for each in expected if not all(documented[each])] == []


@pytest.mark.parametrize("name", CALLABLE)
def test_docstring_describes_the_result(name: str) -> None:
    doc, returned = FunctionDoc(CALLABLE[name]), CALLABLE[name].__annotations__.get("return")
    assert returned in (None, "None") or doc["Returns"] or doc["Yields"]


def raised(function: Any) -> set[str]:
    """Return the names of the exceptions that a function's own code raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [
        node.exc.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    ]
    # Lower-case names are helpers that create an error.
    names = {call.id for call in calls if isinstance(call, ast.Name) and call.id[0].isupper()}
    return names - {"NotImplementedError"}  # a hook that subclasses override


@pytest.mark.parametrize("name", [*CALLABLE, *HOOKS])
def test_docstring_lists_the_errors_that_are_raised(name: str) -> None:
    sections = FunctionDoc(PUBLIC[name])["Raises"]
    documented = {error.strip() for entry in sections for error in (entry.name or entry.type).split(",")}
    if "ZeroCopyError" in documented:
        documented |= {error for error in vars(zerocopy.errors) if error.endswith("Error")}
    assert raised(PUBLIC[name]) <= documented


@pytest.mark.parametrize("name", [*CLASSES, *(name for name in CALLABLE if "." not in name)])
def test_docstring_has_an_example(name: str) -> None:
    """Classes and functions; a method may be covered by the example of its class."""
    assert ">>> " in (inspect.getdoc(PUBLIC[name]) or "").partition("Examples\n--------\n")[2]
