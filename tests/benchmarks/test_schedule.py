"""The order of tasks, and the budget of quick runs."""

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from helpers.benchmark_suites import run, section, suite, task, timed

from benchmarks import cli, schedule
from benchmarks.results import read
from benchmarks.suite import SUITES, Settings, Task


class Clock:
    """A clock that tasks advance."""

    now = 0.0

    def __call__(self):
        return self.now

    def task(self, name, seconds):
        def work():
            self.now += seconds
            return [timed(name)]

        return Task(name, work)


def scheduled(clock, seconds, *suites):
    settings = Settings(quick=True)
    work = schedule.pieces([(one, one.sections) for one in suites], settings)
    plan = schedule.Schedule(work, seconds, clock)
    ran = []
    for piece in plan:
        piece.task.run()
        ran.append(piece.task.name)
    return ran, plan


def test_tasks_that_do_not_fit_are_left_out_and_reported():
    clock = Clock()
    ran, plan = scheduled(clock, 10, suite(section("a", *(clock.task(f"a{i}", 3) for i in range(9)))))
    assert ran == ["a0", "a1", "a2"]
    assert clock.now <= 10
    summary = schedule.summary(plan.left_out, plan.work)
    assert summary == (
        "left out, to end within a minute: 6 of 9 tasks of tiny/a; to run them: python -m benchmarks tiny"
    )


def test_first_sections_run_first_and_each_suite_has_a_share(monkeypatch):
    monkeypatch.setattr(schedule, "FIRST", ("one/x", "one/y", "two/x"))
    clock = Clock()
    suites = [
        suite(
            *(
                section(part, *(clock.task(f"{name} {part}{i}", 2) for i in range(4)))
                for part in ("z", "x", "y")
            ),
            name=name,
        )
        for name in ("one", "two")
    ]
    ran, plan = scheduled(clock, 20, *suites)
    # Sections of the first suite in turns, for half of the time; then the other suite.
    assert ran[:6] == ["one x0", "one y0", "one x1", "one y1", "one x2", "two x0"]
    assert clock.now <= 20
    assert len(ran) + len(plan.left_out) == 24
    assert "python -m benchmarks SUITE --quick" in schedule.summary(plan.left_out, plan.work)


def test_quick_run_excludes_sections_without_quick():
    one = suite(section("a", task("a")), section("b", task("b"), quick=False))
    chosen = [(one, one.sections)]
    assert [p.task.name for p in schedule.pieces(chosen, Settings(quick=True))] == ["a"]
    assert [p.task.name for p in schedule.pieces(chosen, Settings())] == ["a", "b"]


def test_first_sections_exist():
    from benchmarks.suite import FIRST, load

    sections = {f"{name}/{one.name}" for name in SUITES for one in load(name).sections}
    assert set(FIRST) <= sections


def test_quick_run_reports_tasks_left_out(registered, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "BUDGET", 0.0)
    registered(suite(section("a", task("a")), section("b", task("b"))))
    result = run("--quick", "--json", tmp_path / "new.json")
    assert result.exit_code == 0
    assert "left out, to end within a minute: 1 of 1 tasks of tiny/a, 1 of 1 tasks of tiny/b" in result.output
    assert read(tmp_path / "new.json").facts["left_out"] == ["tiny/a: a", "tiny/b: b"]
