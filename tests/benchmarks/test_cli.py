"""``python -m benchmarks``: what is asked for is run, what was measured is kept, bad input is said."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

import click
from click.testing import CliRunner

from benchmarks import cli, interrupt, page, schedule
from benchmarks.results import Results, read
from benchmarks.suite import SUITES, Case, Entry, Goal, Section, Settings, Suite, Task
from benchmarks.timing import Pace, Raised, Statement, Timing, measure

SHORT = Pace(rounds=2, block=1000, patience=1000)


def timed(name, ours=100.0, other=200.0):
    return Case(
        name,
        [
            Entry("zc.convert(x)", "ours", Timing.of([ours])),
            Entry("by_hand(x)", "idiom", Timing.of([other])),
        ],
    )


def task(name, ours=100.0):
    return Task(name, lambda: [timed(name, ours)])


def suite(*sections, name="tiny"):
    return Suite(name, "a made-up suite", sections, frameworks=("numpy", "torch"))


def section(name, *tasks, **more):
    return Section(name, f"about {name}", lambda settings: list(tasks), **more)


@pytest.fixture
def registered(monkeypatch):
    """Return a function that makes its suites the only ones there are."""

    def register(*suites):
        names = {}
        for one in suites:
            module = types.ModuleType(f"made_up_{one.name}")
            module.SUITE = one
            monkeypatch.setitem(sys.modules, module.__name__, module)
            names[one.name] = module.__name__
        monkeypatch.setattr(cli, "SUITES", names)
        monkeypatch.setattr("benchmarks.suite.SUITES", names)
        return names

    return register


@pytest.fixture
def tiny(registered):
    goals = lambda cases: [Goal("fast", c.name, 1.0, 2.0, "x") for c in cases]  # noqa: E731
    registered(suite(section("pairs", task("a"), task("b"), goals=goals), section("sizes", task("c"))))


def run(*arguments):
    return CliRunner().invoke(cli.main, list(map(str, arguments)), catch_exceptions=False)


def test_all_of_it_is_run_and_written(tiny, tmp_path):
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 0, result.output
    found = read(tmp_path / "new.json")
    assert {key: [case.name for case in cases] for key, cases in found.cases.items()} == {
        "tiny/pairs": ["a", "b"],
        "tiny/sizes": ["c"],
    }
    assert found.complete
    assert [(goal.case, goal.section) for goal in found.goals] == [("a", "tiny/pairs"), ("b", "tiny/pairs")]
    assert found.facts["settings"]["quick"] is False
    assert {"machine", "versions", "started", "finished", "asked"} <= found.facts.keys()
    assert "0.50x -100 ns" in result.output


def test_a_section_or_a_suite_is_asked_for(tiny, tmp_path):
    run("tiny/sizes", "--json", tmp_path / "one.json")
    assert list(read(tmp_path / "one.json").cases) == ["tiny/sizes"]
    run("--suite", "tiny", "--json", tmp_path / "all.json")
    assert list(read(tmp_path / "all.json").cases) == ["tiny/pairs", "tiny/sizes"]


def test_a_folder_gets_a_name_made_up(tiny, tmp_path):
    run("--json", tmp_path)
    run("--json", f"{tmp_path}/new/")
    (name,) = [path.name for path in tmp_path.glob("*.json")]
    assert name.startswith("tiny-")
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]


def test_folders_are_made(tiny, tmp_path):
    assert run("--json", tmp_path / "a" / "b" / "c.json").exit_code == 0
    assert read(tmp_path / "a" / "b" / "c.json").complete


def test_suites_and_sections_are_listed(tiny):
    told = run("--list").output
    assert "tiny/pairs: about pairs" in told
    assert "tiny/sizes: about sizes" in told


def test_settings_reach_the_tasks(registered):
    seen = []

    def tasks(settings):
        seen.append(settings)
        return [task("a")]

    registered(suite(Section("pairs", "", tasks)))
    run("--quick", "--frameworks", "torch, numpy", "--sizes", "4,4KiB,1MiB,2g")
    (settings,) = seen
    assert settings.quick
    assert settings.frameworks == ("torch", "numpy")
    assert settings.sizes == (4, 4096, 2**20, 2**31)


# -- bad input --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tinny"], "no suite 'tinny'. did you mean 'tiny'? There are: tiny"),
        (["--suite", "nonsense"], "no suite 'nonsense'. There are: tiny"),
        (["tiny/pair"], "no section of tiny 'pair'. did you mean 'pairs'? There are: pairs, sizes"),
        (["--frameworks", "numppy"], "no framework 'numppy'. did you mean 'numpy'? There are: numpy, torch"),
        (["--sizes", "many"], "'many' is no size"),
        (["--sizes", "4,0"], "'0' is no size"),
        (["--sizes", ""], "'' is no size"),
        (["--sizes", "-4"], "'-4' is no size"),
        (["--threshold", "0.5"], "x>=1"),
        (["--compare", "no-such-file.json"], "does not exist"),
    ],
)
def test_what_is_not_known_is_said_with_what_is(tiny, arguments, told):
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "it is not JSON"),
        ("[1, 2]", "holds no results of benchmarks"),
        ('{"schema": 99, "sections": {}}', "has schema 99, and this program reads 1"),
        ('{"schema": 1, "sections": {}}', "holds no results of benchmarks: KeyError"),
        ('{"schema": 1, "sections": {"a/b": 3}}', "holds no results of benchmarks"),
        ("\x00\xff", "it is not JSON"),
    ],
)
def test_files_that_hold_no_results(tiny, tmp_path, text, told):
    path = tmp_path / "old.json"
    path.write_bytes(text.encode("latin-1"))
    result = run("--compare", path)
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_files_whose_parts_do_not_fit_together(tiny, tmp_path):
    path = tmp_path / "old.json"
    run("--json", path)
    plain = json.loads(path.read_text())
    plain["sections"]["other/pairs"] = []
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match="sections of other, and says that it is of tiny"):
        read(path)


def test_what_cannot_be_written_is_said_before_anything_is_measured(registered, tmp_path):
    ran = []
    registered(suite(section("pairs", Task("a", lambda: ran.append(1) or [timed("a")]))))
    (tmp_path / "file").write_text("")
    result = run("--json", tmp_path / "file" / "new.json")
    assert result.exit_code == 1
    assert "cannot write" in result.output
    assert not ran


def test_pictures_without_matplotlib_are_refused_before_anything_is_measured(
    registered, tmp_path, monkeypatch
):
    ran = []
    registered(suite(section("pairs", Task("a", lambda: ran.append(1) or [timed("a")]))))
    from benchmarks import plots

    monkeypatch.setattr(plots.importlib.util, "find_spec", lambda name: None)
    result = run("--plot", tmp_path / "out")
    assert result.exit_code == 1
    assert "pip install matplotlib" in result.output
    assert not ran
    assert not (tmp_path / "out").exists()


def test_without_its_libraries_the_command_says_how_to_get_them():
    hidden = textwrap.dedent("""
        import importlib.util, runpy
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *a: None if name in ("rich", "psutil") else found(name, *a)
        runpy.run_module("benchmarks", run_name="__main__")
    """)
    told = subprocess.run(
        [sys.executable, "-c", hidden], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert told.stderr.startswith("python -m benchmarks needs psutil, rich: pip install psutil rich")
    assert "Traceback" not in told.stderr


# -- what goes wrong on the way ---------------------------------------------------


def broken():
    raise ValueError("it broke")


def test_a_task_that_fails_is_reported_and_the_others_go_on(registered, tmp_path):
    registered(suite(section("pairs", Task("a", broken), task("b"))))
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 1
    assert "failed: a: ValueError: it broke" in result.output
    found = read(tmp_path / "new.json")
    assert not found.complete
    assert [case.name for case in found.cases["tiny/pairs"] if case.timed()] == ["b"]


def test_a_contender_that_raises_is_left_out_and_the_others_have_times(registered, tmp_path):
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
    told = {e.label: e.left_out for e in case.entries if e.left_out}
    assert told["1 / 0"] == told["later()"] == "raises ZeroDivisionError: division by zero"
    assert told["("].startswith("raises SyntaxError: ")
    assert "left out 1 / 0: raises ZeroDivisionError" in result.output


def test_ours_that_raises_is_a_failure(registered):
    def contest():
        timings = measure({"1 / 0": Statement("1 / 0", {})}, SHORT)
        assert isinstance(timings["1 / 0"], Raised)
        return [Case("a", [Entry("1 / 0", "ours", timings["1 / 0"])])]

    registered(suite(section("pairs", Task("a", contest))))
    result = run()
    assert result.exit_code == 1
    assert "failed: a: 1 / 0 raises ZeroDivisionError: division by zero" in result.output


def test_goals_that_raise_lose_no_figures(registered, tmp_path):
    registered(suite(section("pairs", task("a"), goals=lambda cases: 1 / 0)))
    assert run("--json", tmp_path / "new.json").exit_code == 1
    assert read(tmp_path / "new.json").cases["tiny/pairs"][0].timed()


def interrupted():
    raise KeyboardInterrupt


def test_an_interrupt_keeps_what_was_measured(registered, tmp_path):
    registered(suite(section("pairs", task("a"), Task("b", interrupted), task("c"))))
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 130
    found = read(tmp_path / "new.json")
    assert [case.name for case in found.cases["tiny/pairs"]] == ["a"]
    assert not found.complete
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
         "print('here', flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    )
    child.stdout.readline()
    open({told!r}, "w").write(str(child.pid))
    try:
        time.sleep(600)
    finally:
        open({told!r} + ".ending", "w").close()
        child.wait()

tasks = [Task("a", lambda: [Case("a", figures={{"bytes": 1}})]), Task("b", {second})]
made = types.ModuleType("made_up")
made.SUITE = Suite("tiny", "", (Section("pairs", "", lambda settings: tasks, "figures"),))
sys.modules["made_up"] = made
suite.SUITES.clear()
suite.SUITES["tiny"] = "made_up"
cli.main(["--json", {target!r}], prog_name="benchmarks")
"""


