"""`.ci/pythons` and its frameworks: minimum versions agree, and tests of absent modules are skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers.absent_modules import absent_module
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy import registry
from zerocopy.cli.support import table

if not (ROOT / ".ci").exists():
    pytest.skip("not a checkout", allow_module_level=True)

OLDEST = dict(
    re.findall(r"^([\w-]+)>=(\S+)$", (ROOT / ".ci" / "frameworks.txt").read_text("utf-8"), re.MULTILINE)
)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
REQUIREMENTS = [
    each
    for part in (PYPROJECT["project"]["optional-dependencies"], PYPROJECT["dependency-groups"])
    for requirements in part.values()
    for each in requirements
    if isinstance(each, str)  # a group may include another
]


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


@pytest.mark.parametrize("name", OLDEST)
def test_the_oldest_tested_version_is_the_minimum(name: str) -> None:
    bounds = re.findall(rf"^{name}>=([\d.]+)", "\n".join(REQUIREMENTS), re.MULTILINE)
    framework = name.removesuffix("-cpu")
    if framework in registry.frameworks() and registry.by_name(framework).min_version:
        assert registry.by_name(framework).min_version == OLDEST[name]
    elif bounds:  # torch has no minimum, and pyarrow has a lower minimum without tables
        assert OLDEST[name] in bounds


@pytest.mark.parametrize("name", OLDEST)
def test_the_oldest_tested_version_is_in_the_table_of_versions(name: str) -> None:
    row = table()["frameworks"].get(name.removesuffix("-cpu"), {})
    assert OLDEST[name] in (row.get("oldest", OLDEST[name]), *row.get("extras", {}).values()) or (
        name == "numpy"  # pandas 3 requires a newer one than the minimum, with which tests/mxnet runs
    )


def test_an_absent_module_is_named_by_an_error_or_its_cause() -> None:
    absent = "an_absent_module"
    with pytest.raises(ModuleNotFoundError) as caught:
        __import__(absent)
    assert absent_module(caught.value) == absent
    error = AssertionError("the subprocess failed")
    error.__cause__ = caught.value
    assert absent_module(error) == absent
    assert absent_module(AssertionError(f"to={absent!r}: {absent} is not installed.")) == absent


def test_an_installed_module_is_not_absent() -> None:
    assert zc.frameworks()["numpy"].installed
    assert absent_module(ImportError("No module named 'numpy.missing'")) == ""
    assert absent_module(ValueError("no such value")) == ""


def test_files_that_import_absent_modules_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_absent.py").write_text("import absent_framework\n\ndef test_it():\n    pass\n", "utf-8")
    (tmp_path / "test_wrong.py").write_text("import numpy.absent\n\ndef test_it():\n    pass\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--color=no", "-p", "helpers.absent_modules"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    variables["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run([*command, "."], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert "test_absent.py:1: absent_framework is not installed" in done.stdout
    assert "No module named 'numpy.absent'" in done.stdout
    assert "1 skipped, 1 error" in done.stdout
