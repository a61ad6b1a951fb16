"""The clocks: blocks, turns, contenders that raise, and the clock of a CUDA device."""

import contextlib
import itertools
import time

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from helpers.benchmark_suites import SHORT

from benchmarks import gpu_timing, interrupt
from benchmarks.conversion.question import Fresh
from benchmarks.timing import Pace, Raised, Statement, _block, measure


def test_slow_contenders_skip_rounds():
    pace = Pace(rounds=60, block=10, patience=1000)
    assert [pace.turns(spent) for spent in (10, 100, 10**9)] == [60, 10, 3]
    timings = measure(
        {"fast": Statement("None", {}), "slow": Statement("sleep(0.001)", {"sleep": time.sleep})},
        Pace(rounds=10, block=1000, patience=5_000_000),
    )
    assert timings["fast"].rounds == 10
    assert 3 <= timings["slow"].rounds < 10


@pytest.mark.parametrize("interrupted", [(), (2,), (3,), (9,)])
def test_interrupted_calibration_does_not_change_the_block(interrupted):
    counts = []

    def loop(calls, clock):
        counts.append(len(list(calls)))
        return 100 * counts[-1] + 50_000 * (len(counts) in interrupted)

    assert _block(loop, 10_000) == (100, 10_000)


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


def test_interrupt_that_a_library_replaces_ends_the_run():
    """DuckDB raises RuntimeError instead."""

    def swallow() -> None:
        interrupt.request()
        raise RuntimeError("Query interrupted")

    try:
        with pytest.raises(KeyboardInterrupt):
            measure({"x": Statement("f()", {"f": swallow})}, SHORT)
    finally:
        interrupt.reset()


def test_gpu_clock_measures_host_and_device_or_raises_without_driver():
    from zerocopy.errors import DeviceError
    from zerocopy.protocols import cuda_driver

    statements = {"nothing": Statement("None", {}), "broken": Statement("1 / 0", {})}
    if cuda_driver.missing() is not None:
        with pytest.raises(DeviceError):
            gpu_timing.measure(statements, SHORT)
        return
    timings = gpu_timing.measure(statements, SHORT)
    assert isinstance(timings["broken"], Raised)
    # Nothing is queued: the time of the device does not include that of the host.
    assert 0 <= timings["nothing"].device.median < 1_000_000
    assert timings["nothing"].host.rounds == SHORT.rounds


def test_gpu_clock_takes_turns(monkeypatch):
    """The stand-in for a stream takes twice as long as the host."""
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
    timings = gpu_timing.measure({"a": Statement("sum(())", {}), "broken": Statement("1 / 0", {})}, SHORT)
    assert isinstance(timings["broken"], Raised)
    assert timings["a"].device.best == pytest.approx(2 * timings["a"].host.best)
    assert timings["a"].host.rounds == SHORT.rounds
    assert expected[-1] > 0, "the stream is kept busy while the host queues"


def test_filler_does_not_grow_if_calls_wait_for_the_device(monkeypatch):
    expected = []

    class Stream:
        def __init__(self, stream, device):
            pass

        @contextlib.contextmanager
        def opened(self):
            yield self

        def block(self, loop, calls, expects=0.0):
            expected.append(expects)
            return 100 * calls + 2 * expects, 100.0 * calls  # the host waits for the filler

    monkeypatch.setattr(gpu_timing, "_Stream", Stream)
    timings = gpu_timing.measure({"a": Statement("None", {})}, Pace(rounds=50, block=1000, patience=10**9))
    assert timings["a"].host.rounds == 50
    assert max(expected) <= 100 * timings["a"].host.calls