def program(tmp_path, second):
    code = _PROGRAM.format(told=str(tmp_path / "child"), second=second, target=str(tmp_path / "new.json"))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def waited_for(path):
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come")


def test_a_run_that_is_killed_leaves_what_it_had_measured(tmp_path):
    process = program(tmp_path, "kill")
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    found = read(tmp_path / "new.json")
    assert [case.name for case in found.cases["tiny/pairs"]] == ["a"]
    assert not found.complete


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_second_interrupt_ends_children_and_leaves_no_traceback(tmp_path):
    process = program(tmp_path, "wait")
    waited_for(tmp_path / "child")
    os.killpg(process.pid, signal.SIGINT)
    waited_for(tmp_path / "child.ending")  # it waits for a child that does not end
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in told
    assert "interrupted" in told
    child = int((tmp_path / "child").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert [case.name for case in read(tmp_path / "new.json").cases["tiny/pairs"]] == ["a"]


def test_what_libraries_print_does_not_reach_the_terminal(tmp_path):
    process = program(tmp_path, "lambda: os.write(2, b'noise') and os.write(1, b'noise') and []")
    out, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "noise" not in out + told
    assert "tiny/pairs" in out


# -- the budget of quick runs -----------------------------------------------------


class Clock:
    """A clock that tasks move."""

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


def test_without_a_budget_all_run_in_order():
    clock = Clock()
    parts = [section(name, *(clock.task(f"{name}{i}", 100) for i in range(3))) for name in "ab"]
    ran, plan = scheduled(clock, None, suite(*parts))
    assert ran == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert schedule.told(plan.left_out, plan.work) == ""


def test_what_does_not_fit_is_left_out_and_said():
    clock = Clock()
    ran, plan = scheduled(clock, 10, suite(section("a", *(clock.task(f"a{i}", 3) for i in range(9)))))
    assert ran == ["a0", "a1", "a2"]
    assert clock.now <= 10
    told = schedule.told(plan.left_out, plan.work)
    assert told == (
        "left out, to end within a minute: 6 of 9 tasks of tiny/a; to run them: python -m benchmarks tiny"
    )


def test_what_comes_first_comes_first_and_each_suite_has_a_share(monkeypatch):
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
    # In turns, for half of the time; then the other suite.
    assert ran[:6] == ["one x0", "one y0", "one x1", "one y1", "one x2", "two x0"]
    assert clock.now <= 20
    assert len(ran) + len(plan.left_out) == 24
    assert "python -m benchmarks SUITE --quick" in schedule.told(plan.left_out, plan.work)


def test_a_slow_machine_shows_something_of_all_that_comes_first(monkeypatch):
    monkeypatch.setattr(schedule, "FIRST", ("one/x", "two/x", "three/x"))
    clock = Clock()
    suites = [
        suite(section("x", *(clock.task(f"{name}{i}", 6) for i in range(9))), name=name)
        for name in ("one", "two", "three")
    ]
    ran, _ = scheduled(clock, 15, *suites)
    assert ran == ["one0", "two0", "three0"]
    assert clock.now <= 15 + 6  # what has begun goes on


def test_a_task_that_is_known_to_be_too_long_is_not_begun(monkeypatch):
    monkeypatch.setattr(schedule, "FIRST", ("tiny/a",))
    clock = Clock()
    long = clock.task("long", 5)
    long = Task(long.name, long.run, seconds=5)
    ran, plan = scheduled(clock, 7, suite(section("b", clock.task("b", 1)), section("a", long, long)))
    assert ran == ["long", "b"]
    assert [piece.task.name for piece in plan.left_out] == ["long"]
    assert scheduled(clock, 4, suite(section("a", long)))[0] == []


def test_sections_that_are_not_for_quick_runs_are_no_part_of_them():
    one = suite(section("a", task("a")), section("b", task("b"), quick=False))
    chosen = [(one, one.sections)]
    assert [p.task.name for p in schedule.pieces(chosen, Settings(quick=True))] == ["a"]
    assert [p.task.name for p in schedule.pieces(chosen, Settings())] == ["a", "b"]


def test_what_comes_first_is_there():
    from benchmarks.suite import FIRST, load

    sections = {f"{name}/{one.name}" for name in SUITES for one in load(name).sections}
    assert set(FIRST) <= sections


def test_a_quick_run_says_what_it_left_out(registered, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "BUDGET", 0.0)
    registered(suite(section("a", task("a")), section("b", task("b"))))
    result = run("--quick", "--json", tmp_path / "new.json")
    assert result.exit_code == 0
    assert "left out, to end within a minute: 1 of 1 tasks of tiny/a, 1 of 1 tasks of tiny/b" in result.output
    assert read(tmp_path / "new.json").facts["left_out"] == ["tiny/a: a", "tiny/b: b"]


# -- comparison and pages ---------------------------------------------------------


def compared(registered, tmp_path, before, after, *options, quick=()):
    registered(suite(section("pairs", task("a", before))))
    run("--json", tmp_path / "old.json", *quick)
    registered(suite(section("pairs", task("a", after))))
    return run("--compare", tmp_path / "old.json", *options)


def test_what_got_slower_ends_with_1(registered, tmp_path):
    result = compared(registered, tmp_path, 100.0, 200.0)
    assert result.exit_code == 1
    assert "slower by more than 1.25x" in result.output
    assert "2.00x" in result.output


def test_what_did_not_ends_with_0(registered, tmp_path):
    assert compared(registered, tmp_path, 100.0, 120.0).exit_code == 0
    assert compared(registered, tmp_path, 100.0, 200.0, "--threshold", 3).exit_code == 0


def test_a_quick_run_is_not_compared_with_a_full_one_in_silence(registered, tmp_path):
    told = compared(registered, tmp_path, 100.0, 100.0, quick=["--quick"]).output
    assert "the earlier results are of a run with --quick, and the others are not" in " ".join(told.split())
    told = compared(registered, tmp_path, 100.0, 100.0, "--quick").output
    assert "these results are of a run with --quick, and the others are not" in " ".join(told.split())
    assert "--quick, and" not in compared(registered, tmp_path, 100.0, 100.0).output


def results(folder, name, suites=("tables",), started="2026-01-01T00:00:00+00:00", **more):
    settings = Settings(**{k: v for k, v in more.items() if k in ("quick", "frameworks", "sizes")})
    found = Results.begin([suite(name=one) for one in suites], settings, more.get("asked", ()))
    found.facts["started"] = started
    found.cases = {f"{one}/pairs": [timed("a")] for one in suites} | more.get("cases", {})
    found.facts["machine"] |= more.get("machine", {})
    found.complete = more.get("complete", True)
    found.save(Path(folder) / name)
    return Path(folder) / name


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"quick": True}, "of a run with --quick"),
        ({"complete": False}, "not complete"),
        ({"asked": ["tables/pairs"]}, "a part of tables"),
        ({"sizes": (4,)}, "a run with --sizes"),
    ],
)
def test_results_that_become_no_page(tmp_path, more, told):
    path = results(tmp_path, "x.json", **more)
    result = CliRunner().invoke(page.main, [str(path)])
    assert result.exit_code == 2
    assert told in " ".join(result.output.split())
    assert page.newest(tmp_path) == {}


