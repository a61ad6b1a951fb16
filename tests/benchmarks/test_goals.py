"""Goals are judged by the right rivals, and checks find results that differ."""

from contextlib import closing

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("click", reason="the benchmarks need it")
pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from benchmarks import bridge, functions, monitor, sparse, weights
from benchmarks.conversion import core, goals
from benchmarks.conversion.contenders import pairs
from benchmarks.conversion.question import Question, Timed
from benchmarks.goals import judge
from benchmarks.grid import cells
from benchmarks.hosts import engines
from benchmarks.layout import moves
from benchmarks.loader import goals as loader
from benchmarks.pipeline import contest as pipeline
from benchmarks.pool import host
from benchmarks.pool.workloads import GROUPS
from benchmarks.processes import channels, frames, goals as processes, scale
from benchmarks.record_types import LAYOUTS
from benchmarks.suite import SUITES, Case, Entry, Settings, load
from benchmarks.timing import Pace, Statement, Timing

BRIEF = Settings(quick=True, pace=Pace(rounds=2, block=1000, patience=1000))


def entry(label, time, role="ours", note=""):
    return Entry(label, role, Timing.of([float(time)]), note)


def case(name, *entries, **figures):
    return Case(name, list(entries), figures.pop("figures", figures))


def judged(goals):
    return [(goal.name, goal.case, round(goal.value, 3), goal.met) for goal in goals]


def test_sections_have_unique_names():
    for name in SUITES:
        sections = [section.name for section in load(name).sections]
        assert len(sections) == len(set(sections)), name


@pytest.mark.skipif(len(pairs()) < len(goals.PAIRS), reason="a framework is not installed")
def test_every_goal_of_the_core_has_questions():
    names = [question.name for question in core.questions(BRIEF)]
    assert len(names) == len(set(names))
    assert [bound.name for bound in goals.GOALS if not any(map(bound.concerns, names))] == []
    assert [name for name in names if not any(bound.concerns(name) for bound in goals.GOALS)] == []
    named = {case for bound in goals.GOALS for case in bound.cases}
    assert named <= {*names, *(name.partition(", ")[2] for name in names)}


