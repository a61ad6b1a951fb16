"""The plugin of pytest: the mark `zero_copy` fails at a line that copies, and `--copies` lists the lines."""

from __future__ import annotations

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
    assert "leave out copy=True; or @pytest.mark.zero_copy(max_bytes=8192) allows it" in output
    assert "= copies =" not in output


@pytest.mark.parametrize("options", [[], ["-n", "2", "--dist=each"]], ids=["one process", "xdist"])
def test_report_of_lines(tmp_path: Path, options: list[str]) -> None:
    if options:
        pytest.importorskip("xdist")
    output = run(tmp_path, "--copies", "--tb=no", *options).stdout
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
    output = run(tmp_path, "--copies", "--tb=line", program=WRONG).stdout
    assert "zero_copy() got an unexpected keyword argument 'maxbytes'; did you mean 'max_bytes'?" in output
    assert "max_bytes='10 kilo': it is not a size" in output
    assert "also='pytorch': it is not the name of a known framework" in output
    assert "why: copy=True was passed" in output.partition("= copies =")[2]


def test_report_without_copies(tmp_path: Path) -> None:
    assert "No conversion copied." in run(tmp_path, "--copies", "-k", "nothing").stdout


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