def test_the_newest_full_results_of_each_suite_become_pages(tmp_path):
    results(tmp_path, "old.json", ("tables",), "2026-01-01")
    both = results(tmp_path, "both.json", ("tables", "pool"), "2026-01-02")
    pool = results(tmp_path, "pool.json", ("pool",), "2026-01-03")
    results(tmp_path, "quick.json", ("pool",), "2026-01-04", quick=True)
    (tmp_path / "other.json").write_text('{"schema": 1}')
    assert page.newest(tmp_path) == {"tables": both, "pool": pool}
    with pytest.raises(ValueError, match="name one of them"):
        page.page(both)


# -- what cannot be said in JSON, what cannot be measured --------------------------


NAN, INFINITE = float("nan"), float("inf")


def test_what_json_has_no_number_for_is_left_out(registered, tmp_path):
    def figures():
        return [Case("a", figures={"good": 1.5, "bad": NAN, "worse": INFINITE, "count": 3})]

    registered(suite(Section("pairs", "", lambda settings: [Task("a", figures)], "figures")))
    assert run("--json", tmp_path / "new.json").exit_code == 0

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    plain = json.loads((tmp_path / "new.json").read_text(), parse_constant=refuse)
    assert plain["sections"]["tiny/pairs"][0]["figures"] == {"good": 1.5, "count": 3}
    found = read(tmp_path / "new.json")
    found.facts["load_before"] = NAN
    found.save(tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text(), parse_constant=refuse)["load_before"] is None