def test_wrong_result_of_zerocopy_is_a_failure(monkeypatch):
    methods = [
        Timed("3", "ours", Statement("3", {})),
        Timed("4", "idiom", Statement("4", {})),
        Timed("1 / 0", "documented", Statement("1 / 0", {})),
        Timed("5", "reference", Statement("5", {}), checked=False),
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
    assert judged(judge(goals.GOALS, cases)) == [
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


def ratio_goal(suite, name, ours, by_hand, others=(), **figures):
    return judge(suite.PROMISES, [case(name, entry(*ours), entry(*by_hand), *others, figures=figures)])


def test_ratios_to_code_by_hand_are_judged():
    (step,) = ratio_goal(bridge, "x", (bridge.OURS, 3.0), (bridge.BY_HAND, 2.0))
    assert (step.value, step.limit) == (1.5, 1.2)
    (call,) = ratio_goal(functions, functions.GOAL, (functions.BY_HAND, 600), (functions.DECORATED, 850))
    assert (call.value, call.limit, call.met) == (250.0, functions.LIMIT, True)
    times = [(220.0, True), (500.0, False)]
    for later, met in times:
        others = [entry(monitor.COUNTED, 9000.0)]
        (mode,) = ratio_goal(
            monitor, "numpy -> torch", (monitor.OFF, 200.0), (monitor.STOPPED, later), others
        )
        assert (mode.value, mode.limit, mode.met) == (later / 200.0, monitor.LIMIT, met)
    time, copied = ratio_goal(
        sparse, sparse.GOAL, (sparse.BY_HAND, 9000), (sparse.OURS, 12_000), **{"copied bytes": 0.0}
    )
    assert (time.value, time.limit, time.met) == (12_000.0, sparse.LIMIT, True)
    assert (copied.value, copied.met) == (0.0, True)
    name = f"torch: {weights.ALL}"
    (time, *_) = ratio_goal(
        weights, name, (weights.LIBRARY, 9000), (weights.OURS, 4500), **{weights.COPIED: 0.0}
    )
    assert (time.value, time.limit, time.met) == (0.5, weights.LIMIT, True)


def test_goals_of_the_grid_are_a_worst_cell_and_a_mean():
    cases = [
        case("pandas -> polars, table 1 x 1", entry("zc", 500), entry("a", 1000, "idiom")),
        case("polars -> pandas, table 1 x 1", entry("zc", 1500), entry("a", 1000, "idiom")),
        case("polars -> jax, table 1 x 1", entry("zc", 1500), entry("a", 1000, "narrow")),
    ]
    first, second, mean = judge(cells.PROMISES, cases)
    assert (first.value, first.met, second.value, second.met) == (0.5, True, 1.5, False)
    assert mean.value == pytest.approx(0.75**0.5)


@pytest.mark.parametrize(("copied", "met"), [(111, True), (84, False)])
def test_goals_of_layouts_compare_with_copies(copied, met):
    (section,) = (s for s in load("layout").sections if s.name == "to-columns")
    times = {moves.TO_COLUMNS[0].code: 100, moves.ORDINARY: copied, moves.STREAMED: copied}
    one = case(LAYOUTS[0].case, *(entry(code, time) for code, time in times.items()))
    one.figures = {"bytes a record": LAYOUTS[0].dtype.itemsize}
    assert [goal.met for goal in section.goals([one])] == [met, met]


def test_goals_of_the_loader_compare_with_the_bound_and_with_others():
    def epochs(name, **ratios):
        entries = [entry(label, 1e6, "ours" if label == loader.OURS else "library") for label in ratios]
        figures = {"rows": 10.0} | {loader.TIMES + label: value for label, value in ratios.items()}
        return Case(name, entries, figures)

    (goal,) = loader.goals([epochs("matrix, in order", **{loader.OURS: 1.4})])
    assert (goal.name, goal.value, goal.met) == ("matrix, in order", 1.4, False)
    fewer = epochs(f"columns, in order{loader.FEWER}", **{loader.OURS: 1.5, loader.HF_TORCH: 30.0})
    (goal,) = loader.goals([fewer])
    assert (goal.value, goal.met) == (0.05, True)
    peaks = {f"{loader.PEAK}4 rows": 10.0, f"{loader.PEAK}8 rows": 12.0}
    (goal,) = loader.goals([Case("matrix, shuffled", figures=peaks)])
    assert (goal.value, goal.met) == (1.2, False)


def test_goals_of_the_pipeline_compare_with_code_by_hand():
    labels = [method.label for method in pipeline.METHODS]

    def stage(name, times, copied):
        roles = ("ours", "idiom", "narrow")
        entries = [entry(label, t, role) for label, role, t in zip(labels, roles, times, strict=True)]
        return Case(name, entries, dict(zip((pipeline.COPIED + one for one in labels), copied, strict=True)))

    met = [stage("a -> b", (9, 9, 1), (0, 8, 0)), stage(pipeline.WHOLE, (104, 150, 100), (0, 8, 0))]
    missed = [stage("a -> b", (1, 9, 1), (8, 8, 0)), stage(pipeline.WHOLE, (106, 100, 150), (8, 8, 0))]
    assert [goal.met for goal in pipeline.goals(met)] == [True, True]
    assert [(goal.value, goal.met) for goal in pipeline.goals(missed)] == [(8, False), (1.06, False)]


def test_goals_of_the_pool_compare_times_with_and_without_it():
    def workload(work, time):
        return case(work.name, entry("without", 100, "idiom"), entry("host='recycle'", time))

    fill, *_, other = GROUPS["large blocks"]
    for times, met in (((20, 105), True), ((21, 106), False)):
        of_workloads = host.goals([workload(fill, times[0]), workload(other, times[1])])
        assert [goal.met for goal in of_workloads] == [met, met]
    assert host.goals([Case("kept after zeros", figures={"bytes without": 0})]) == []


def exchange(name, ours, today=None, reference=None, **figures):
    times = (("a", "ours", ours), ("b", "idiom", today), ("c", "reference", reference))
    return Case(name, [entry(label, time, role) for label, role, time in times if time], figures)


def test_goals_between_processes_are_judged_by_question_and_framework():
    def values(*cases):
        return {goal.name: (goal.value, goal.met) for goal in processes.goals(cases)}

    assert values(exchange("Pipe, torch", 30.0, 300.0, 10.0)) == {"Pipe": (3.0, True)}
    assert values(exchange("Ray put, polars", 60.0, 300.0, 10.0)) == {"Ray: put of polars": (6.0, False)}
    assert values(exchange("open, already mapped, jax", 60.0)) == {}
    assert values(exchange("Flight, pyarrow", 100_016.0, reference=10.0)) == {
        "Flight, same host, without 100 us": (1.6, True)
    }
    private = exchange("Ray get, torch", 4.0, 90.0, 10.0, **{"bytes private to the reader": 1.0})
    assert values(private)["Ray: bytes private to the reader"] == (1.0, False)
    for promises in (processes.PROMISES, loader.PROMISES, engines.PROMISES, channels.PROMISES):
        assert len({promise.name for promise in promises}) == len(promises)


def test_channels_are_judged_with_each_rival():
    entries = [entry("put", 12), entry("iceoryx2 copy", 10, "library"), entry("ZeroMQ", 40, "idiom")]
    cases = [Case("p50, 4 MB, 3 readers", entries), Case("p99, 4 MB, 3 readers", entries)]
    cases.append(Case("p50 in place, 4 MB, 3 readers", entries, {channels.COPIED: 0.001}))
    assert {goal.name: goal.met for goal in channels.SUITE.sections[0].goals(cases)} == {
        "put over a copy into iceoryx2's sample": True,
        "slot over iceoryx2's sample": True,
        "put over ZeroMQ": False,
        "slot: frames copied": True,
    }


@pytest.mark.full
@pytest.mark.parametrize("way", frames.WAYS, ids=lambda way: way.__name__)
def test_frames_reach_each_reader(way):
    pytest.importorskip(way.package)
    with closing(way(1 << 14, 2)) as opened:
        for hand_over in opened.hand_over.values():
            for number in (7, 8):
                hand_over(0)
                hand_over(number)
                assert len(opened.times(number)) == 2


def test_scale_is_judged_with_the_most_over_the_fewest():
    counts = [(1, 10.0), (4, 90.0), (16, 19.0), (1024, 500.0)]
    (goal,) = scale.goals([Case(f"{n} leases", [entry("open", t)], {scale.LEASES: n}) for n, t in counts])
    assert (goal.case, goal.value, goal.met) == ("open", 1.9, True)
