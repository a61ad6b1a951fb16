"""Runs: failures, interrupts, and the output of libraries."""

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from helpers.benchmark_suites import SHORT, run, section, suite, task

import zerocopy as zc
from benchmarks.results import read
from benchmarks.suite import Case, Entry, Goal, Task
from benchmarks.tables.contest import differ, tensors
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


def test_values_and_masks_of_tables_are_compared_with_pairs():
    torch, pa = pytest.importorskip("torch"), pytest.importorskip("pyarrow")
    masked = tensors(zc.convert(pa.table({"x": [1, None]}), "torch", nulls="mask"))
    by_hand = tensors({"x": (torch.tensor([1, 7]), torch.tensor([False, True]))})
    assert differ(masked, by_hand) == ""
    assert differ(masked, tensors({"x": (torch.tensor([2, 0]), torch.tensor([False, True]))})) != ""
