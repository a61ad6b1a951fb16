"""``zerocopy monitor`` without a program: reports, files, the live view, and their ends."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")
from click.testing import CliRunner, Result
from helpers.monitor_program import (
    CONVERTING,
    InTerminal,
    end,
    environment,
    eventually,
    monitor,
    start_monitor,
)
from helpers.monitor_samples import process

import zerocopy
from zerocopy.cli.main import command
from zerocopy.cli.monitor.command import monitor as monitor_command, problem
from zerocopy.cli.monitor.watching import ending_after
from zerocopy.monitor.csv_file import FIELDS
from zerocopy.monitor.run_directory import FileName, write
from zerocopy.monitor.sample import Sample

#: Is monitored until its standard input is closed.
MONITORED = f"import sys, zerocopy{CONVERTING}\nprint('ready', flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use an own run directory, in this process too."""
    for name in ("FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "ZEROCOPY_MONITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZEROCOPY_MONITOR_DIR", str(tmp_path / "run"))
    return str(tmp_path / "run")


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a folder of the test."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def recorded(directory: str) -> str:
    """Write a record of this process."""
    name = FileName.of_this_process()
    write(directory, name, process(name.pid))
    return directory


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start monitors, which are killed after the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **options: object) -> subprocess.Popen[str]:
        started.append(start_monitor(tmp_path, *arguments, **options))
        return started[-1]

    yield run
    for each in started:
        end(each)


@pytest.fixture
def monitored(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program that is monitored and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", MONITORED], env=environment(tmp_path, ZEROCOPY_MONITOR="1"), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        yield program
        program.kill()


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command(), ["monitor", *arguments], catch_exceptions=False)


# -- one report -----------------------------------------------------------------------


def test_json_is_a_sample_with_the_version(recorded: str) -> None:
    document = json.loads(invoke("--once", "--json").stdout)
    assert document["zerocopy"] == zerocopy.__version__
    assert document["processes"][0]["process"]["pid"] == os.getpid()
    assert set(document) == {"zerocopy", *Sample.__annotations__}
    assert (document["order"], document["rates"]) == ("bytes", None)
    assert json.loads(invoke("--once", "--json", "--order", "time").stdout)["order"] == "time"
    assert invoke("--once", "--order", "calls").exit_code == 2


def test_the_report_is_text(recorded: str) -> None:
    result = invoke("--once")
    assert result.exit_code == 0
    assert "fix: x.rechunk()" in result.stdout
    assert "disk read" not in result.stdout  # no rates: the samples are a quarter of a second apart
    assert max(map(len, result.stdout.split("\n"))) <= 80


def test_without_a_terminal_one_report_is_printed_and_says_why(recorded: str) -> None:
    result = invoke()
    assert "fix: x.rechunk()" in result.stdout
    assert "standard output is not a terminal" in result.stderr


def test_without_a_process_the_report_says_how_to_monitor_one() -> None:
    assert "ZEROCOPY_MONITOR=1 python script.py" in invoke("--once").stdout


def test_another_directory_is_read(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROCOPY_MONITOR_DIR", "/nonexistent")
    assert "train.py" in invoke("--once", "--directory", recorded).stdout
    assert "train.py" not in invoke("--once").stdout


def test_prometheus_text_is_printed(recorded: str) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    result = invoke("--prometheus")
    families = {each.name: each for each in parser.text_string_to_metric_families(result.stdout)}
    assert families["zerocopy_copied_bytes"].samples[0].labels["pid"] == str(os.getpid())


def test_holders_are_listed() -> None:
    assert "GPU" in invoke("--holders").stdout
    assert json.loads(invoke("--holders", "--json").stdout)["searched"] > 0


def test_fields_are_listed() -> None:
    assert invoke("--list-fields").stdout.split("\n")[:-1] == [field.column for field in FIELDS.values()]


# -- options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json"],
        ["--once", "--csv", "x.csv"],
        ["--once", "--holders"],
        ["--once", "--", "x.py"],
        ["--prometheus", "--serve"],
        ["--prometheus", "--", "x.py"],
        ["--append"],
        ["--fields", "index"],
        ["--csv", "-", "--", "x.py"],
        ["--pid", "1", "--", "x.py"],
        ["--serve", "--keep"],
        ["--address", "0.0.0.0"],
        ["--no-keep", "--", "x.py"],
        ["--serve", "65536"],
        ["--serve", "x.py"],
        ["--every", "0"],
        ["--every", "nan"],
        ["--count", "0"],
        ["--pid", "0"],
    ],
)
def test_contradictory_and_invalid_options_are_refused(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_options_without_a_contradiction_are_accepted() -> None:
    arguments = ["--csv", "a.csv", "--prometheus", "a.prom", "--serve", "0", "--", "x.py"]
    context = monitor_command.make_context("monitor", arguments)
    assert problem(SimpleNamespace(**context.params)) == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--csv", "x.csv", "--fields", "memory.usd"], "did you mean 'memory.used'"),
        (["--csv", "/nonexistent/x.csv"], "it cannot be written: No such file"),
        (["--csv", "/dev/full"], "it cannot be written: No space left"),
        (["--prometheus", "/dev/null"], "it is not a regular file"),
        (["--pid", "99999999"], "no process has this ID"),
    ],
)
def test_errors_have_the_reason(arguments: list[str], message: str, in_folder: None) -> None:
    if "--prometheus" in arguments:
        pytest.importorskip("prometheus_client")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "To fix: " in result.stderr


