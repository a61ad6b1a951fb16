"""Counts of instructions: the comparison, and a planted loss of speed in a copy of the core."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.instructions import measure
from tests.instructions.calls import CALLS, EMPTY


def test_there_are_20_calls_that_compile() -> None:
    assert len(CALLS.keys() - {EMPTY}) == 20
    for setup, call in CALLS.values():
        compile(f"{setup}\n{call}", "call", "exec")


def test_a_loss_of_over_two_percent_is_reported() -> None:
    before = {"a": 100.0, "b": 100.0, "c": 100.0, "gone": 5.0}
    after = {"a": 102.0, "b": 102.1, "c": 50.0, "new": 500.0}
    assert measure.slower(before, after) == ["b"]
    assert "+2.1%" in measure.table(before, after)


@pytest.mark.full  # two compilations, and three programs under valgrind
def test_three_percent_more_instructions_are_reported(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    if not all(map(shutil.which, ("valgrind", "gcc", "setarch"))):
        pytest.skip("needs valgrind, gcc and setarch")
    names = ["numpy to numpy"]
    tree = _copy(tmp_path / "tree")
    measure.compile_core(tree)
    before, again = measure.count(tree, names), measure.count(tree, names)
    assert abs(again[names[0]] / before[names[0]] - 1) < measure.TOLERANCE / 4
    source = tree / "zerocopy" / "_native" / "convert.c"
    entry = "call_convert(PyObject *"
    text = source.read_text(encoding="utf-8")
    start = text.index("{", text.index(entry)) + 1
    source.write_text(f"{text[:start]}\n    for (volatile int i = 0; i < 2; i++) {{}}\n{text[start:]}")
    measure.compile_core(tree)
    after = measure.count(tree, names)
    assert measure.slower(before, after) == names, measure.table(before, after)
    assert after[names[0]] < before[names[0]] * 1.06, "the planted loss is near the tolerance"


def _copy(tree: Path) -> Path:
    shutil.copytree(measure.ROOT / "zerocopy", tree / "zerocopy", ignore=shutil.ignore_patterns("*.so"))
    shutil.copy(measure.ROOT / "hatch_build.py", tree)
    return tree
