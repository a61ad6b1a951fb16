"""Sessions: their file, their errors, the ends of processes, forks, and what the thread costs."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.forked_child import in_child
from helpers.monitor_recorders import no_sources, recorder_of, row
from helpers.paths import ROOT

from zerocopy.errors import MonitorStateError, OptionError
from zerocopy.monitor import session as sessions
from zerocopy.monitor.process_record import MOST_SITES, no_pool
from zerocopy.monitor.run_directory import RunFiles
from zerocopy.monitor.session import Session


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Replace the recorder of new sessions, and end the session of the test."""
    monkeypatch.setenv("ZEROCOPY_MONITOR_DIR", str(tmp_path / "runs"))
    monkeypatch.setattr(sessions, "new_recorder", recorder_of(row(), row(2, copied_bytes=5)))
    monkeypatch.setattr(sessions, "SOURCES", no_sources())
    yield tmp_path / "runs"
    if sessions._current is not None:
        sessions._current._end()


def records(folder: Path) -> list[Any]:
    result, problems = RunFiles(str(folder)).read()
    assert problems == []
    return result


def test_a_session_writes_its_file_at_its_start_and_its_end(folder: Path) -> None:
    with sessions.start() as session:
        assert [(r["ended"], len(r["conversions"])) for r in records(folder)] == [(False, 2)]
        assert session.snapshot().totals.copied_bytes == 5
        assert len(session.history) >= 1
    assert [r["ended"] for r in records(folder)] == [True]
    assert sessions.new_recorder.running == 0


def test_the_thread_writes_the_file_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_WRITE_EVERY", 0.02)
    with sessions.start(every=0.01):
        first = records(folder)[0]["time"]
        deadline = time.monotonic() + 30
        while records(folder)[0]["time"] == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_calls_in_another_order_are_errors(folder: Path) -> None:
    for call in (sessions.snapshot, sessions.stop):
        with pytest.raises(MonitorStateError, match="start"):
            call()
    session = sessions.start()
    with pytest.raises(MonitorStateError, match="stop"):
        sessions.start()
    assert sessions.stop().record["ended"]
    assert session.stop().record["ended"]  # again, without an error
    sessions.start()  # after a stop
    sessions.stop()


@pytest.mark.parametrize(
    "options",
    [{"every": 0}, {"every": -1}, {"every": float("nan")}, {"every": True}, {"every": "1"}, {"keep": 0}],
)
def test_invalid_options(folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"{next(iter(options))}="):
        sessions.start(**options)
    assert sessions._current is None


def test_a_session_of_the_environment_is_given_to_the_program_once(folder: Path) -> None:
    session = sessions.start()
    session.from_environment = True
    with sessions.start() as adopted:
        assert adopted is session
        with pytest.raises(MonitorStateError):
            sessions.start()
    assert not sessions.snapshot().record["ended"]  # it goes on
    assert sessions.start() is session
    assert not sessions.stop().record["ended"]


def test_a_recorder_that_fails_leaves_no_session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions.new_recorder, "start", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sessions.start()
    assert sessions._current is None


def test_snapshot_prints_its_process_and_its_parts(folder: Path) -> None:
    with sessions.start() as session:
        shown = session.snapshot()
    shown.record["loaders"].append({"name": "a.parquet -> torch", "bottleneck": "The reader waited."})
    shown.record["pool"]["kind"] = "none"
    shown.record["shared"]["segments"] = 2
    text = str(shown)
    assert text.startswith(f"process {os.getpid()} (")
    for part in (
        "memory: ",
        "pool: none",
        "shared: 2 segments",
        "loader: a.parquet -> torch: The reader waited.",
    ):
        assert f"\n{part}" in text
    assert "2 calls: 16 B aliased, 5 B copied" in text
    assert "call site" in shown._repr_html_()
    assert json.loads(json.dumps(shown.as_dict())) == shown.record


# -- errors under a program -------------------------------------------------------------


@pytest.mark.hazard("robustness#full-disk")
def test_a_directory_that_cannot_be_written_is_one_warning(folder: Path) -> None:
    folder.write_text("a file")

    def run_session() -> None:
        with sessions.start(every=0.01) as session:
            session.snapshot()
            session.snapshot()
            folder.unlink()  # the error is gone
            session.snapshot()
            assert len(records(folder)) == 1

    with pytest.warns(RuntimeWarning, match=r"ZEROCOPY_MONITOR_DIR") as caught:
        run_session()
    assert len(caught) == 1


@pytest.mark.hazard("robustness#full-disk")
def test_a_full_disk_under_a_session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, written = os.open("/dev/full", os.O_WRONLY), os.write
    monkeypatch.setattr(sessions, "new_recorder", recorder_of(row()))
    session = Session(directory=str(folder))
    monkeypatch.setattr(os, "write", lambda fd, data: written(full, data))
    with pytest.warns(RuntimeWarning, match="No space left"):
        session._tick()
    monkeypatch.setattr(os, "write", written)
    os.close(full)
    assert list(folder.iterdir()) == []
    session._written = -100.0
    session._tick()
    assert len(records(folder)) == 1


