"""The types of ``convert`` for type checkers, and for ``help``."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy import registry, request
from zerocopy._engine.converter import Converter
from zerocopy._engine.target import resolve
from zerocopy.loading.loader import Loader

STUB = ROOT / "zerocopy" / "_engine" / "signatures.pyi"
OTHERS = ROOT / "zerocopy" / "signatures.pyi"
CALLS = ROOT / "tests" / "typed_calls"


def check(command: list[str], folder: Path) -> Counter[int]:
    """Run a type checker on the calls in a folder of its own, as in a user's project.

    Check that it reports all wrong calls and no other; return the number of errors of each line.
    """
    files = [str(shutil.copy(CALLS / name, folder)) for name in ("sample.py", "wrong.py")]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    process = subprocess.run(
        [*command, *files], capture_output=True, text=True, timeout=900, cwd=folder, env=environment
    )
    report = process.stdout + process.stderr
    assert "overload variant" not in report
    errors = re.findall(r"(\w+\.pyi?):(\d+).*error: ", report)
    assert {file for file, _ in errors} == {"wrong.py"}, report[-4000:]
    lines = (CALLS / "wrong.py").read_text(encoding="utf-8").splitlines()
    first = lines.index("# one a line") + 2
    counts = Counter(int(line) for _, line in errors)
    assert counts.keys() == {*range(first, len(lines) + 1)}, report[-4000:]
    return counts


@pytest.mark.full  # .ci/run runs it
def test_mypy_knows_the_types_of_results(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for module in ("torch", "jax", "polars"):
        pytest.importorskip(module)
    config = "[mypy]\nstrict = true\nfollow_imports = silent\n"
    (tmp_path / "mypy.ini").write_text(config, encoding="utf-8")
    # A kept cache: the first run reads all of torch and JAX, which takes half a minute.
    cache = ROOT / ".mypy_cache" / "typed_calls"
    counts = check([sys.executable, "-m", "mypy", "--cache-dir", str(cache)], tmp_path)
    assert {*counts.values()} == {1}


def find_pyright() -> str:
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    return pyright or pytest.skip("pyright is not installed")


def test_pyright_knows_the_types_of_results(tmp_path: Path) -> None:
    pyright = find_pyright()
    for module in ("torch", "jax", "polars"):
        pytest.importorskip(module)
    config = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT)],
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    counts = check([pyright, "--pythonpath", sys.executable], tmp_path)
    # For a wrong value it reports the call and the argument, for a wrong keyword the argument alone.
    assert {*counts.values()} <= {1, 2}
    lines = (CALLS / "wrong.py").read_text(encoding="utf-8").splitlines()
    assert all(counts[number] == 1 for number, line in enumerate(lines, 1) if "coppy" in line)


#: scikit-learn and Bokeh have no py.typed, and pyright ignores types that it would have to infer there.
UNTYPED_BASES = {"MoveTo", "GuardedApplication"}


@pytest.mark.full  # CONTRIBUTING.md: before a release
def test_pyright_knows_the_type_of_every_public_name(tmp_path: Path) -> None:
    pyright = find_pyright()
    command = [pyright, "--pythonpath", sys.executable, "--verifytypes", "zerocopy", "--ignoreexternal"]
    process = subprocess.run(
        [*command, "--outputjson"], capture_output=True, text=True, timeout=900, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    symbols = json.loads(process.stdout)["typeCompleteness"]["symbols"]
    assert len(symbols) > 3000
    lacking = {
        symbol["name"]: [diagnostic["message"] for diagnostic in symbol["diagnostics"]]
        for symbol in symbols
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
    }
    assert {name for name in lacking if name.rpartition(".")[2] not in UNTYPED_BASES} == set(), lacking


def literals() -> set[str]:
    """Return the targets that the stub names."""
    names: set[str] = set()
    aliases = [
        node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.AnnAssign)
    ]
    for node in (inner for alias in aliases for inner in ast.walk(alias)):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
            names |= {
                constant.value for constant in ast.walk(node.slice) if isinstance(constant, ast.Constant)
            }
    return names


def test_every_target_of_the_stub_exists() -> None:
    for name in literals():
        assert resolve(name).name in name


def test_the_stub_names_every_target() -> None:
    names = literals()
    for name in registry.frameworks():
        framework = registry.by_name(name)
        forms = [form for form in framework.types if form not in ("ArrayImpl", "EagerTensor")]
        if framework.installed():
            forms += [form for form in dir(framework.module()) if registry.find(f"{name}.{form}") is not None]
        assert {name, *(f"{name}.{form}" for form in forms)} <= names, name


def overloads(stub: Path, name: str) -> list[ast.FunctionDef]:
    body = ast.parse(stub.read_text(encoding="utf-8")).body
    return [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]


@pytest.mark.parametrize("name", ["convert", "converter", "loader", "open_weights"])
def test_the_overload_of_wrong_calls_has_every_option(name: str) -> None:
    *_, last = overloads(STUB if name == "convert" else OTHERS, name)
    parameters = inspect.signature(getattr(zc, name)).parameters.values()
    names = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
    assert [argument.arg for argument in last.args.kwonlyargs] == names
    assert [argument.arg for argument in last.args.args] == [
        each.name for each in parameters if each.kind is not each.KEYWORD_ONLY
    ]
    # `out` holds the result of one call.
    assert name != "convert" or tuple(names) == request.NAMES


@pytest.mark.parametrize("name", ["converter", "loader", "open_weights"])
def test_other_overloads_take_options_of_the_function_alone(name: str) -> None:
    kinds = {
        node.name: {each.target.id for each in node.body if isinstance(each, ast.AnnAssign)}
        | {base.id for base in node.bases if isinstance(base, ast.Name)}
        for stub in (STUB, OTHERS)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    kinds |= {
        kind.__name__: {*kind.__annotations__} for kind in (request.ArrayOptions, request.ConvertOptions)
    }

    def names_of(kind: str) -> set[str]:
        return set().union(*(names_of(each) if each in kinds else {each} for each in kinds[kind]))

    known = {*inspect.signature(getattr(zc, name)).parameters, "total", "TypedDict"}
    *typed, _ = overloads(OTHERS, name)
    for overload in typed:
        assert isinstance(overload.args.kwarg.annotation, ast.Subscript)
        assert names_of(overload.args.kwarg.annotation.slice.id) - request.ONE_CALL <= known


@pytest.mark.parametrize("cls", [zc.Weights, Loader, Converter])
def test_annotations_with_parameters_can_be_evaluated(cls: Any) -> None:
    parameters = (int, int) if cls is Converter else int
    assert cls[parameters].__origin__ is cls


def test_generic_classes_keep_slots_and_pickles() -> None:
    converter = zc.converter(np.zeros(2), "numpy")
    assert not hasattr(converter, "__dict__")
    assert pickle.loads(pickle.dumps(converter)).to == "numpy"


def test_help_shows_the_types_of_options() -> None:
    parameters = inspect.signature(zc.convert).parameters
    assert parameters["copy"].annotation == bool | None
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters.values())
    assert "copy: bool | None = None" in str(inspect.signature(zc.explain))
    assert inspect.signature(zc.explain).return_annotation == "Plan"


def test_the_package_is_typed() -> None:
    assert (ROOT / "zerocopy" / "py.typed").exists()


def test_convert_has_the_attributes_of_a_function() -> None:
    """In both builds: it can be pickled, copied, wrapped, and an attribute of a class."""
    assert (
        pickle.loads(pickle.dumps(zc.convert))
        is copy.copy(zc.convert)
        is copy.deepcopy(zc.convert)
        is zc.convert
    )
    assert (zc.convert.__name__, zc.convert.__module__) == ("convert", "zerocopy._engine.convert")
    assert "Parameters" in (inspect.getdoc(zc.convert) or "")
    assert inspect.isroutine(zc.convert)
    assert functools.wraps(zc.convert)(lambda: None).__doc__ == zc.convert.__doc__

    class Holder:
        convert = zc.convert

    assert Holder.convert is zc.convert
    with pytest.raises(TypeError):
        Holder().convert(np.zeros(2), "numpy")  # bound, as functions are
