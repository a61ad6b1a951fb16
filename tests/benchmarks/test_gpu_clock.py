"""The clock of a CUDA device."""

import contextlib
import itertools
import time

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from helpers.benchmark_suites import SHORT

from benchmarks.timing import Raised, Statement


def test_gpu_clock_measures_host_and_device_or_raises_without_driver():
    from benchmarks import gpu_timing
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
    timings = gpu_timing.measure({"a": Statement("sum(())", {}), "broken": Statement("1 / 0", {})}, SHORT)
    assert isinstance(timings["broken"], Raised)
    assert timings["a"].device.best == pytest.approx(2 * timings["a"].host.best)
    assert timings["a"].host.rounds == SHORT.rounds
    assert expected[-1] > 0, "the stream is kept busy while the host queues"
