"""The hosts suite: its goals, its page, and that it says why it cannot run."""

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")

from benchmarks.hosts import engines
from benchmarks.page import page
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.timing import Timing


def case(name, ours, today, **figures):
    times = {"ours": ours, "idiom": today, "reference": 1e6}
    entries = [Entry(role, role, Timing.of([time])) for role, time in times.items()]
    return Case(name, entries, {name.replace("_", " "): value for name, value in figures.items()})


CASES = {
    "dask": case("Dask, 16 MiB, torch", 9e6, 8e6, CPU_ms_of_both_workers=3.0, CPU_ms_without_zerocopy=6.0),
    "ray": case("Ray, 256 MiB, jax", 9e6, 1e7, bytes_private_to_the_reader=0.0),
    "flight": case("Flight, 16 MiB, pyarrow", 1.2e7, 1e7),
}


def test_goals_and_page(tmp_path):
    suite = load("hosts")
    results = Results.begin([suite], Settings())
    sections = [("hosts", section) for section in suite.sections]
    for _, section in sections:
        results.add("hosts", section, [CASES[section.name]])
    results.finish(sections, complete=True)
    assert {(goal.case, goal.value, goal.met) for goal in results.goals} == {
        ("Dask, 16 MiB, torch", 0.5, True),
        ("Ray, 256 MiB, jax", 0.9, True),
        ("Ray, 256 MiB, jax", 0.0, True),
        ("Flight, 16 MiB, pyarrow", 1.2, False),
    }
    results.save(tmp_path / "hosts-here.json")
    text = page(tmp_path / "hosts-here.json")
    assert "| Dask, 16 MiB, torch | 8.00x (8.00 ms) | 9.00x (9.00 ms) |" in text
    assert "| Flight, 16 MiB: over do_get, at most 1.1x for noise |" in text


def test_a_process_without_privileges_says_so(monkeypatch):
    monkeypatch.setattr(engines, "missing", lambda: "needs root, to make network namespaces")
    for section in load("hosts").sections:
        for task in section.tasks(Settings()):
            (one,) = task.run()
            assert one.entries[0].left_out == "needs root, to make network namespaces"
