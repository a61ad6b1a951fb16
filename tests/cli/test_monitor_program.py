"""Programs under the monitor: they behave as alone, and a report follows."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")
from helpers.monitor_program import (
    CONVERTING,
    WAITING,
    InTerminal,
    end,
    environment,
    eventually,
    monitor,
    start_monitor,
)

from zerocopy.cli.monitor.program import OptionError, _is_for_group, command_of, private_directory
from zerocopy.errors import MonitorFileError

pytestmark = pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="the system has no sigtimedwait")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start monitors, which are killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **options: object) -> subprocess.Popen[str]:
        started.append(start_monitor(tmp_path, *arguments, **options))
        return started[-1]

    yield run
    for process in started:
        end(process)


def test_the_report_names_the_line_that_copies(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CONVERTING)
    done = monitor(tmp_path, "--", "train.py")
    assert (done.returncode, done.stdout) == (0, "")
    assert "train.py ended with exit code 0" in done.stderr
    assert "7.8 KiB copied" in done.stderr
    assert "train.py:4" in done.stderr.replace("\n", "")
    assert "why: copy=True was passed" in done.stderr
    assert max(map(len, done.stderr.split("\n"))) <= 80
    assert not list((tmp_path / "run").glob("run-*")), "the private directory is removed"


WRITING = """
import zerocopy as zc
alias = zc.convert(bytes(80), to="numpy")
alias.flags.writeable = True
alias[70] = 1
"""


def test_writes_to_immutable_memory_are_reported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WRITING)
    done = monitor(tmp_path, "--writes", "--", "train.py")
    assert (done.returncode, done.stdout) == (0, "")
    write, _, report = done.stderr.partition("zerocopy monitor: train.py ended with")
    assert "train.py:3 <module>: bytes uint8 (80,) is immutable" in write
    assert "changed: bytes 64 to 79 of 80 (rows 64 to 79)" in write
    assert "1 call: 80 B aliased" in report
    assert "changed" not in monitor(tmp_path, "--", "train.py").stderr
    (tmp_path / "train.py").write_text("import zerocopy as zc\nzc.convert(bytes(80), to='numpy')")
    clean = monitor(tmp_path, "--writes", "--", "train.py").stderr
    assert clean.startswith("zerocopy monitor: no writes to immutable memory through aliases"), clean
    assert "--writes needs a program" in monitor(tmp_path, "--writes").stderr


PROBE = """
import os, sys
print(sys.argv, __name__, __file__ if "__file__" in globals() else None, sys.path[0], os.getcwd())
print(sys.stdin.read())
print("to stderr", file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments", [["probe.py", "a", "--csv", "x", "--", "-h"], ["-m", "probe", "b"], ["-c", PROBE, "--once"]]
)
def test_the_program_behaves_as_alone(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    alone = subprocess.run(
        [sys.executable, *arguments], env=environment(tmp_path), cwd=tmp_path, input="some\ninput", text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip
    done = monitor(tmp_path, "--", *arguments, input="some\ninput")
    assert done.stdout == alone.stdout
    assert alone.stdout
    assert done.stderr.startswith("to stderr\n")


def test_options_after_the_program_are_the_programs(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("import sys; print(sys.argv[1:])")
    assert monitor(tmp_path, "probe.py", "--once", "-h").stdout == "['--once', '-h']\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(7)", 7),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.abort()", 134),
    ],
)
def test_the_exit_code_is_the_programs(tmp_path: Path, code: str, expected: int) -> None:
    done = monitor(tmp_path, "--", "-c", code)
    assert done.returncode == expected
    assert ("killed by SIG" in done.stderr) == (expected > 128)


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 138)]
)
def test_signals_to_the_monitor_are_passed_on(
    start: Callable[..., subprocess.Popen[str]], number: int, expected: int
) -> None:
    process = start("--", "-c", WAITING)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == expected
    assert f"killed by {signal.Signals(number).name}" in errors


COUNTING = """
import signal, sys, time
received = []
signal.signal(signal.SIGINT, lambda *_: received.append(1))
print("ready", flush=True)
while not received: time.sleep(0.05)
time.sleep(1)
print("received", len(received))
sys.exit(5)
"""


@pytest.mark.hazard("robustness#ctrl-c-twice")
def test_ctrl_c_in_a_terminal_reaches_the_program_once(tmp_path: Path) -> None:
    """The terminal sends SIGINT to the program too: the monitor does not pass it on."""
    terminal = InTerminal(tmp_path, "--", "-c", COUNTING)
    try:
        terminal.read_until(b"ready")
        terminal.type(b"\x03")
        assert terminal.finish() == 5
    finally:
        terminal.close()
    assert b"received 1\r\n" in terminal.output
    assert b"ended with exit code 5" in terminal.output


def test_sighup_of_the_kernel_is_passed_on() -> None:
    """The kernel sends it to the leader of the session alone, which the monitor is in ``ssh -t HOST``."""
    of_kernel = 0x80  # SI_KERNEL
    assert _is_for_group(SimpleNamespace(si_signo=signal.SIGINT, si_code=of_kernel))
    assert not _is_for_group(SimpleNamespace(si_signo=signal.SIGHUP, si_code=of_kernel))
    assert not _is_for_group(SimpleNamespace(si_signo=signal.SIGINT, si_code=0))


