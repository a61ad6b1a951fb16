"""Each hazard of the pages has a test, each marker names a hazard of a page, and the index lists them."""

from __future__ import annotations

import ast
import runpy
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from helpers.paths import ROOT


@cache
def generator() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "hazard_index.py"))


@cache
def hazards() -> list[Any]:
    return list(generator()["hazards"]())


@cache
def marked() -> dict[Path, dict[str, list[str]]]:
    """Return the names in the marker ``hazard`` of each test, by file and test."""
    marks: dict[Path, dict[str, list[str]]] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text(encoding="utf-8")
        if "mark.hazard(" in text:
            marks[file] = {
                node.name: [
                    name.value
                    for call in node.decorator_list
                    if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.hazard"
                    for name in call.args
                    if isinstance(name, ast.Constant)
                ]
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            }
    return marks


def test_each_hazard_has_a_test_and_each_mark_a_hazard() -> None:
    names = [hazard.name for hazard in hazards()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    in_tests = {name for tests in marked().values() for marks in tests.values() for name in marks}
    assert sorted(set(names) - in_tests) == []
    assert sorted(in_tests - set(names)) == []


def test_each_hazard_test_has_a_mark() -> None:
    files = sorted((ROOT / "tests" / "engine").glob("test_hazards_*.py"))
    assert files
    assert [(file.name, test) for file in files for test, names in marked()[file].items() if not names] == []


def test_hazards_of_frameworks_have_known_symptoms() -> None:
    symptoms = set(generator()["SYMPTOMS"])
    for hazard in hazards():
        assert set(hazard.symptoms) <= symptoms, hazard.name
        assert bool(hazard.symptoms) == (hazard.page != "robustness"), hazard.name


def test_page_of_hazards_has_the_index() -> None:
    page = (ROOT / "docs" / "hazards.md").read_text(encoding="utf-8")
    assert generator()["with_index"](page) == page, "run python docs/hazard_index.py"
