"""The suite ``sparse``: both contenders give equal arrays, and one conversion has goals."""

from __future__ import annotations

import pytest

from benchmarks.pages import sparse as page
from benchmarks.sparse import conversions
from benchmarks.sparse.conversions import BY_HAND, GOAL, LIMIT, OURS
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.timing import Pace, Timing

for name in ("scipy", "torch", "jax"):
    pytest.importorskip(name)

PACE = Pace(rounds=2, block=20_000, patience=50_000_000)
CHOSEN = Settings(pace=PACE, frameworks=("scipy", "torch", "jax"))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
def test_each_conversion_is_timed_both_ways_and_gives_equal_arrays() -> None:
    assert [section.name for section in load("sparse").sections] == ["conversions"]
    cases = conversions.run(CHOSEN, count=1000)
    assert [case.name for case in cases] == [GOAL, "scipy -> torch", "torch -> scipy", "scipy -> jax"]
    for case in cases:
        assert [entry.label for entry in case.timed()] == [BY_HAND, OURS], case
        assert case.figures == {"copied bytes": 0.0}
    x = conversions.sample(1000)
    assert (conversions.from_torch(conversions.to_torch(x)) != x).nnz == 0
    assert conversions.to_jax(x).todense().tolist() == x.toarray().tolist()


def test_the_goals_are_time_and_bytes() -> None:
    entries = [Entry(BY_HAND, timing=Timing.of([9000.0])), Entry(OURS, timing=Timing.of([12_000.0]))]
    case = Case(GOAL, entries, figures={"copied bytes": 0.0})
    time, copied = conversions.judge([case])
    assert (time.value, time.limit, time.met) == (12_000.0, LIMIT, True)
    assert (copied.value, copied.met) == (0.0, True)
    assert page._row(case) == [GOAL, "9.00 us", "12.0 us", "1.33x", "0 B"]
