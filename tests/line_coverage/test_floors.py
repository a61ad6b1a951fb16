"""The floors of the coverage: their file, and that they only rise."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from helpers.paths import ROOT

from tests.line_coverage import __main__ as command


def test_each_run_names_tests_and_a_package_that_exist() -> None:
    for run in tomllib.loads(command.FLOORS.read_text(encoding="utf-8")).values():
        assert (ROOT / run["package"]).is_dir()
        assert all((ROOT / test).exists() for test in run["tests"] if not test.startswith("-"))
        assert run.keys() <= {"tests", "package", "python", "c"}


def test_a_floor_is_written_once_and_then_rises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "floors.toml"
    file.write_text(
        '# Comment.\n\n[a]\ntests = ["x"]\n\n[b]\ntests = ["y"]\npython = 90.0\n', encoding="utf-8"
    )
    monkeypatch.setattr(command, "FLOORS", file)
    command.record("a", {"python": 81.26, "c": 70.0})
    command.record("b", {"python": 80.0})
    command.record("b", {"python": 93.0})
    command.record("a", {"python": 60.0})
    runs = tomllib.loads(file.read_text(encoding="utf-8"))
    assert runs["a"] == {"tests": ["x"], "python": 80.7, "c": 69.5}
    assert runs["b"] == {"tests": ["y"], "python": 92.5}