@pytest.mark.parametrize("median", [NAN, INFINITE, 0.0, 0.04])
def test_a_time_that_cannot_be_read_again_is_none(registered, tmp_path, median):
    """A tenth of a nanosecond is what is written: less is 0, which no time is."""
    case = lambda: [timed("a", 100.0, other=median)]  # noqa: E731
    registered(suite(section("pairs", Task("a", case))))
    assert run("--json", tmp_path / "new.json").exit_code == 0
    (kept,) = read(tmp_path / "new.json").cases["tiny/pairs"]
    assert [entry.left_out.partition(" is ")[0] for entry in kept.entries] == ["", "has no time: its median"]
    registered(suite(section("pairs", task("a", median))))
    assert run("--json", tmp_path / "new.json").exit_code == 1, "ours without a time is a failure"


def test_a_goal_that_cannot_be_judged_is_a_failure(registered, tmp_path):
    goals = lambda cases: [Goal("fast", "a", NAN, 2.0, "x"), Goal("small", "a", 1.0, 2.0)]  # noqa: E731
    registered(suite(section("pairs", task("a"), goals=goals)))
    result = run("--json", tmp_path / "new.json")
    assert result.exit_code == 1
    assert "failed: a: fast: nan against 2.0 cannot be judged" in result.output
    found = read(tmp_path / "new.json")
    assert [goal.name for goal in found.goals] == ["small"]
    assert not found.complete


