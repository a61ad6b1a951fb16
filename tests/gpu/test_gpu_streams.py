"""P8: the consumer's stream waits for the producer's work, and the host waits for no device.

A stream is kept busy for about 200 ms, then the producer writes on it; the consumer reads on another
stream. If the busy stream has pending work when ``convert`` returns and the consumer reads the new
values, the device ordered the work and the host did not wait. Each step runs once in advance, because
the first launch of a kernel loads it and may wait for the whole device.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
from helpers.gpu_arrays import DEVICE, MARKS, NAMES, InterfaceAlone, have, sample, side

import zerocopy as zc

pytestmark = MARKS

SHAPE = (1000, 1000)
OLD, NEW = 1.0, 2.0
BUSY_CYCLES = 400_000_000  # 200 ms at 2 GHz


def _torch():
    if not have("torch"):
        pytest.skip("the test needs torch to keep a stream busy")
    return importlib.import_module("torch")


def stream():
    """Return a stream of torch, for which the legacy default stream does not wait."""
    return _torch().cuda.Stream()


def busy(on, cycles: int = BUSY_CYCLES) -> None:
    torch = _torch()
    with torch.cuda.stream(on):
        torch.cuda._sleep(cycles)


# How each framework makes a stream current, and writes and copies an array on a stream.


@contextmanager
def current(name: str, on):
    """Make a stream the framework's current one; Numba and JAX have no current stream."""
    if name == "torch":
        with _torch().cuda.stream(on):
            yield
    elif name == "cupy":
        cuda = importlib.import_module("cupy").cuda
        with (
            cuda.Stream.from_external(_Handle(on))
            if hasattr(cuda.Stream, "from_external")
            else (cuda.ExternalStream(on.cuda_stream))
        ):
            yield
    else:
        yield


class _Handle:
    """A stream with CUDA Python's stream protocol."""

    def __init__(self, on):
        self._on = on

    def __cuda_stream__(self):
        return 0, self._on.cuda_stream


def write(name: str, x, on):
    """Write NEW on the stream, and return the array as its owner exports it."""
    if name == "numba":
        cuda = importlib.import_module("numba.cuda")
        x = x.bind(cuda.external_stream(on.cuda_stream))
        x.copy_to_device(_new_values(), stream=x.stream)
        return x
    with current(name, on):
        x[...] = NEW
    return x


@cache
def _new_values():
    """Source of Numba's copies, allocated before a stream is busy, since an allocation may synchronise."""
    return importlib.import_module("numba.cuda").to_device(np.full(SHAPE, NEW, "f4"))


@pytest.fixture(autouse=True)
def _no_numba_cleanup():
    """Defer Numba's cleanup, which frees memory in batches and synchronises the device."""
    if not have("numba"):
        yield
        return
    with importlib.import_module("numba.cuda").defer_cleanup():
        yield


@cache
def _room(name: str):
    """Destination of a snapshot, allocated before a stream is busy, as above."""
    if name == "cupy":
        return importlib.import_module("cupy").empty(SHAPE, "f4")
    return _torch().empty(SHAPE, dtype=_torch().float32, device=DEVICE)


def snapshot(name: str, x, on):
    """Copy the array on the stream, and return the copy's values, waiting for that stream alone."""
    if name == "cupy":
        with current(name, on):
            importlib.import_module("cupy").copyto(_room(name), x)
        on.synchronize()
        return _room(name).get()
    if name == "torch":
        with current(name, on):
            _room(name).copy_(x)
        on.synchronize()
        return _room(name).cpu().numpy()
    if name == "numba":
        cuda = importlib.import_module("numba.cuda")
        array = x.copy_to_host(stream=cuda.external_stream(on.cuda_stream))
        on.synchronize()
        return array
    return np.array(x + 0)  # JAX has one compute stream, and waits for it


SOURCES = ["cupy", "torch", "numba"]  # JAX's streams are private


def _run(source: str, target: str, stream_form: str, cycles: int):
    """Write on a busy stream, convert, read on another; return the values and whether convert waited."""
    framework = side(source)
    x = framework.make(np.full(SHAPE, OLD, "f4"))
    if target in ("cupy", "torch"):
        _room(target)
    _torch().cuda.synchronize()
    first, then = stream(), stream()
    busy(first, cycles)
    exported = write(source, x, first)
    with current(source, first):
        if stream_form == "default":
            with current(target, then):
                result = zc.convert(exported, to=target)
        else:
            stream_option = {"handle": then.cuda_stream, "object": then, "none": -1}[stream_form]
            result = zc.convert(exported, to=target, stream=stream_option)
    waited = first.query()
    values = snapshot(target, result, then)
    first.synchronize()
    return values, waited


def _twice(*args):
    _run(*args, 1000)
    return _run(*args, BUSY_CYCLES)


@pytest.mark.parametrize("stream_form", ["handle", "object"])
@pytest.mark.parametrize("target", ["cupy", "torch", "numba"])
@pytest.mark.parametrize("source", SOURCES)
def test_passed_stream_orders_the_consumer(source: str, target: str, stream_form: str) -> None:
    side(target)
    if source == target:
        pytest.skip("the target returns its own array unchanged")
    values, waited = _twice(source, target, stream_form)
    assert np.all(values == NEW)
    assert not waited, "the host, or the whole device, has waited for the producer"


@pytest.mark.parametrize("target", ["cupy", "torch"])
@pytest.mark.parametrize("source", SOURCES)
def test_current_stream_orders_the_consumer(source: str, target: str) -> None:
    side(target)
    if source == target:
        pytest.skip("the target returns its own array unchanged")
    values, waited = _twice(source, target, "default")
    assert np.all(values == NEW)
    assert not waited