def test_a_source_that_fails_is_empty_and_warns_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = ("the pool", lambda: 1 / 0, no_pool)
    monkeypatch.setattr(sessions, "SOURCES", {**no_sources(), "pool": failing})
    session = Session(directory=str(folder))
    with pytest.warns(RuntimeWarning, match="the pool: ZeroDivisionError") as caught:
        assert session.snapshot().record["pool"]["kind"] == session.snapshot().record["pool"]["kind"] == ""
    assert len(caught) == 1


def test_warnings_that_are_errors_do_not_end_the_thread(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorder_of(row())
    monkeypatch.setattr(sessions, "new_recorder", recorder)
    session = Session(directory=str(folder))
    recorder.rows = lambda self: 1 / 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session._tick()
    assert "ZeroDivisionError" in capsys.readouterr().err


# -- what it costs --------------------------------------------------------------------


@pytest.mark.full
def test_memory_is_constant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is the test's own: a tick is 0.2 s, and the history covers 300 s."""
    now = [0.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(sessions, "_WRITE_EVERY", 1e9)
    monkeypatch.setattr(sessions, "new_recorder", recorder_of(row()))
    session = Session(directory=str(folder))
    session._written = time.monotonic()
    sizes = []
    for tick in range(30_000):
        now[0] += 0.2
        session._tick()
        if tick % 8_000 == 4_999:
            gc.collect()
            sizes.append(sys.getallocatedblocks())
    assert len(session.history) <= 1502
    assert max(sizes) < 1.02 * sizes[0], sizes


def test_records_have_a_limited_number_of_call_sites(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(line, copied_bytes=1) for line in range(3 * MOST_SITES)]
    monkeypatch.setattr(sessions, "new_recorder", recorder_of(*rows))
    session = Session(directory=str(folder))
    record = session.snapshot().record
    assert (len(record["conversions"]), record["other_sites"]) == (MOST_SITES + 1, 2 * MOST_SITES)
    assert sum(each["copied_bytes"] for each in record["conversions"]) == 3 * MOST_SITES
    assert records(folder)[0]["other_sites"] == 2 * MOST_SITES


# -- other processes -------------------------------------------------------------------


@pytest.mark.hazard("robustness#record-in-a-child")
def test_a_forked_child_has_a_session_of_its_own(folder: Path) -> None:
    def check() -> bool:
        session = sessions._current
        assert session is not None
        return (
            session._sampler.is_running
            and session.snapshot().record["process"]["pid"] == os.getpid()
            and {r["process"]["pid"] for r in records(folder)} == {os.getpid(), os.getppid()}
            and sessions.stop().record["ended"]
        )

    with sessions.start() as session:
        assert in_child(check) == 0
        assert session._sampler.is_running
        assert session.snapshot().record["process"]["pid"] == os.getpid()


#: A session with the recorder of these tests, in another process.
PROGRAM = """
import os, sys, time
sys.path.insert(0, "tests")
from helpers.monitor_recorders import no_sources, recorder_of, row
from zerocopy.monitor import session as sessions
sessions.new_recorder = recorder_of(row(), row(2))
sessions.SOURCES = no_sources()
"""


def run(code: str, folder: Path) -> str:
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + code],
        env={**os.environ, "ZEROCOPY_MONITOR_DIR": str(folder), "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    return completed.stdout


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "os._exit(0)"])
def test_the_last_record_of_a_process(end: str, folder: Path) -> None:
    run(f"sessions.start()\n{end}", folder)
    assert [r["ended"] for r in records(folder)] == [True]


def test_workers_of_multiprocessing_write_their_last_record(folder: Path) -> None:
    run(
        """
import multiprocessing
def work():
    sessions.new_recorder.chosen = (row(3, calls=17),)
if __name__ == "__main__":
    sessions.start(every=60)
    workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
""",
        folder,
    )
    calls = sorted(sum(row["calls"] for row in record["conversions"]) for record in records(folder))
    assert calls == [2, 17, 17, 17]
    assert all(r["ended"] for r in records(folder))


@pytest.mark.hazard("robustness#record-in-a-child")
def test_forks_in_threads(folder: Path) -> None:
    run(
        """
import threading, warnings
warnings.simplefilter("ignore")  # Python warns of forks while other threads run
def fork():
    for _ in range(10):
        child = os.fork()
        if not child:
            ok = sessions._current._sampler.is_running and sessions.snapshot().rows
            os._exit(0 if ok else 1)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
statuses = []
sessions.start(every=0.01)
threads = [threading.Thread(target=fork) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert statuses == [0] * 40, statuses
assert sessions._current._sampler.is_running
""",
        folder,
    )
    assert len(records(folder)) == 41


@pytest.mark.hazard("robustness#killed-while-writing")
def test_a_killed_process_leaves_a_complete_record(folder: Path) -> None:
    """The process writes without a pause when it is killed."""
    code = PROGRAM + "session = sessions.start()\nprint(flush=True)\nwhile True: session.snapshot()"
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "ZEROCOPY_MONITOR_DIR": str(folder), "PYTHONPATH": str(ROOT)},
            cwd=ROOT, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGKILL)
    assert [r["ended"] for r in records(folder)] == [True] * 5
