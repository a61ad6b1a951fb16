"""Every public docstring says all of what DESIGN.md asks: parameters, returns, errors, an example.

That the examples run is :mod:`test_words`' matter.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

import zerocopy

pytest.importorskip("numpydoc", reason="it is in the extra docs")

from numpydoc.docscrape import ClassDoc, FunctionDoc
from numpydoc.validate import validate

#: What numpydoc checks: a docstring, a summary of one sentence, types and descriptions, returns.
#: Not its rules of taste (infinitive verbs, "See Also", blank lines).
CODES = {
    *("GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "SS01", "SS02", "SS03", "SS04", "SS06"),
    *("PR04", "PR05", "PR07", "PR10", "RT01", "RT02", "RT03", "YD01"),
}
#: Nobody makes them but the package itself, and those who subclass them.
NOT_CALLED = {"Pool", "Framework"}


def public() -> Iterator[tuple[str, Any]]:
    """Yield each public object, and each public method and property of the classes among them."""
    for name in zerocopy.__all__:
        if name == "__version__":
            continue
        found = getattr(zerocopy, name)
        yield name, found
        if inspect.isclass(found):
            for member, value in vars(found).items():
                if not member.startswith("_") and isinstance(value, (FunctionType, property, classmethod)):
                    yield f"{name}.{member}", getattr(found, member)


PUBLIC = dict(public())
CALLABLE = {name: obj for name, obj in PUBLIC.items() if inspect.isfunction(obj)}
CLASSES = {name: obj for name, obj in PUBLIC.items() if inspect.isclass(obj)}


def entries(obj: Any) -> dict[str, tuple[str, str]]:
    """Return the types and descriptions of the parameters that a docstring has; of a class its fields too."""
    doc = ClassDoc(obj, config={"show_class_members": False}) if inspect.isclass(obj) else FunctionDoc(obj)
    sections = ["Parameters", "Attributes"] if inspect.isclass(obj) else ["Parameters"]
    return {
        name.strip(" *"): (entry.type, " ".join(entry.desc))
        for section in sections
        for entry in doc[section]
        for name in entry.name.split(",")
    }


def parameters(obj: Any) -> list[str]:
    """Return the names that a call takes, but for `self` and what is refused by name."""
    if inspect.isclass(obj) and issubclass(obj, zerocopy.ZeroCopyError) and "__init__" not in vars(obj):
        return []  # those of its base
    taken = inspect.signature(obj).parameters.values()
    return [p.name for p in taken if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


@pytest.mark.parametrize("name", PUBLIC)
def test_numpydoc_has_nothing_against_it(name: str) -> None:
    found = validate(f"zerocopy.{name}")
    assert [f"{code} {said}" for code, said in found["errors"] if code in CODES] == []


@pytest.mark.parametrize("name", [*CALLABLE, *(name for name in CLASSES if name not in NOT_CALLED)])
def test_parameters_are_those_of_the_signature(name: str) -> None:
    """All of them, in their order, each with its type and what it is for; and no others."""
    wanted, found = parameters(PUBLIC[name]), entries(PUBLIC[name])
    assert [each for each in found if each in wanted] == wanted
    assert name in CLASSES or set(found) == set(wanted)
    assert [each for each in wanted if not all(found[each])] == []


@pytest.mark.parametrize("name", CALLABLE)
def test_what_is_returned_is_told(name: str) -> None:
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
    # Those with a small letter make an error, and are in the sections of those whose they are.
    names = {call.id for call in calls if isinstance(call, ast.Name) and call.id[0].isupper()}
    return names - {"NotImplementedError"}  # a hook, to be overridden


@pytest.mark.parametrize("name", CALLABLE)
def test_every_error_that_it_raises_is_told(name: str) -> None:
    sections = FunctionDoc(CALLABLE[name])["Raises"]
    told = {error.strip() for entry in sections for error in (entry.name or entry.type).split(",")}
    if "ZeroCopyError" in told:
        told |= {error for error in zerocopy.__all__ if error.endswith("Error")}
    assert raised(CALLABLE[name]) <= told


@pytest.mark.parametrize("name", [*CLASSES, *(name for name in CALLABLE if "." not in name)])
def test_there_is_an_example(name: str) -> None:
    """Of every class and function; a method is shown by the example of its class, or by its own."""
    assert ">>> " in (inspect.getdoc(PUBLIC[name]) or "").partition("Examples\n--------\n")[2]
