"""The goals of the compiled core: equal work, fresh objects, judging, the recorded build and the page."""

import re
from types import SimpleNamespace

import pytest
from helpers.paths import ROOT
from helpers.versions import has

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("click", reason="the benchmarks need it")

from helpers.benchmark_suites import section, suite, timed

from benchmarks.conversion import core, goals
from benchmarks.conversion.contenders import pairs
from benchmarks.conversion.question import Fresh, Method, Question
from benchmarks.pages import compiled_core
from benchmarks.results import Results, read
from benchmarks.suite import Case, Entry, Goal, Settings
from benchmarks.timing import Pace, Statement, Timing
from zerocopy import _native

BRIEF = Settings(quick=True, pace=Pace(rounds=2, block=1000, patience=1000))

needs_all = pytest.mark.skipif(len(pairs()) < len(goals.PAIRS), reason="a framework is not installed")


@pytest.fixture(scope="module")
def questions():
    return list(core.questions(BRIEF))


@needs_all
def test_every_goal_has_questions(questions):
    names = [question.name for question in questions]
    assert len(names) == len(set(names))
    assert [bound.name for bound in goals.GOALS if not any(map(bound.covers, names))] == []
    assert [name for name in names if not any(bound.covers(name) for bound in goals.GOALS)] == []
    named = {case for bound in goals.GOALS for case in bound.cases}
    assert named <= {*names, *(name.partition(", ")[2] for name in names)}


def test_all_methods_give_the_same_result(questions):
    refused = {
        f"{question.name}: {method.code}": why
        for question in questions
        for method in question.methods
        if method.checked and (why := core.check(method, question))
    }
    lacking = ["from_dlpack(x)", *([] if has("pyarrow", "26") else ["Array.from_dlpack", "max_version"])]
    documented = {name: why for name, why in refused.items() if any(call in name for call in lacking)}
    assert refused == documented, "only a documented call may lack a pair"
    assert all(why.startswith("raises") for why in documented.values())


def test_every_question_has_zerocopy_and_a_rival(questions):
    for question in questions:
        roles = [method.role for method in question.methods]
        assert roles[0] == "ours", question.name
        assert roles.count("ours") == 1, question.name
        assert len(roles) > 1 or question.name.endswith(goals.EXPLAIN), question.name


def test_section_is_measured_and_judged():
    if ("numpy", "torch") not in pairs():
        pytest.skip("torch is not installed")
    settings = Settings(("numpy", "torch"), quick=True, pace=BRIEF.pace)
    (task,) = core.tasks(settings)
    cases = task.run()
    assert [case.failed for case in cases] == [""] * len(cases)
    assert [case.name for case in cases if not case.timed("ours")] == []
    in_dict = next(case for case in cases if case.name == "numpy -> torch, dict of 100")
    assert in_dict.figures["ns per leaf or column"] == in_dict.fastest("ours").timing.median / 100
    judged = core.judge(cases)
    assert {goal.case for goal in judged if goal.name.startswith("same type")} == {
        *("numpy -> numpy", "torch -> torch"),
    }
    assert {"numpy -> torch, bfloat16", "numpy -> torch, read-only"} <= {goal.case for goal in judged}
    assert core.tasks(Settings(("numpy",))) == []


def test_wrong_result_of_zerocopy_is_a_failure(monkeypatch):
    methods = [
        Method("3", "ours", Statement("3", {})),
        Method("4", "idiom", Statement("4", {})),
        Method("1 / 0", "documented", Statement("1 / 0", {})),
        Method("5", "reference", Statement("5", {}), checked=False),
    ]
    question = Question("three", methods, lambda result: "" if result == 4 else f"gives {result}")
    monkeypatch.setattr(core, "questions", lambda settings: [question])
    (case,) = core.run(BRIEF)
    assert case.failed == "3 gives 3"
    assert {entry.label: entry.left_out for entry in case.entries} == {
        "3": "gives 3",
        "4": "",
        "1 / 0": "raises ZeroDivisionError: division by zero",
        "5": "",
    }
    assert [entry.label for entry in case.timed()] == ["4", "5"]


def test_fresh_objects_are_made_before_the_clock_starts():
    events = []

    def make():
        events.append("made")
        return len(events)

    def clock():
        events.append("clock")
        return 0

    seen = []
    Fresh("seen.append(_)", {"seen": seen}, make).loop()(range(3), clock)
    assert events == ["made"] * 3 + ["clock"] * 2
    assert seen == [1, 2, 3]


def compared(name, ours, **others):
    """Return a case with times by role, and of references by note."""
    entries = [Entry("zc.convert(x)", "ours", Timing.of([ours]))]
    for role, nanoseconds in others.items():
        note = {"pure": goals.PURE, "plain": goals.PLAIN}.get(role, "")
        entries.append(Entry(role, "reference" if note else role, Timing.of([nanoseconds]), note))
    return Case(name, entries)


