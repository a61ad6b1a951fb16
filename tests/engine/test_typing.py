"""The types of ``convert`` for type checkers, and for ``help``."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy import registry
from zerocopy._engine import options

STUB = ROOT / "zerocopy" / "_engine" / "signatures.pyi"
SAMPLE = ROOT / "tests" / "typed_calls" / "sample.py"


def check(command: list[str], folder: Path) -> None:
    """Run a type checker on the sample in a folder of its own, as in a user's project."""
    shutil.copy(SAMPLE, folder)
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    process = subprocess.run(
        command, capture_output=True, text=True, timeout=900, cwd=folder, env=environment
    )
    assert process.returncode == 0, (process.stdout + process.stderr)[-4000:]


def test_mypy_knows_the_types_of_results(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for module in ("torch", "jax", "polars"):
        pytest.importorskip(module)
    config = "[mypy]\nstrict = true\nfollow_imports = silent\n"
    (tmp_path / "mypy.ini").write_text(config, encoding="utf-8")
    # A kept cache: the first run reads all of torch and JAX, which takes half a minute.
    cache = ROOT / ".mypy_cache" / "typed_calls"
    check([sys.executable, "-m", "mypy", "--cache-dir", str(cache), SAMPLE.name], tmp_path)


def test_pyright_knows_the_types_of_results(tmp_path: Path) -> None:
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    for module in ("torch", "jax", "polars"):
        pytest.importorskip(module)
    config = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT)],
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    check([pyright, "--pythonpath", sys.executable, SAMPLE.name], tmp_path)


def literals() -> set[str]:
    """Return the targets that the stub names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(STUB.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
            names |= {
                constant.value for constant in ast.walk(node.slice) if isinstance(constant, ast.Constant)
            }
    return names


def test_every_target_of_the_stub_exists() -> None:
    for name in literals():
        top, _, form = name.partition(".")
        framework = registry.by_name(top)
        assert not form or form in framework.types or framework.variant(form) is not None, name


def test_the_stub_names_every_framework_with_arrays() -> None:
    """Frameworks with arrays and tables have results of several kinds, which are ``Any``."""
    arrays = {name for name in registry.frameworks() if registry.by_name(name).kind == "tensor"}
    assert arrays <= literals()
    for name in arrays - {"mxnet"}:
        public = [form for form in registry.by_name(name).types if form[0].isupper() and "Impl" not in form]
        public = [form for form in public if form != "EagerTensor"]
        assert {f"{name}.{form}" for form in public} <= literals()


def test_the_stub_lists_no_options() -> None:
    text = STUB.read_text(encoding="utf-8")
    assert not [name for name in options.NAMES if f"{name}:" in text]


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