def test_a_port_in_use_is_an_error() -> None:
    pytest.importorskip("bokeh")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = invoke("--serve", str(other.getsockname()[1]))
    assert result.exit_code == 2
    assert "is in use" in result.stderr


# -- files -----------------------------------------------------------------------------


def test_rows_are_written_to_standard_output(recorded: str) -> None:
    rows = list(csv.DictReader(io.StringIO(invoke("--csv", "-", "--every", "0.1", "--count", "3").stdout)))
    assert len(rows) == 3
    assert rows[0]["zerocopy.calls"] == "1042"


def test_csv_and_prometheus_are_written_together(recorded: str, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    files = ["--csv", str(tmp_path / "a.csv"), "--prometheus", str(tmp_path / "a.prom")]
    assert invoke(*files, "--count", "2", "--every", "0.1").exit_code == 0
    assert len((tmp_path / "a.csv").read_text().split("\n")) == 4
    assert "zerocopy_copied_bytes_total" in (tmp_path / "a.prom").read_text()
    assert invoke(*files, "--count", "1").exit_code == 2
    assert invoke(*files, "--count", "1", "--append").exit_code == 0


def test_a_closed_pipe_ends_the_rows(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("--csv", "-", "--every", "0.1")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("timestamp,")
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == "zerocopy monitor: cannot write to standard output: Broken pipe\n"


@pytest.mark.hazard("robustness#closed-standard-output")
@pytest.mark.parametrize("arguments", [["--csv", "-"], ["--prometheus"], ["--once"], ["--once", "--json"]])
def test_a_standard_output_that_is_closed_is_an_error(arguments: list[str]) -> None:
    if "--prometheus" in arguments:
        pytest.importorskip("prometheus_client")
    command = [sys.executable, "-m", "zerocopy", "monitor", "--count", "1", *arguments]
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "Bad file descriptor" in done.stderr


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_end_the_rows(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: int, expected: int
) -> None:
    process = start("--csv", "a.csv", "--every", "0.1")
    eventually(lambda: (tmp_path / "a.csv").exists() and (tmp_path / "a.csv").read_text().count("\n") > 1)
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (expected, "")
    assert (tmp_path / "a.csv").read_text().endswith("\n")


# -- one process -------------------------------------------------------------------------


def test_rows_end_with_the_process(
    start: Callable[..., subprocess.Popen[str]], monitored: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The last row has the counts of the process's last record."""
    reader = start("--csv", "a.csv", "--every", "0.2", "--pid", str(monitored.pid))
    eventually(lambda: (tmp_path / "a.csv").exists())
    assert monitored.stdin is not None
    monitored.stdin.close()
    monitored.stdin = None
    reader.communicate(timeout=60)  # the process is a zombie meanwhile
    assert reader.returncode == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert rows[-1]["zerocopy.copied [bytes]"] == "8000"


def test_a_process_that_has_ended_is_shown_once(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", CONVERTING], env=environment(tmp_path, ZEROCOPY_MONITOR="1")
    )
    assert program.wait(timeout=60) == 0
    done = monitor(tmp_path, "--csv", "-", "--pid", str(program.pid), "--fields", "zerocopy.calls")
    assert done.stdout == "zerocopy.calls\n2\n2\n"


def test_the_environment_starts_a_reader(tmp_path: Path) -> None:
    """It ends after the program, and its last row has all counts."""
    done = subprocess.run(
        [sys.executable, "-c", f"{CONVERTING}\nimport time; time.sleep(1.5)"], cwd=tmp_path, timeout=60,
        env=environment(tmp_path, ZEROCOPY_MONITOR="csv:a.csv"), capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    last = (tmp_path / "a.csv").read_text().rstrip().split("\n")[-1]
    assert ",8000," in last


# -- the live view ------------------------------------------------------------------------


@pytest.mark.parametrize("typed", [b"q", b"\x03"])
def test_the_live_view_ends_and_restores_the_terminal(recorded: str, tmp_path: Path, typed: bytes) -> None:
    terminal = InTerminal(tmp_path)
    try:
        terminal.read_until(b"x.rechunk()")
        assert not terminal.echoes
        terminal.type(b"x" + typed)
        assert terminal.finish() == 0
        assert terminal.echoes
    finally:
        terminal.close()
    output = terminal.output
    assert output.rindex(b"\x1b[?1049l") > output.index(b"\x1b[?1049h")
    assert b"Traceback" not in output


@pytest.mark.hazard("robustness#killed-live-view")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_killed_live_view_restores_the_terminal(recorded: str, tmp_path: Path, number: int) -> None:
    terminal = InTerminal(tmp_path)
    try:
        terminal.read_until(b"x.rechunk()")
        os.kill(terminal.process.pid, number)
        assert terminal.finish() == 128 + number
        assert terminal.echoes
    finally:
        terminal.close()
    assert b"\x1b[?1049l" in terminal.output


def test_the_bound_of_a_reader_ends_with_its_command() -> None:
    """A program can run the command in its own process, which must not be ended later."""
    with ending_after(FileName(os.getpid(), 0)):  # a process that has ended: its number is used again
        assert bound_runs()
    eventually(lambda: not bound_runs())


def bound_runs() -> bool:
    """Return whether the thread runs that ends a reader after its program."""
    return any(thread.name == "zerocopy-monitor-end" for thread in threading.enumerate())
