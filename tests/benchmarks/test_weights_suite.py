"""The suite ``weights``: both contenders give equal tensors; the goals are time and bytes."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.pages import weights as page
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.timing import Pace, Timing
from benchmarks.weights import loading
from benchmarks.weights.loading import ALL, COPIED, COUNT, LIBRARY, LIMIT, OURS

for name in ("safetensors", "torch", "jax"):
    pytest.importorskip(name)

CHOSEN = Settings(pace=Pace(rounds=2, block=20_000, patience=50_000_000))
NBYTES = COUNT * loading.COLUMNS * 4


def test_each_question_is_timed_both_ways_and_gives_equal_tensors() -> None:
    assert [section.name for section in load("weights").sections] == ["loading", "memory"]
    cases = {case.name: case for case in loading.run(CHOSEN, NBYTES)}
    assert len(cases) == 12
    for case in cases.values():
        assert [entry.label for entry in case.timed()] == [LIBRARY, OURS], case
    copied = {case.name: case.figures[COPIED] for case in cases.values() if case.figures[COPIED]}
    assert set(copied) == {f"jax: {work}" for work in (ALL, loading.SUMS, loading.FIRST)}
    assert copied[f"jax: {ALL}"] == NBYTES
    with loading.written(NBYTES) as files:
        for name, question in loading.questions(CHOSEN).items():
            names = loading.names_of(files, question)
            library, ours = eval(question.library, names), eval(question.ours, names)
            if isinstance(library, dict):
                assert set(library) == set(ours)
                assert all((np.asarray(library[key]) == np.asarray(ours[key])).all() for key in library)
            else:
                assert np.allclose(np.asarray(library), np.asarray(ours)), name


@pytest.mark.full
def test_peaks_are_of_fresh_processes() -> None:
    cases = loading.peaks(Settings(frameworks=("numpy",)), NBYTES)
    assert [set(case.figures) for case in cases] == [{"peak memory, library", "peak memory, load"}]


def test_the_goals_are_time_and_bytes() -> None:
    entries = [Entry(LIBRARY, timing=Timing.of([9000.0])), Entry(OURS, timing=Timing.of([4500.0]))]
    torch = Case(f"torch: {ALL}", entries, figures={COPIED: 0.0})
    jax = Case(f"jax from an aligned file: {ALL}", entries, figures={COPIED: 0.0})
    time, copied = loading.judge([torch, jax])
    assert (time.value, time.limit, time.met) == (0.5, LIMIT, True)
    assert (copied.value, copied.met) == (0.0, True)
    assert page._row(torch) == [torch.name, "9.00 us", "4.50 us", "0.50x", "0 B"]
