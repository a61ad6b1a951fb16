"""The plugin of pytest: the mark `zero_copy` fails at a line that copies; `--zerocopy-copies` lists lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from helpers.paths import ROOT

# Without it, pytest from a clone that is not installed does not know the plugin.
PLUGIN = ["-p", "zerocopy.pytest_plugin"]
if any(point.value == PLUGIN[1] for point in entry_points(group="pytest11")):
    PLUGIN = []

PROGRAM = """
import numpy as np, pytest, zerocopy as zc

x = np.arange(1024, dtype=">f8")

@pytest.fixture
def copied():
    return zc.convert(x, "numpy", copy=True)

@pytest.mark.zero_copy
def test_aliases(copied):
    zc.convert(memoryview(copied), "numpy")

@pytest.mark.zero_copy
def test_copies():
    zc.convert(x, "numpy")
    zc.convert(x, "numpy", dtype="float32")  # fails

@pytest.mark.zero_copy(max_bytes="8 KiB", also=("numpy",))
def test_copies_little():
    zc.convert(x, "numpy", copy=True)

@pytest.mark.zero_copy(100)
class TestClass:
    def test_copies_much(self):
        zc.convert(x, "numpy", copy=True)  # fails

def test_is_not_guarded():
    for _ in range(3):
        zc.convert(x, "numpy", dtype="float32")
"""


def run(folder: Path, *options: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    file = folder / "test_program.py"
    file.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", "--strict-markers"]
    return subprocess.run(
        [*command, "-c", "/dev/null", f"--rootdir={folder}", *options, str(file)],
        capture_output=True, text=True, cwd=ROOT, timeout=300,
    )  # fmt: skip


FAILED = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# fails")]


def test_marked_tests_fail_at_the_line_that_copies(tmp_path: Path) -> None:
    output = run(tmp_path, "--tb=short").stdout
    assert "2 failed, 3 passed" in output, output
    lines = re.findall(r"^\S*test_program\.py:(\d+): in", output, re.M)
    assert [int(line) for line in lines] == FAILED, output
    assert "To fix: zc.convert(x.astype(x.dtype.newbyteorder('=')), \"numpy\")" in output
    assert "leaves copy=True out; or @pytest.mark.zero_copy(max_bytes=8192) allows it" in output
    assert "= copies =" not in output


@pytest.mark.parametrize("options", [[], ["-n", "2", "--dist=each"]], ids=["one process", "xdist"])
def test_report_of_lines(tmp_path: Path, options: list[str]) -> None:
    if options:
        pytest.importorskip("xdist")
    output = run(tmp_path, "--zerocopy-copies", "--tb=no", *options).stdout
    report = output.partition("= copies =")[2]
    rows = re.findall(r"test_program\.py:(\d+) .*?\s(\d+)\s+0 B\s+(\S+ KiB)", report)
    number = 2 if options else 1  # each worker runs all tests
    assert rows == [
        ("30", str(3 * number), f"{12 * number} KiB"),
        ("8", str(number), f"{8 * number} KiB"),
        ("21", str(number), f"{8 * number} KiB"),
    ], output
    assert f"{5 * number} calls: 0 B aliased, {28 * number} KiB copied" in report
    assert "why: the byte order (>f8) is not native" in report
    assert "fix: x.astype(x.dtype.newbyteorder('=')) swaps the bytes once" in report


WRONG = """
import numpy as np, pytest, zerocopy as zc

@pytest.mark.zero_copy(maxbytes=5)
def test_name(): ...

@pytest.mark.zero_copy(max_bytes="10 kilo")
def test_size(): ...

@pytest.mark.zero_copy(also="pytorch")
def test_framework(): ...

def copy(order):
    return zc.convert(np.arange(1024.0)[::order], "numpy", copy=True)

def test_reason():
    copy(1)
    with pytest.raises(zc.errors.CopyRequiredError), zc.forbid_copies():
        copy(1)
"""


def test_wrong_options_of_the_mark_and_a_reason_beside_a_forbidden_copy(tmp_path: Path) -> None:
    output = run(tmp_path, "--zerocopy-copies", "--tb=line", program=WRONG).stdout
    assert "zero_copy() got an unexpected keyword argument 'maxbytes'; did you mean 'max_bytes'?" in output
    assert "max_bytes='10 kilo': it is not a size" in output
    assert "also='pytorch': it is not the name of a known framework" in output
    assert "why: copy=True was passed" in output.partition("= copies =")[2]


def test_report_without_copies(tmp_path: Path) -> None:
    assert "No conversion copied." in run(tmp_path, "--zerocopy-copies", "-k", "nothing").stdout


CONFTEST = """
def pytest_addoption(parser):
    for name in ("producer", "consumer", "allow", "copies"):
        parser.addoption(f"--{name}")
"""


def test_the_installed_plugin_does_not_break_other_projects(tmp_path: Path) -> None:
    """Options of the same names, and warnings that are errors when zerocopy was imported before pytest."""
    info, project = tmp_path / "path" / "zerocopy-0.dist-info", tmp_path / "project"
    info.mkdir(parents=True)
    project.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zerocopy\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\nzerocopy.pytest_plugin = zerocopy.pytest_plugin\n")
    files = ("__init__.py", "interpreter.py", "pytest_plugin/__init__.py")
    (info / "RECORD").write_text("".join(f"zerocopy/{name},,\n" for name in files))
    (project / "conftest.py").write_text(CONFTEST)
    (project / "test_it.py").write_text("def test_it(): pass\n")
    program = "import sys, zerocopy, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-W", "error", "-p", "no:cacheprovider", "-c", "/dev/null", "--producer=x", str(project)]
    process = subprocess.run(
        [sys.executable, "-c", program, *options], capture_output=True, text=True, cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(info.parent), str(ROOT)])},
    )  # fmt: skip
    assert "1 passed" in process.stdout, process


ASYNC = """
import unittest, pytest

class TestAsync(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.zero_copy
    async def test_runs_in_a_context_of_its_own(self):
        pass
"""


def test_a_mark_that_cannot_guard_a_test_fails_it(tmp_path: Path) -> None:
    output = run(tmp_path, program=ASYNC).stdout
    assert "1 failed" in output, output
    assert "write zc.forbid_copies() within the test" in output


def test_the_plugin_imports_nothing(run_python) -> None:
    process = run_python(
        """
        import sys, pytest
        before = set(sys.modules)
        import zerocopy.pytest_plugin
        print(*sorted(set(sys.modules) - before))
        """
    )
    assert process.stdout.split() == ["zerocopy", "zerocopy.interpreter", "zerocopy.pytest_plugin"], process