def test_a_pool_that_cannot_be_is_said_in_a_line():
    for text, told in (("nonsense", "no such kind of pool"), ("auto,limit=many", "limit='many'")):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", "--list"],
            cwd=ROOT,
            env=os.environ | {"ZEROCOPY_POOL": text},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert done.stderr.startswith(f"Error: ZEROCOPY_POOL={text!r}: ")
        assert told in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""


def test_a_setting_that_tasks_cannot_do_with_is_refused_before_anything_is_measured(registered):
    def tasks(settings):
        raise ValueError("--sizes 1: less than one record")

    registered(suite(Section("pairs", "", tasks)))
    result = run("--sizes", "1")
    assert result.exit_code == 2
    assert "less than one record" in result.output


@pytest.mark.parametrize(
    ("name", "least"),
    [("layout/to-columns", 256), ("layout/to-rows", 256), ("layout/fresh", 256), ("layout/fields", 64)],
)
def test_less_than_a_record_is_refused(name, least):
    result = run(name, "--sizes", least - 1)
    assert result.exit_code == 2
    assert f"ask for {least} or more" in " ".join(result.output.split())


# -- the look ---------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("look", ["contest", "rivals", "series", "figures"])
def test_tables_fit_their_terminal(width, look):
    from rich.console import Console

    from benchmarks.report import show

    several = [timed(f"a case with a rather long name {i}") for i in range(3)]
    for case in several:
        case.entries += [Entry(f"label of column {i}", "reference", Timing.of([5.0])) for i in range(12)]
    found = Results.begin([suite()], Settings())
    shown = section("pairs", look=look)
    found.add("tiny", shown, several)
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    show(console, found, [("tiny", shown)])
    console.file.close()
    lines = console.export_text().splitlines()
    table = lines[: next(i for i, line in enumerate(lines) if "interleaved" in line)]
    assert max(map(len, table)) <= width
    if look == "series":
        assert all(any(f"label of column {i}" in line for line in table) for i in range(12))
    assert "…" not in "".join(table)


