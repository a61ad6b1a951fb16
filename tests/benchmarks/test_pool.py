"""The pool suite: the same work in each process, and its figures."""

import json

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")

from benchmarks.page import page
from benchmarks.pool import arrays, recycle, workloads
from benchmarks.pool.sides import WITHOUT, contest, sides, turns
from benchmarks.pool.workloads import GROUPS
from benchmarks.results import Results
from benchmarks.suite import SUITES, Case, Entry, Settings, load
from benchmarks.timing import Pace, Timing
from zerocopy.pool.host import c_library

pytestmark = pytest.mark.skipif(c_library.refusal() is not None, reason=str(c_library.refusal()))

ALIGNED = "host='aligned'"
SHORT = Pace(rounds=2, block=1000, patience=1000)


def test_suite_is_registered():
    suite = load("pool")
    assert "pool" in SUITES
    assert [section.name for section in suite.sections][:2] == ["aligned", "recycle"]
    assert all(section.tasks(Settings(quick=True)) is not None for section in suite.sections)


def test_workloads_have_unique_names():
    names = [workload.name for group in GROUPS.values() for workload in group]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("group", GROUPS)
def test_workload_runs(group):
    settings = Settings()
    able = [workload for workload in GROUPS[group] if workload.wanted(settings)]
    names = workloads.namespace(group)
    for workload in able:
        exec(workload.code, dict(names))


def test_unwanted_frameworks_are_left_out():
    assert not any(workload.wanted(Settings(frameworks=("jax",))) for workload in GROUPS["tables"])


def test_24_arrays_have_unique_names():
    names = [f"{maker}, {size}" for size in arrays.SIZES for maker in arrays.MAKERS]
    assert len(set(names)) == 24
    small = {name: make(100) for name, make in arrays.MAKERS.items()}
    assert {(x.dtype.str, x.shape) for x in small.values()} == {("<f4", (100,))}


def test_sides_are_processes_with_their_modes():
    with sides(WITHOUT, "aligned") as contenders:
        assert contenders[0].ask("describe") == []
        assert contenders[1].ask("describe")[0].startswith("aligned: NumPy's arrays are 64-byte aligned")
        for side in contenders:
            side.ask("open", "zeros")
        case = contest("zeros", [turns("np.zeros(1000)", contenders, SHORT) for _ in range(2)])
        assert [(e.label, e.role, e.timing.rounds) for e in case.entries] == [
            ("without", "idiom", 4),
            (ALIGNED, "ours", 4),
        ]
        assert all(entry.timing.median > 0 for entry in case.entries)
        assert contenders[0].ask("trim") == 0
        with pytest.raises(RuntimeError, match="the process with without ended"):
            contenders[0].ask("block", "no_such_name", 1)


def test_goals_compare_times_with_and_without_pool():
    def case(workload, ours):
        entries = [Entry("without", "idiom", Timing.of([100.0])), Entry("host='recycle'", "ours", ours)]
        return Case(workload.name, entries)

    fill, *_, other = GROUPS["large blocks"]
    assert fill.gain == 5
    met = recycle.goals([case(fill, Timing.of([20.0])), case(other, Timing.of([105.0]))])
    missed = recycle.goals([case(fill, Timing.of([21.0])), case(other, Timing.of([106.0]))])
    assert [goal.met for goal in met] == [True, True]
    assert [goal.met for goal in missed] == [False, False]
    assert recycle.goals([Case("kept after zeros", figures={"bytes without": 0})]) == []


@pytest.mark.full
def test_pool_results_become_a_page(tmp_path, monkeypatch):
    monkeypatch.setitem(GROUPS, "zeros", GROUPS["zeros"][:2])
    pytest.importorskip("jax")
    suite, settings = load("pool"), Settings(quick=True, pace=SHORT)
    results = Results.begin([suite], settings)
    aligned, recycling = suite.sections[:2]
    for section, names in ((aligned, ("arrays", "64 MB to JAX")), (recycling, ("zeros",))):
        for task in section.tasks(settings):
            if task.name in names:
                results.add("pool", section, task.run())
    results.finish([("pool", aligned), ("pool", recycling)], complete=True)
    counts = results.cases["pool/aligned"][0].figures
    assert counts["arrays"] == 24
    assert counts[ALIGNED] == 24 or "compiled core" in results.cases["pool/aligned"][0].remarks[-1]
    file = tmp_path / "pool-here.json"
    results.save(file)
    text = page(file)
    assert "Each mode has a separate process" in text
    assert f"{counts['without']:.0f} of 24 | {counts[ALIGNED]:.0f} of 24" in text
    assert "| kept after zeros |" in text
    plain, ours, _ = results.cases["pool/recycle"][0].entries
    goals = json.loads(file.read_text())["goals"]
    assert any(abs(goal["value"] - ours.timing.median / plain.timing.median) < 1e-6 for goal in goals)