@pytest.mark.parametrize("source", SOURCES)
def test_jax_reads_the_values_of_pending_writes(source: str) -> None:
    side("jax")
    values, _ = _twice(source, "jax", "handle")
    assert np.all(values == NEW)


@pytest.mark.parametrize("target", ["cupy", "torch"])
@pytest.mark.parametrize("source", ["cupy", "torch"])
def test_no_sync_stream_reads_old_values(source: str, target: str) -> None:
    """Stream -1 requests no order: the consumer overtakes the producer and reads the old values."""
    side(target)
    if source == target:
        pytest.skip("the target returns its own array unchanged")
    values, waited = _twice(source, target, "none")
    assert not waited
    assert np.all(values == OLD), "the stream was not busy for long enough to show an order"


@pytest.mark.parametrize("target", NAMES)
def test_consumer_waits_for_the_interfaces_stream(target: str) -> None:
    """Version 3: the consumer waits for the exported stream, not the current one."""
    cupy = side("cupy")
    side(target)
    for cycles in (1000, BUSY_CYCLES):
        x = cupy.make(np.full(SHAPE, OLD, "f4"))
        _torch().cuda.synchronize()
        first, then = stream(), stream()
        busy(first, cycles)
        write("cupy", x, first)
        bare = InterfaceAlone(x, stream=first.cuda_stream)
        stream_option = None if target == "jax" else then.cuda_stream
        result = zc.convert(bare, to=target, stream=stream_option)
        waited = first.query()
        values = snapshot(target, result, then)
        assert np.all(values == NEW)
        first.synchronize()
    if target != "jax":
        assert not waited


@pytest.mark.parametrize("source", SOURCES)
def test_fetching_waits_for_the_producer(source: str) -> None:
    framework = side(source)
    for cycles in (1000, BUSY_CYCLES):
        x = framework.make(np.full(SHAPE, OLD, "f4"))
        _torch().cuda.synchronize()
        first = stream()
        busy(first, cycles)
        exported = write(source, x, first)
        with current(source, first):
            assert np.all(zc.convert(exported, to="numpy") == NEW)


@pytest.mark.parametrize("source", ["cupy", "numba"])
def test_fetching_on_a_stream_waits_for_the_producer(source: str) -> None:
    framework = side(source)
    for cycles in (1000, BUSY_CYCLES):
        x = framework.make(np.full(SHAPE, OLD, "f4"))
        _torch().cuda.synchronize()
        first, then = stream(), stream()
        busy(first, cycles)
        exported = write(source, x, first)
        with current(source, first):
            assert np.all(zc.convert(exported, to="numpy", stream=then) == NEW)


@pytest.mark.parametrize("name", ["cupy", "torch", "numba"])
def test_transfers_do_not_wait_for_the_device(name: str) -> None:
    """Transfers in both directions complete while another stream is still busy."""
    side(name)
    # The same streams twice: the second time their pool has the memory and does not call the driver.
    other, on = stream(), stream()
    for cycles in (1000, 4 * BUSY_CYCLES):
        _torch().cuda.synchronize()
        busy(other, cycles)
        x = zc.convert(sample(), to=name, device=DEVICE, stream=on)
        with current(name, on):
            back = zc.convert(x, to="numpy", stream=on)
        other_finished = other.query()
        assert np.array_equal(back, sample())
        other.synchronize()
        del x
    if name != "numba":  # each allocation calls the driver, which may synchronise
        assert not other_finished


@pytest.mark.parametrize("name", ["cupy", "torch", "numba"])
def test_copy_on_a_stream_waits_for_the_producer(name: str) -> None:
    """copy=True within one framework reads after the work on the array's own stream."""
    framework = side(name)
    first, then = stream(), stream()  # the same twice, as above
    for cycles in (1000, BUSY_CYCLES):
        x = framework.make(np.full(SHAPE, OLD, "f4"))
        _torch().cuda.synchronize()
        busy(first, cycles)
        exported = write(name, x, first)
        with current(name, first):
            copied = zc.convert(exported, to=name, copy=True, stream=then)
        waited = first.query()
        assert np.all(snapshot(name, copied, then) == NEW)
        first.synchronize()
        del copied
    if name != "numba":  # as above
        assert not waited


def test_source_may_change_after_a_transfer_returns() -> None:
    """The device reads pinned memory asynchronously, unless the host waits."""
    torch = _torch()
    side("torch")
    pinned = torch.ones(20_000_000).pin_memory()
    for name in NAMES:
        if not have(name):
            continue
        pinned.fill_(1)
        x = zc.convert(pinned, to=name, device=DEVICE, copy=True)
        pinned.fill_(0)
        assert np.all(zc.convert(x, to="numpy") == 1), name


@pytest.mark.parametrize("name", ["torch", "cupy", "numba"])
def test_stream_objects_of_frameworks_are_accepted(name: str) -> None:
    side(name)
    cupy = side("cupy")
    x = cupy.make(sample())
    if name == "torch":
        torch = _torch()
        streams = [torch.cuda.Stream(), torch.cuda.default_stream()]
    elif name == "cupy":
        cuda = importlib.import_module("cupy").cuda
        streams = [cuda.Stream(non_blocking=True), cuda.Stream.null, cuda.Stream.ptds]
    else:
        cuda = importlib.import_module("numba.cuda")
        streams = [
            cuda.stream(),
            cuda.default_stream(),
            cuda.legacy_default_stream(),
            cuda.per_thread_default_stream(),
        ]
    for on in streams:
        for target in NAMES:
            if have(target):
                result = zc.convert(x, to=target, stream=on)
                assert np.array_equal(zc.convert(result, to="numpy"), sample()), (on, target)