def test_a_signal_to_end_closes_the_page_too(start: Callable[..., subprocess.Popen[str]]) -> None:
    pytest.importorskip("bokeh")
    process = start("--serve", "--keep", "--", "-c", WAITING)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGHUP)
    process.communicate(timeout=60)
    assert process.returncode == 129


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """As nohup ignores SIGHUP for the program."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
        assert monitor(tmp_path, "--", "-c", code).stdout == "True\n"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_no_signal_is_held_back_from_the_program(tmp_path: Path) -> None:
    code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    assert monitor(tmp_path, "--", "-c", code).stdout == "set()\n"


def test_rows_are_written_while_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CONVERTING)
    done = monitor(tmp_path, "--csv", "out.csv", "--every", "0.2", "--", "train.py")
    assert done.returncode == 0
    with open(tmp_path / "out.csv") as file:
        rows = list(csv.DictReader(file))
    assert rows[-1]["zerocopy.copied [bytes]"] == "8000"
    assert rows[-1]["zerocopy.calls"] == "2"


def test_children_are_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CONVERTING)
    (tmp_path / "train.py").write_text(
        f"{CONVERTING}\nimport subprocess, sys\nsubprocess.run([sys.executable, 'child.py'], check=True)"
    )
    done = monitor(tmp_path, "--", "train.py")
    assert "2 processes" in done.stderr
    assert "train.py:4" in done.stderr
    assert "child.py:4" in done.stderr


@pytest.mark.hazard("robustness#full-disk-of-csv")
def test_a_full_disk_does_not_end_the_program(tmp_path: Path) -> None:
    """The header fits into the limit of the file, and no row does."""
    code = "import time; time.sleep(1); print('the end')"
    script = 'ulimit -f 1; exec "$@"'
    command = [sys.executable, "-m", "zerocopy", "monitor", "--csv", "out.csv", "--every", "0.1"]
    done = subprocess.run(
        ["bash", "-c", script, "bash", *command, "--", "-c", code], env=environment(tmp_path), cwd=tmp_path,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "the end\n")
    assert done.stderr.count("cannot write to out.csv") == 1
    assert "File too large" in done.stderr


def test_a_closed_pipe_of_the_report_keeps_the_exit_code(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = monitor(tmp_path, "--", "-c", "raise SystemExit(3)", capture_output=False, stderr=write)
    os.close(write)
    assert done.returncode == 3


@pytest.mark.hazard("robustness#killed-monitor")
def test_directories_of_killed_monitors_are_removed(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start("--", "-c", WAITING)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (left,) = (tmp_path / "run").glob("run-*")
    end(process)
    assert left.exists()
    monitor(tmp_path, "--", "-c", "pass")
    assert not left.exists()


@pytest.mark.parametrize("value", ["absent.py", "absent-command"])
def test_a_missing_program_is_an_error(tmp_path: Path, value: str) -> None:
    done = monitor(tmp_path, "--", value)
    assert done.returncode == 2
    assert "there is no such file or command" in done.stderr


def test_commands_are_found(tmp_path: Path) -> None:
    assert command_of(["-m", "x"]) == [sys.executable, "-m", "x"]
    assert command_of([sys.executable, "x.py"]) == [sys.executable, "x.py"]
    assert command_of(["sh", "x"])[0].endswith("/sh")
    with pytest.raises(OptionError):
        command_of(["absent"])


def test_the_page_is_served_until_the_program_ends(start: Callable[..., subprocess.Popen[str]]) -> None:
    pytest.importorskip("bokeh")
    from urllib.request import urlopen

    process = start("--serve", "--", "-c", WAITING)
    assert process.stderr is not None
    address = process.stderr.readline().split()[-1]
    assert address.startswith("http://127.0.0.1:")
    with urlopen(address, timeout=60) as response:
        assert response.status == 200
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


def test_the_page_stays_if_asked(start: Callable[..., subprocess.Popen[str]]) -> None:
    pytest.importorskip("bokeh")
    process = start("--serve", "--keep", "--", "-c", "raise SystemExit(4)")
    assert process.stderr is not None
    eventually(lambda: "the page stays until Ctrl+C" in process.stderr.readline())
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 4


def test_a_run_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    done = monitor(tmp_path, "--", "-c", "print('started')")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the run directory" in done.stderr
    assert "To fix: set ZEROCOPY_MONITOR_DIR" in done.stderr
    done = monitor(tmp_path, "--directory", str(tmp_path / "other"), "--", "-c", CONVERTING)
    assert done.returncode == 0
    assert "1 call" not in done.stderr
    assert "2 calls" in done.stderr


def test_a_file_system_without_new_directories_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROCOPY_MONITOR_DIR", "/proc/zerocopy")
    with pytest.raises(MonitorFileError, match="it cannot be created"), private_directory():
        pass
