"""The suite ``monitor``: each mode records what its name says, and each conversion has a goal."""

from __future__ import annotations

import numpy as np
import pytest

import zerocopy as zc
from benchmarks.monitor import overhead
from benchmarks.monitor.overhead import BY_LINE, COUNTED, LIMIT, OFF, STOPPED, Recorded, recorded
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.timing import Pace, Timing
from zerocopy.monitor.recorder import Recorder

for name in ("torch", "jax", "pyarrow", "pandas"):
    pytest.importorskip(name)

PACE = Pace(rounds=2, block=20_000, patience=50_000_000)


def test_suite_has_the_section() -> None:
    assert [section.name for section in load("monitor").sections] == ["overhead"]


@pytest.mark.parametrize(("mode", "calls"), [(OFF, 0), (STOPPED, 0), (COUNTED, 5), (BY_LINE, 5)])
def test_a_mode_records_its_calls(mode: str, calls: int) -> None:
    # A second recorder counts what the first one makes `convert` record.
    with recorded(mode):
        before = Recorder(sites=False) if calls else None
        if before is not None:
            before.start()
        for _ in range(5):
            zc.convert(np.zeros(3), to="torch")
        rows = before.rows() if before is not None else []
        if before is not None:
            before.stop()
    assert sum(row.calls for row in rows) == calls


def test_recorder_is_stopped_after_each_block() -> None:
    statement = Recorded("convert(x, 'torch')", {"convert": zc.convert, "x": np.zeros(3)}, BY_LINE)
    assert statement.loop()(range(10), iter(range(1000)).__next__) > 0
    with pytest.raises(ZeroDivisionError), recorded(BY_LINE):
        1 / 0  # noqa: B018 - raises
    recorder = Recorder(sites=True)
    recorder.start()
    recorder.stop()
    assert recorder.rows() == []


def test_each_conversion_has_a_time_in_each_mode_and_a_goal() -> None:
    cases = overhead.run(Settings(frameworks=("numpy", "torch"), pace=PACE))
    assert len(cases) == 4
    for case in cases:
        assert [entry.label for entry in case.timed()] == [OFF, STOPPED, COUNTED, BY_LINE], case
    assert len(overhead.judge(cases)) == len(cases)


def test_goals_are_ratios_of_later_calls_to_earlier_ones() -> None:
    def entry(label: str, time: float) -> Entry:
        return Entry(label, timing=Timing.of([time]))

    def case(later: float) -> Case:
        return Case("numpy -> torch", [entry(OFF, 200.0), entry(STOPPED, later), entry(COUNTED, 9000.0)])

    same, slower = overhead.judge([case(220.0), case(500.0)])
    assert (same.value, same.limit, same.met) == (1.1, LIMIT, True)
    assert (slower.value, slower.limit, slower.met) == (2.5, LIMIT, False)
