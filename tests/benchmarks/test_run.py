"""Runs: failures, interrupts, and the output of libraries."""

import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from helpers.benchmark_suites import SHORT, run, section, suite, task

from benchmarks.results import read
from benchmarks.suite import Case, Entry, Goal, Task
from benchmarks.timing import Raised, Statement, measure


def broken():
    raise ValueError("it broke")


def test_failed_task_is_reported_and_others_run(registered, tmp_path):
    registered(suite(section("pairs", Task("a", broken), task("b"))))
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 1
    assert "failed: a: ValueError: it broke" in result.output
    written = read(tmp_path / "new.json")
    assert not written.complete
    assert [case.name for case in written.cases["tiny/pairs"] if case.timed()] == ["b"]


def test_contender_that_raises_is_left_out(registered, tmp_path):
    def contest():
        turns = iter(range(10**9))
        codes = {"1 + 1": "ours", "1 / 0": "idiom", "later()": "idiom", "2 + 2": "reference", "(": "library"}
        names = {"later": lambda: 1 / (next(turns) < 2)}
        timings = measure({code: Statement(code, names) for code in codes}, SHORT)
        return [Case("a", [Entry(code, role, timings[code]) for code, role in codes.items()])]

    registered(suite(section("pairs", Task("a", contest), look="rivals")))
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 0, result.output
    (case,) = read(tmp_path / "new.json").cases["tiny/pairs"]
    assert {e.label for e in case.timed()} == {"1 + 1", "2 + 2"}
    reasons = {e.label: e.left_out for e in case.entries if e.left_out}
    assert reasons["1 / 0"] == reasons["later()"] == "raises ZeroDivisionError: division by zero"
    assert reasons["("].startswith("raises SyntaxError: ")
    assert "left out 1 / 0: raises ZeroDivisionError" in result.output


def test_zerocopy_that_raises_is_a_failure(registered):
    def contest():
        timings = measure({"1 / 0": Statement("1 / 0", {})}, SHORT)
        assert isinstance(timings["1 / 0"], Raised)
        return [Case("a", [Entry("1 / 0", "ours", timings["1 / 0"])])]

    registered(suite(section("pairs", Task("a", contest))))
    result = run()
    assert result.exit_code == 1
    assert "failed: a: 1 / 0 raises ZeroDivisionError: division by zero" in result.output


def test_figures_are_kept_if_goals_raise(registered, tmp_path):
    registered(suite(section("pairs", task("a"), goals=lambda cases: 1 / 0)))
    assert run("--json", tmp_path / "new.json").exit_code == 1
    assert read(tmp_path / "new.json").cases["tiny/pairs"][0].timed()


def test_goal_with_nan_is_a_failure(registered, tmp_path):
    goals = lambda cases: [Goal("fast", "a", float("nan"), 2.0, "x"), Goal("small", "a", 1.0, 2.0)]  # noqa: E731
    registered(suite(section("pairs", task("a"), goals=goals)))
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 1
    assert "failed: a: fast: nan against 2.0 cannot be judged" in result.output
    written = read(tmp_path / "new.json")
    assert [goal.name for goal in written.goals] == ["small"]
    assert not written.complete


def interrupted():
    raise KeyboardInterrupt


def test_interrupt_keeps_results(registered, tmp_path):
    registered(suite(section("pairs", task("a"), Task("b", interrupted), task("c"))))
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 130
    written = read(tmp_path / "new.json")
    assert [case.name for case in written.cases["tiny/pairs"]] == ["a"]
    assert not written.complete
    assert "INCOMPLETE" in result.output
    assert "Traceback" not in result.output


_PROGRAM = """
import os, signal, subprocess, sys, time, types
from benchmarks import cli, suite
from benchmarks.suite import Case, Section, Suite, Task

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def wait():
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
         "print('started', flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    # The file is written inside, because the signal can come at once. It is closed before it gets its name:
    # Python drops the exception of a signal that comes while it frees an object, such as an open file.
    try:
        with open({pid_file!r} + ".new", "w") as file:
            file.write(str(child.pid))
        os.replace({pid_file!r} + ".new", {pid_file!r})
        time.sleep(600)
    finally:
        open({pid_file!r} + ".ending", "w").close()
        child.wait()

tasks = [Task("a", lambda: [Case("a", figures={{"bytes": 1}})]), Task("b", {second})]
module = types.ModuleType("temporary")
module.SUITE = Suite("tiny", "", (Section("pairs", "", lambda settings: tasks, "figures"),))
sys.modules["temporary"] = module
suite.SUITES.clear()
suite.SUITES["tiny"] = "temporary"
cli.main(["--json", {target!r}], prog_name="benchmarks")
"""


def program(tmp_path, second):
    code = _PROGRAM.format(pid_file=str(tmp_path / "child"), second=second, target=str(tmp_path / "new.json"))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(path):
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} was not created")


def test_killed_run_leaves_its_results(tmp_path):
    process = program(tmp_path, "kill")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    written = read(tmp_path / "new.json")
    assert [case.name for case in written.cases["tiny/pairs"]] == ["a"]
    assert not written.complete


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_second_interrupt_kills_children_without_traceback(tmp_path):
    process = program(tmp_path, "wait")
    wait_for(tmp_path / "child")
    os.killpg(process.pid, signal.SIGINT)
    wait_for(tmp_path / "child.ending")  # it waits for a child that does not end
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "interrupted" in errors
    child = int((tmp_path / "child").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert [case.name for case in read(tmp_path / "new.json").cases["tiny/pairs"]] == ["a"]


def test_output_of_libraries_is_captured(tmp_path):
    process = program(tmp_path, "lambda: os.write(2, b'noise') and os.write(1, b'noise') and []")
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "noise" not in output + errors
    assert "tiny/pairs" in output
