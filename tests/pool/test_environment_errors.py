"""Errors of ``ZEROCOPY_POOL`` under ``python -m``, and the ``__main__`` of programs that the pool runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.paths import ROOT


def run_module(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package that imports zerocopy in its ``__init__``, and uses it if the program has an argument."""
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__init__.py").write_text("import zerocopy\n")
    (tmp_path / "program" / "__main__.py").write_text(
        "import sys, zerocopy\nif sys.argv[1:]: zerocopy.view(b'abc')\nprint('ran')\n"
    )
    return tmp_path


@pytest.mark.parametrize("value", ["nonsense", "driver,devices=9999"])
def test_first_use_raises_the_error_of_the_variable(package: Path, value: str) -> None:
    process = run_module(package, "-m", "program", "use", ZEROCOPY_POOL=value)
    assert process.returncode == 1
    assert "ran" not in process.stdout
    assert f"ZEROCOPY_POOL={value!r}" in process.stderr


def test_program_that_never_uses_zerocopy_reports_the_error_at_exit(package: Path) -> None:
    process = run_module(package, "-m", "program", ZEROCOPY_POOL="nonsense")
    assert (process.returncode, process.stdout) == (0, "ran\n")
    assert "no pool was installed: ZEROCOPY_POOL='nonsense'" in process.stderr


PROGRAM = """
import atexit, pickle, sys, threading, time
class Kept: pass
def later():
    time.sleep(0.2)
    print("thread", len(pickle.dumps(Kept())) > 0)
def at_exit(): print("exit", sys.modules["__main__"].value, len(pickle.dumps(Kept())) > 0)
atexit.register(at_exit)
threading.Thread(target=later).start()
value = 1
value = 2
{end}
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise ValueError('wrong')"])
@pytest.mark.parametrize("how", ["script", "module"])
def test_main_stays_the_programs_after_its_end(tmp_path: Path, end: str, how: str) -> None:
    """Threads, pickles and exit handlers look names up in ``__main__``."""
    (tmp_path / "program.py").write_text(PROGRAM.format(end=end))
    program = ["program.py"] if how == "script" else ["-m", "program"]
    process = run_module(tmp_path, "-m", "zerocopy.pool", "--host", "off", "--", *program)
    plain = run_module(tmp_path, *program)
    assert (process.returncode, process.stdout) == (plain.returncode, plain.stdout), process.stderr
    assert process.stdout == "thread True\nexit 2 True\n"
