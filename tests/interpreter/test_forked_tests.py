"""A forked child whose test raises ends: it does not go on with the other tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT

_TESTS = """
import os

def test_forks():
    child = os.fork()
    assert child, "the child raises"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1

def test_runs_once():
    with open("ran", "a") as file:
        file.write("x")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_a_forked_child_runs_no_other_test(tmp_path: Path) -> None:
    (tmp_path / "test_these.py").write_text(_TESTS)
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_runtest_makereport as pytest_runtest_makereport\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        ".",
    ]
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, (tmp_path / "ran").read_text()) == (0, "x"), done.stdout
