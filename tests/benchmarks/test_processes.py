"""The processes suite: its rows, its goals, its page and its pictures."""

import importlib
import json

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")

from benchmarks.page import page
from benchmarks.pages.processes import goals_table
from benchmarks.processes import goals, objects, scale
from benchmarks.processes.engines import ENGINES
from benchmarks.processes.goals import PROMISES
from benchmarks.processes.row import MEMCPY, Contender, memcpy, row
from benchmarks.results import Results
from benchmarks.suite import SUITES, Case, Entry, Settings, load
from benchmarks.timing import QUICK, Raised, Timing

SMALL = Settings(frameworks=("numpy", "pyarrow"), sizes=(1 << 20,), quick=True, pace=QUICK)
PARTS = ("pickle", "share", "open", "readers", "segments", "workers")


def case(name, ours, today=None, reference=None, **figures):
    times = (("a", "ours", ours), ("b", "idiom", today), ("c", "reference", reference))
    return Case(name, [Entry(label, role, Timing.of([t])) for label, role, t in times if t], figures)


def test_suite_is_registered():
    suite = load("processes")
    assert "processes" in SUITES
    assert {section.name for section in suite.sections} == {*PARTS, *ENGINES}


def test_row_times_its_contenders_in_turns_with_a_memcpy():
    order = []

    def call(label, result):
        order.append(label)
        return result

    contenders = [
        Contender("all of it", "ours", lambda: call("all of it", None)),
        Contender("its own time", "idiom", lambda: call("its own time", 5_000_000)),
        memcpy(1000),
    ]
    result = row("Pipe, numpy", contenders, SMALL, {"bytes": 3.0}, rounds=4)
    by_label = {entry.label: entry.timing for entry in result.entries}
    assert by_label["its own time"].median == 5_000_000
    assert by_label["its own time"].rounds == 4
    assert by_label[MEMCPY].median < 5_000_000
    assert result.figures == {"bytes": 3.0}
    assert len(set(order)) == 2


def test_contender_that_raises_has_no_time():
    def fail():
        raise ValueError("no")

    result = row("Pipe, numpy", [Contender("a", "ours", fail), memcpy(1000)], SMALL)
    assert result.entries[0].timing == Raised("raises ValueError: no")


@pytest.mark.parametrize("framework", [*objects.ARRAYS, *objects.TABLES])
def test_objects_have_the_bytes_that_were_asked_for(framework):
    pytest.importorskip(framework)
    import zerocopy.frames

    assert zerocopy.frames.to_frames(objects.make(framework, 8000)).nbytes == 8000


@pytest.mark.parametrize("framework", [*objects.ARRAYS, *objects.TABLES])
def test_sharing_copies_once_and_opening_aliases(framework):
    """The first two rows of the table of copies in docs/processes.md."""
    pytest.importorskip(framework)
    import zerocopy as zc

    shared = zc.share(objects.make(framework, 800_000))
    received = zc.Shared.from_bytes(bytes(shared))
    assert shared.copied_bytes == 800_000
    assert zc.explain(received, framework).zero_copy
    assert zc.share(zc.convert(received, to=framework)).copied_bytes == 0


def test_goals_are_judged_by_question_and_framework():
    def judged(*cases):
        return {goal.name: (goal.value, goal.met) for goal in goals.goals(cases)}

    assert judged(case("Pipe, torch", 30.0, 300.0, 10.0)) == {"Pipe": (3.0, True)}
    assert judged(case("Ray put, polars", 60.0, 300.0, 10.0)) == {"Ray: put of polars": (6.0, False)}
    assert judged(case("open, already mapped, jax", 60.0)) == {}
    assert judged(case("Flight, pyarrow", 100_016.0, reference=10.0)) == {
        "Flight, same host, without 100 us": (1.6, True)
    }
    private = case("Ray get, torch", 4.0, 90.0, 10.0, **{"bytes private to the reader": 1.0})
    assert judged(private)["Ray: bytes private to the reader"] == (1.0, False)


def test_promises_have_unique_names():
    assert len({promise.name for promise in PROMISES}) == len(PROMISES)


def test_table_of_goals_names_the_frameworks_that_miss_one():
    cases = [case("Pipe, torch", 60.0, 300.0, 10.0), case("Pipe, jax", 20.0, 400.0, 10.0)]
    *_, line = goals_table(cases).splitlines()
    assert line == "| Pipe | 3.00x | 30.00x to 40.00x | 6.00x | no (torch: 2 times) |"
    assert goals_table(cases[1:]).splitlines()[-1] == "| Pipe | 3.00x | 40.00x | 2.00x | yes |"


def test_scale_is_judged_with_the_most_over_the_fewest():
    def at(count, time):
        return Case(f"{count} leases", [Entry("open", "ours", Timing.of([time]))], {scale.LEASES: count})

    (goal,) = scale.goals([at(1, 10.0), at(4, 90.0), at(16, 19.0), at(1024, 500.0)])
    assert (goal.case, goal.value, goal.met) == ("open", 1.9, True)


@pytest.mark.full
@pytest.mark.parametrize(
    ("engine", "needs", "framework"),
    [
        ("pipes", "zerocopy.integrations.multiprocessing", "numpy"),
        ("dataloader", "torch", "numpy"),
        ("flight", "pyarrow", "pyarrow"),
    ],
)
def test_engine_has_rows_with_both_sides(engine, needs, framework):
    pytest.importorskip(needs)
    settings = Settings(frameworks=(framework,), sizes=(1 << 20,), quick=True, pace=QUICK)
    rows = importlib.import_module(f"benchmarks.processes.{engine}").rows
    cases = list(rows(settings))
    assert cases
    for one in cases:
        assert one.fastest("ours"), one.entries
        assert one.fastest("idiom"), one.entries
        assert one.fastest("reference"), one.entries
    assert any(promise.concerns(one) for promise in PROMISES for one in cases)


@pytest.mark.full
def test_results_become_a_page_and_pictures(tmp_path):
    pytest.importorskip("pyarrow")
    suite = load("processes")
    sections = [section for section in suite.sections if section.name in PARTS]
    results = Results.begin([suite], SMALL)
    for section in sections:
        for task in section.tasks(SMALL):
            results.add("processes", section, task.run())
    results.finish([("processes", section) for section in sections], complete=True)
    assert not results.failures
    file = tmp_path / "processes-here.json"
    results.save(file)
    text = page(file)
    assert "| goal | limit | without zerocopy | zerocopy | met |" in text
    assert "| pickle 5, numpy |" in text
    assert "### 1,000 workers" in text
    names = {goal["name"] for goal in json.loads(file.read_text())["goals"]}
    assert {"share: recycled", "open: new, tables"} <= names
    pytest.importorskip("matplotlib")
    from benchmarks.plots import draw

    assert {path.stem for path in draw(results, tmp_path)} == {"processes", "processes-scale"}
