"""``zerocopy.stable.v1`` is frozen: names, signatures, defaults, types of results and errors.

Until the first release, ``python tests/test_stable.py`` writes tests/stable_v1.json; then the file stays.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from zerocopy._engine.converter import Converter
from zerocopy.stable import v1

SNAPSHOT = Path(__file__).with_name("stable_v1.json")
PACKAGE = Path(__file__).parents[1] / "zerocopy"
MESSAGE = (
    "v1 may not change: libraries depend on it without an upper bound. Keep the old form in "
    "zerocopy/stable/v1.py with an adapter, or make a zerocopy/stable/v2.py for the new one. (While no "
    "version is released, python tests/test_stable.py writes the file.)"
)


def signature(function: Any) -> str:
    """Return parameters and defaults; their types are in "options" and "overloads"."""
    plain = inspect.signature(function)
    parameters = [each.replace(annotation=each.empty) for each in plain.parameters.values()]
    returns = plain.return_annotation
    text = str(plain.replace(parameters=parameters, return_annotation=plain.empty))
    return f"{text} -> {returns if isinstance(returns, str) else getattr(returns, '__name__', returns)}"


def nodes(file: str, name: str) -> list[Any]:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    return [node for node in tree.body if getattr(node, "name", "") == name]


def overloads(file: str, name: str) -> list[str]:
    """Return the types of the arguments and of the result of each overload."""
    return [f"({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}" for node in nodes(file, name)]


def options() -> dict[str, str]:
    classes = [node for name in ("ArrayOptions", "ConvertOptions") for node in nodes("request.py", name)]
    lines = [line for node in classes for line in node.body if isinstance(line, ast.AnnAssign)]
    return {ast.unparse(line.target): ast.unparse(line.annotation) for line in lines}


def members(cls: type) -> dict[str, str]:
    """Return the public attributes of a class, with their types and defaults, and its methods."""
    known: dict[str, str] = {}
    for base in reversed([each for each in cls.__mro__ if each.__module__.startswith("zerocopy.")]):
        own = inspect.get_annotations(base).items()
        known |= {name: str(getattr(kind, "__forward_arg__", kind)) for name, kind in own}
        for name, value in vars(base).items():
            if inspect.isroutine(value):
                known[name] = signature(getattr(base, name))
            elif isinstance(value, property):
                known[name] = f"property -> {inspect.get_annotations(value.fget).get('return')}"
            elif isinstance(value, str | int | tuple | type(None)):
                known[name] = f"{known.get(name, '')} = {value!r}".lstrip()
    return {name: known[name] for name in sorted(known) if name[0] != "_"}


def current() -> dict[str, Any]:
    values = {name: getattr(v1, name) for name in sorted(dir(v1))}
    classes = {name: value for name, value in values.items() if isinstance(value, type)}
    classes["Converter"] = Converter
    errors = {name: value for name, value in vars(v1.errors).items() if is_error(value)}
    return {
        "names": list(values),
        "functions": {n: signature(v) for n, v in values.items() if callable(v) and n not in classes},
        "options": options(),
        "overloads of convert": overloads("_engine/signatures.pyi", "convert"),
        "overloads of converter": overloads("signatures.pyi", "converter"),
        "classes": {name: members(value) for name, value in classes.items() if not is_error(value)},
        "errors": {
            name: {"bases": [base.__name__ for base in errors[name].__bases__], "code": errors[name].code}
            for name in sorted(errors)
        },
    }


def is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, v1.ZeroCopyError)


def test_v1_is_as_it_was() -> None:
    frozen, now = json.loads(SNAPSHOT.read_text(encoding="utf-8")), current()
    changed = {part: (frozen[part], now[part]) for part in frozen if frozen[part] != now[part]}
    assert not changed, MESSAGE
    assert frozen.keys() == now.keys(), MESSAGE


def test_an_added_default_a_changed_default_and_a_new_base_class_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = current()
    monkeypatch.setattr(v1, "view", lambda obj, copy=None: None)
    monkeypatch.setattr(v1.Framework, "max_ndim", 32)
    monkeypatch.setattr(v1.errors.OptionError, "code", "other")
    changed = [part for part, value in current().items() if value != before[part]]
    assert changed == ["functions", "classes", "errors"]


def test_the_names_are_those_of_the_type_checker() -> None:
    blocks = [
        each for each in ast.parse(Path(v1.__file__).read_text("utf-8")).body if isinstance(each, ast.If)
    ]
    imports = [each for each in blocks[0].body if getattr(each, "module", "") == "zerocopy"]
    assert [each.name for each in imports[0].names] == dir(v1)


def test_the_import_loads_two_files(run_python) -> None:
    process = run_python(
        """
        import sys
        import zerocopy
        before = {*sys.modules}
        import zerocopy.stable.v1 as zc
        print(*sorted({*sys.modules} - before))
        try: zc.share
        except AttributeError as error: print(error)
        import numpy
        assert zc.convert is zerocopy.convert and dir(zc) == zc.__all__
        """
    )
    assert process.returncode == 0, process.stderr
    modules, error = process.stdout.splitlines()
    assert modules.split() == ["zerocopy.stable", "zerocopy.stable.v1"]
    assert error == "module 'zerocopy.stable.v1' has no attribute 'share'"


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(current(), indent=1) + "\n", encoding="utf-8")
