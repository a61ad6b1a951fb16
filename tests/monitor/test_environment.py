"""``ZEROCOPY_MONITOR``: what it starts, and that an import never fails because of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.monitor_program import eventually

from zerocopy.monitor import process_record, session as environment
from zerocopy.monitor.process_record import is_zombie, start_ticks
from zerocopy.monitor.run_directory import RunFiles

LOADED = "import sys, zerocopy; print(*sorted(m for m in sys.modules if m.startswith('zerocopy.monitor')))"


def test_resident_memory_is_0_if_the_system_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process_record.resident_bytes() > 1 << 20

    def refuse(*args: Any) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(process_record, "open", refuse, raising=False)
    assert process_record.resident_bytes() == 0


@pytest.mark.parametrize("value", ["", "0"])
def test_nothing_is_started_without_a_value(value: str, run_python) -> None:
    completed = run_python(LOADED, ZEROCOPY_MONITOR=value)
    assert completed.returncode == 0, completed.stderr
    assert "zerocopy.monitor.session" not in completed.stdout
    assert value or completed.stdout.strip() == ""


def test_the_package_loads_its_parts_when_they_are_used(run_python) -> None:
    completed = run_python(
        "import sys, zerocopy as zc\n"
        "before = set(sys.modules)\n"
        "import zerocopy.monitor\n"
        "print(*sorted(set(sys.modules) - before))\n"
        "assert set(dir(zc.monitor)) == set(zc.monitor.__all__)\n"
        "assert not hasattr(zc.monitor, 'other')\n"
        "assert all(getattr(zc.monitor, name) is not None for name in zc.monitor.__all__)\n"
    )
    assert completed.returncode == 0, completed.stderr
    assert [name for name in completed.stdout.split() if "zerocopy" in name] == ["zerocopy.monitor"]


def test_the_monitor_is_an_attribute_of_the_package(run_python) -> None:
    completed = run_python("import sys, zerocopy as zc\nprint(zc.monitor.__name__, 'psutil' in sys.modules)")
    assert completed.stdout.split() == ["zerocopy.monitor", "False"], completed.stderr


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "serve:70000",
        "csv:",
        *(pytest.param(v, marks=pytest.mark.full) for v in ("serve:", "serve:x", "2")),
    ],
)
def test_invalid_values_are_warnings_that_list_the_valid_ones(value: str, run_python) -> None:
    completed = run_python("import zerocopy as zc; print(zc.view(b'abc').shape)", ZEROCOPY_MONITOR=value)
    assert (completed.returncode, completed.stdout.strip()) == (0, "(3,)")
    assert "RuntimeWarning" in completed.stderr
    assert "1, 0, serve:PORT and csv:FILE" in completed.stderr


def test_warnings_that_are_errors_do_not_prevent_the_import() -> None:
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import zerocopy; print(1)"],
        env={**os.environ, "ZEROCOPY_MONITOR": "x"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (completed.returncode, completed.stdout.strip()) == (0, "1"), completed.stderr
    assert "is not valid" in completed.stderr


@pytest.mark.parametrize(
    ("value", "command"),
    [
        ("serve:5006", ["--serve", "5006"]),
        ("csv:a b:c.csv", ["--csv", "a b:c.csv", "--append"]),
        ("serve:-1", None),
    ],
)
def test_commands_of_readers(value: str, command: list[str] | None) -> None:
    assert environment.reader_command(value) == command


def test_a_reader_gets_the_process_and_its_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[Any] = []

    class Popen:
        def __init__(self, command: list[str], **options: Any) -> None:
            started.append((command, options["env"]))

    monkeypatch.setattr(subprocess, "Popen", Popen)
    monkeypatch.setenv("ZEROCOPY_MONITOR_DIR", str(tmp_path))
    environment.start_reader(["--csv", "a.csv"])
    ((command, variables),) = started
    assert command[1:] == ["-m", "zerocopy", "monitor", "--csv", "a.csv", "--pid", str(os.getpid())]
    assert variables["ZEROCOPY_MONITOR"] == "0"  # the reader is not recorded
    assert variables["ZEROCOPY_MONITOR_DIR"] == str(tmp_path)


def test_a_reader_ends_after_its_process(tmp_path: Path) -> None:
    code = """
import sys, time, zerocopy
from zerocopy.monitor.session import start_reader
zerocopy.monitor.start()
print(start_reader(["--every", "0.1", "--csv", sys.argv[1]]).pid, flush=True)
time.sleep(100)
"""
    rows, directory = tmp_path / "rows.csv", str(tmp_path / "runs")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(rows)],
        env={**os.environ, "ZEROCOPY_MONITOR_DIR": directory},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        reader = int(process.stdout.readline())
        eventually(lambda: rows.exists() and rows.read_text().count("\n") > 2)
        process.kill()
    eventually(lambda: start_ticks(reader) is None or is_zombie(reader))
    assert rows.read_text().endswith("\n")


@pytest.mark.hazard("robustness#reader-that-stays")
@pytest.mark.full  # the reader gets 10 s for its last sample
def test_a_reader_whose_output_blocks_ends_after_its_process(tmp_path: Path) -> None:
    """No process reads from the pipe, so the reader waits in open()."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = """
import sys
from zerocopy.monitor.session import start_reader
print(start_reader(["--csv", sys.argv[1]]).pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(pipe)],
        env={**os.environ, "ZEROCOPY_MONITOR": "1", "ZEROCOPY_MONITOR_DIR": str(tmp_path / "runs")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        reader = int(process.stdout.readline())
        eventually(lambda: len(os.listdir(f"/proc/{reader}/task")) > 1)  # the thread that ends it
        assert start_ticks(reader) is not None
    eventually(lambda: start_ticks(reader) is None or is_zombie(reader))


def test_a_spawned_process_is_recorded(tmp_path: Path, run_python) -> None:
    pytest.importorskip("zerocopy.monitor.recorder")
    code = """
import subprocess, sys, numpy as np, zerocopy as zc
def work(): zc.convert(np.arange(3.0), to="numpy", copy=True)
work()
if len(sys.argv) == 1:
    source = "import numpy as np, zerocopy as zc; zc.convert(np.arange(4.0), to='numpy', copy=True)"
    subprocess.run([sys.executable, "-c", source], check=True)
assert zc.monitor.snapshot().totals.copied_bytes == 24
"""
    completed = run_python(code, ZEROCOPY_MONITOR="1", ZEROCOPY_MONITOR_DIR=str(tmp_path / "runs"))
    assert (completed.returncode, completed.stderr) == (0, "")
    records, problems = RunFiles(str(tmp_path / "runs")).read(time.time())
    assert problems == []
    assert sorted(r["conversions"][0]["copied_bytes"] for r in records) == [24, 32]
    assert all(r["ended"] for r in records)