# -- the clock of a device --------------------------------------------------------


def test_the_clock_of_a_device_gives_host_and_device_time_or_says_that_there_is_none():
    from benchmarks import gpu_timing
    from zerocopy.errors import DeviceError
    from zerocopy.protocols import cuda_driver

    statements = {"nothing": Statement("None", {}), "broken": Statement("1 / 0", {})}
    if cuda_driver.missing() is not None:
        with pytest.raises(DeviceError):
            gpu_timing.measure(statements, SHORT)
        return
    found = gpu_timing.measure(statements, SHORT)
    assert isinstance(found["broken"], Raised)
    # Nothing is queued: the device has nothing to do, however long the host takes to say so.
    assert 0 <= found["nothing"].device.median < 1_000_000
    assert found["nothing"].host.rounds == SHORT.rounds


def test_the_clock_of_a_device_has_turns_as_the_hosts_has(monkeypatch):
    """With a stand-in for the stream, which takes twice as long as the host."""
    from benchmarks import gpu_timing

    expected = []

    class Stream:
        def __init__(self, stream, device):
            pass

        @contextlib.contextmanager
        def opened(self):
            yield self

        def block(self, loop, calls, expects=0.0):
            expected.append(expects)
            spent = loop(itertools.repeat(None, calls), time.perf_counter_ns)
            return spent, 2.0 * spent

    monkeypatch.setattr(gpu_timing, "_Stream", Stream)
    found = gpu_timing.measure({"a": Statement("sum(())", {}), "broken": Statement("1 / 0", {})}, SHORT)
    assert isinstance(found["broken"], Raised)
    assert found["a"].device.best == pytest.approx(2 * found["a"].host.best)
    assert found["a"].host.rounds == SHORT.rounds
    assert expected[-1] > 0, "the stream is kept busy for as long as the host is going to take"


@pytest.mark.parametrize("median", [0, -1.0, float("inf"), float("nan"), None, "fast", 10**400])
def test_times_that_are_none_are_not_read(tmp_path, median):
    (name,) = {
        path.name for path in page.newest(ROOT / "benchmarks" / "results").values() if "pool-" in path.name
    }
    found = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    entry = next(e for case in found["sections"]["pool/recycle"] for e in case["entries"] if "ns" in e)
    entry["ns"]["median"] = median
    path = tmp_path / "x.json"
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError, match="holds no results"):
        read(path)


def test_a_link_stays_one(tmp_path):
    (tmp_path / "there.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("there.json")
    assert cli._file(str(tmp_path / "link.json"), None) == tmp_path / "there.json"
    assert (tmp_path / "link.json").is_symlink()


def test_what_is_no_file_is_not_replaced():
    with pytest.raises(click.ClickException, match="no plain file"):
        cli._file(os.devnull, None)


def test_an_interrupt_that_a_library_has_swallowed_ends_the_run():
    """DuckDB makes a RuntimeError of it."""

    def swallow() -> None:
        interrupt.request()
        raise RuntimeError("Query interrupted")

    try:
        with pytest.raises(KeyboardInterrupt):
            measure({"x": Statement("f()", {"f": swallow})}, SHORT)
    finally:
        interrupt.reset()