def test_goals_are_judged_by_their_rivals():
    cases = [
        compared("numpy -> torch", 60.0, idiom=100.0, documented=300.0, pure=150.0),
        compared("torch -> numpy", 90.0, idiom=100.0, documented=400.0, pure=150.0),
        compared("torch -> torch", 20.0, pure=100.0),
        compared("torch -> numpy, copy=False", 170.0, plain=100.0, pure=900.0),
        compared("pyarrow -> numpy, batch of 30, copy=False", 120.0, plain=100.0),
        compared("torch -> numpy, explain", 14_000.0),
        Case("jax -> numpy", [Entry("zc.convert(x)", "ours", Timing.of([1.0]))]),  # no rival
    ]
    judged = [(g.name, g.case, round(g.value, 3), g.met) for g in goals.judge(cases)]
    assert judged == [
        ("same type: 0.25x of pure Python", "torch -> torch", 0.2, True),
        *[
            (f"{row}: {limit} of the fastest by hand", case, value, met)
            for row, limit, case, value, met in [
                ("torch -> numpy, storage seen before", "0.30x", "torch -> numpy", 0.9, False),
                ("numpy -> torch", "0.70x", "numpy -> torch", 0.6, True),
                ("all pairs, geometric mean", "0.50x", "2 pairs", 0.735, False),
            ]
        ],
        ("all pairs, geometric mean: 0.30x of the documented call", "2 pairs", 0.212, True),
        ("each pair: 1.00x of the fastest by hand", "numpy -> torch", 0.6, True),
        ("each pair: 1.00x of the fastest by hand", "torch -> numpy", 0.9, True),
        *[
            ("an option on a type seen before: 1.50x of the plain call", case, value, met)
            for case, value, met in [
                ("torch -> numpy, copy=False", 1.7, False),
                ("pyarrow -> numpy, batch of 30, copy=False", 1.2, True),
            ]
        ],
        ("explain: 15 us", "torch -> numpy, explain", 14_000.0, True),
    ]


def test_names_of_goals_are_unique():
    names = [bound.name for bound in goals.GOALS]
    assert len(names) == len(set(names))


# -- the build in results, and the page ------------------------------------------------


@pytest.fixture
def build(monkeypatch):
    """Return a function that replaces the compiled core."""

    def replace(core, why_not=""):
        monkeypatch.setattr(_native, "core", core)
        monkeypatch.setattr(_native, "why_not", why_not)

    return replace


def save(path, started="2026-01-01", **options):
    """Write results of the section and of the import, measured in the current build."""
    settings = Settings(**options)
    results = Results.begin([suite()], settings)
    results.facts |= {"suites": ["conversion"], "started": f"{started}T00:00:00+00:00"}
    case = compared("numpy -> torch", 60.0, idiom=100.0, documented=300.0, pure=150.0)
    several = [
        compared("pyarrow -> jax", 25.0, idiom=100.0, pure=50.0),
        compared("torch -> jax", 40.0, idiom=100.0, pure=50.0),
    ]
    results.cases = {"conversion/core": [case, *several]}
    results.goals = [Goal("import zerocopy: 30 ms at most", "import", 3.0, 30.0, "ms", "conversion/import")]
    results.finish([("conversion", core.SECTION)], complete=True)
    results.save(path)
    return path


def test_results_record_the_build(build, tmp_path):
    build(SimpleNamespace())
    compiled = read(save(tmp_path / "compiled.json"))
    assert (compiled.compiled, compiled.build) == (True, "with zerocopy's compiled core")
    build(None, "ZEROCOPY_NATIVE=0 is set")
    pure = read(save(tmp_path / "pure.json"))
    assert pure.facts["core"] == {"loaded": False, "why_not": "ZEROCOPY_NATIVE=0 is set"}
    assert pure.build == "without zerocopy's compiled core (ZEROCOPY_NATIVE=0 is set)"
    older = Results(facts={})
    assert (older.compiled, older.build) == (False, "without zerocopy's compiled core")


def test_two_builds_are_not_comparable(build):
    from rich.console import Console

    from benchmarks.report import show_changes

    runs = []
    for module in (None, SimpleNamespace()):
        build(module, "" if module else "no compiler")
        runs.append(Results.begin([suite(section("pairs"))], Settings()))
        runs[-1].add("tiny", section("pairs"), [timed("a")])
        runs[-1].complete = True
    console = Console(width=400)
    with console.capture() as captured:
        show_changes(console, [], 1.1, *runs)
    expected = (
        "the earlier results were measured without zerocopy's compiled core (no compiler), "
        "the new ones with zerocopy's compiled core"
    )
    assert expected in captured.get()


def test_page_has_newest_results_of_the_compiled_core(build, tmp_path):
    template = tmp_path / "template.in"
    template.write_text("# Title\n\n$measured\n", encoding="utf-8")
    folder = tmp_path / "results"
    folder.mkdir()
    build(None, "no compiler")
    save(folder / "pure.json", "2026-01-09")
    assert compiled_core.newest(folder) is None
    absent = compiled_core.page(template, None)
    assert "no results of a compiled build yet" in absent
    build(SimpleNamespace())
    save(folder / "quick.json", "2026-01-08", quick=True)
    save(folder / "narrowed.json", "2026-01-07", frameworks=("numpy",))
    newest = save(folder / "newest.json", "2026-01-06")
    save(folder / "older.json", "2026-01-05")
    assert compiled_core.newest(folder) == newest
    text = compiled_core.page(template, newest)
    assert "benchmarks/results/newest.json" in text
    for row in (
        "| numpy -> torch: 0.70x of the fastest by hand | 0.60x | met |",
        "| anything -> jax: 0.30x of the fastest by hand | 0.25x to 0.40x | "
        "missed on 1 of 2: torch -> jax (0.40x) |",
        "| same type: 0.25x of pure Python | - | not measured |",
        "| import zerocopy: 30 ms at most | 3 ms | met |",
        "| numpy -> torch | 60 ns | 0.60x | 0.20x | 0.40x | 100 ns `idiom` |",
    ):
        assert row in text


def test_page_matches_its_results():
    """The page is generated again and compared, so that no figure is typed by hand."""
    written = (ROOT / "docs" / "compiled-core.md").read_text(encoding="utf-8")
    newest = compiled_core.newest(ROOT / "benchmarks" / "results")
    assert written == compiled_core.page(ROOT / "docs" / "compiled-core.in", newest)
    named = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", written))
    assert named == ({newest.name} if newest else set())
