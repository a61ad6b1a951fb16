"""Arrays in CUDA memory between processes, over a stand-in for the driver; tests/gpu has the real one."""

from __future__ import annotations

import gc
import os
import pickle
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import cuda_ipc_driver, cuda_stubs
from helpers.cuda_ipc_driver import Driver
from helpers.cuda_ipc_reader import Reader, array, destroyed, wait_until

import zerocopy as zc
from zerocopy.errors import DeviceError, HandleFormatError, StaleHandleError
from zerocopy.frames import to_frames
from zerocopy.shared.blocks import large_blocks
from zerocopy.shared.cuda.exporting import Descriptor
from zerocopy.shared.cuda.releases import Releases, releases

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux only")


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    process = Reader()
    yield process
    process.kill()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    yield cuda_ipc_driver.install(monkeypatch)
    gc.collect()
    wait_until(lambda: len(releases) == 0)
    cuda_stubs.forget()


# -- values and memory --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "c16", "?"])
def test_reader_uses_the_same_memory(driver: Driver, reader: Reader, dtype: str) -> None:
    x = array(dtype=dtype)
    with zc.share(x) as shared:
        assert (shared.copied_bytes, shared.nbytes, shared.framework) == (0, x._host.nbytes, "cupy")
        assert reader.open(shared) == "done"
        assert reader.run("x._host.tolist()") == str(x._host.tolist())
        assert reader.run("str(x.dtype)") == str(x.dtype)
        x._host[...] = 1
        assert reader.run("x._host.tolist()") == str(x._host.tolist())
        reader.run("x._host[0, 0] = 0")
        assert x._host[0, 0] == 0
        reader.drop()


@pytest.mark.hazard("other-frameworks#context-of-shared-memory")
def test_reader_holds_the_context_that_has_the_mapping(driver: Driver, reader: Reader) -> None:
    """The process may open the handle before a framework has made the context its own."""
    with zc.share(array()) as shared:
        assert reader.open(shared) == "done"
        assert int(reader.run("driver.retained")) > 0
        reader.drop()


def test_types_that_numpy_lacks_are_kept(driver: Driver, reader: Reader) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with zc.share(array(dtype=ml_dtypes.bfloat16)) as shared:
        assert reader.open(shared) == "done"
        assert reader.run("str(x.dtype), float(x._host[2, 3])") == "('bfloat16', 11.0)"
        reader.drop()


def test_transposed_arrays_keep_their_order_and_strided_ones_are_copied(
    driver: Driver, reader: Reader
) -> None:
    x = array()
    for view, copied in ((x.T, 0), (x[1:], 0), (x[:, ::2], 24)):
        with zc.share(view) as shared:
            assert shared.copied_bytes == copied
            assert reader.open(shared) == "done"
            assert reader.run("x._host.tolist()") == str(view._host.tolist())
            assert reader.run("x.strides") == str(view.strides if not copied else (8, 4))
            reader.drop()


def test_handle_is_short_and_pickles(driver: Driver) -> None:
    with zc.share(array()) as shared:
        copy = pickle.loads(pickle.dumps(shared))
        assert (copy, type(copy)) == (shared, type(shared))
        assert len(pickle.dumps(shared)) <= 256
        assert repr(shared) == "<zerocopy.Shared cupy: 48 bytes>"


def test_own_process_uses_the_pointer(driver: Driver) -> None:
    x = array()
    with zc.share(x) as shared:
        assert zc.convert(zc.Shared.from_bytes(bytes(shared)), to="cupy") is x
        assert zc.view(shared).ptr == x.data.ptr
        assert "open" not in driver.log
    with pytest.raises(StaleHandleError):
        zc.convert(shared, to="cupy")


def test_explain_agrees(driver: Driver) -> None:
    with zc.share(array()) as shared:
        assert zc.explain(shared, to="cupy").zero_copy
        assert not zc.explain(shared, to="numpy").zero_copy
        np.testing.assert_array_equal(zc.convert(shared, to="numpy"), array()._host)


# -- order --------------------------------------------------------------------------------


def test_reader_waits_for_the_event_on_its_stream(driver: Driver, reader: Reader) -> None:
    with zc.share(array()) as shared:
        assert ("record", 1) in driver.log
        event = driver.events
        assert reader.open(shared) == "done"
        reader.drop()
        reader.run("driver.log.clear()")
        assert reader.open(shared) == "done"
        assert f"('wait', 1, {event})" in reader.run("driver.log")
        assert "synchronize" not in reader.run("driver.log")
        reader.drop()
        assert not destroyed(driver)
    wait_until(lambda: ("destroy", event) in driver.log)


# -- lifetimes ----------------------------------------------------------------------------


def test_owner_keeps_the_array_until_the_reader_is_done(driver: Driver, reader: Reader) -> None:
    x = array()
    shared = zc.share(x)
    assert reader.open(shared) == "done"
    assert reader.run("gc.collect() >= 0") == "True"
    ptr, handle = x.data.ptr, bytes(shared)
    shared.close()
    del x
    time.sleep(0.3)
    assert not destroyed(driver)
    assert driver.machine.allocation(ptr)
    with pytest.raises(StaleHandleError):  # a new reader comes too late
        zc.convert(zc.Shared.from_bytes(handle), to="cupy")
    assert reader.run("x._host.tolist()") == str(np.arange(12.0).reshape(3, 4).tolist())
    reader.run("driver.log.clear()")
    reader.drop()
    wait_until(lambda: destroyed(driver))
    assert reader.run("driver.log") == "['synchronize', 'close']"


def test_owner_keeps_the_array_for_results_of_results(driver: Driver, reader: Reader) -> None:
    shared = zc.share(array())
    assert reader.open(shared) == "done"
    reader.run("y = x[1:]; del x; gc.collect()")
    shared.close()
    time.sleep(0.3)
    assert not destroyed(driver)
    reader.drop("y")
    wait_until(lambda: destroyed(driver))


def test_a_killed_reader_has_no_lease(driver: Driver) -> None:
    shared, reader = zc.share(array()), Reader()
    assert reader.open(shared) == "done"
    shared.close()
    time.sleep(0.1)
    assert not destroyed(driver)
    reader.kill()
    wait_until(lambda: destroyed(driver))


def test_arrays_in_one_allocation_are_opened_once(driver: Driver, reader: Reader) -> None:
    x = array((8,))
    with zc.share(x[:4]) as first, zc.share(x[4:]) as second:
        reader.run("driver.log.clear()")
        assert reader.open(first) == "done"
        reader.run("y = x")
        assert reader.open(second) == "done"
        assert reader.run("driver.log.count('open'), y._host.tolist(), x._host.tolist()") == (
            "(1, [0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0])"
        )
        reader.drop("x, y")


def test_lease_blocks_are_reused(driver: Driver) -> None:
    x = array()
    zc.share(x).close()
    wait_until(lambda: destroyed(driver))
    fresh = large_blocks.fresh
    for _ in range(20):
        driver.log.clear()
        zc.share(x).close()
        wait_until(lambda: destroyed(driver))
    assert large_blocks.fresh == fresh


def test_a_forked_child_releases_nothing(driver: Driver) -> None:
    shared = zc.share(array())
    pid = os.fork()
    if not pid:
        driver.log.clear()
        shared.close()
        time.sleep(0.1)
        os._exit(len(driver.log))
    assert os.waitpid(pid, 0)[1] == 0
    assert not destroyed(driver)
    shared.close()


def test_a_release_that_fails_does_not_end_the_others() -> None:
    tries, queue = [], Releases()

    def fail() -> bool:
        tries.append(1)
        raise DeviceError("", "the device was lost")

    queue.add(fail)
    queue.add(lambda: True)
    wait_until(lambda: not len(queue))
    queue.add(lambda: True)
    wait_until(lambda: not len(queue))
    assert len(tries) == 1


def test_releases_are_tried_again_until_they_succeed() -> None:
    tries, queue = [], Releases()

    def release() -> bool:
        tries.append(1)
        return len(tries) == 3

    queue.add(release)
    wait_until(lambda: len(tries) == 3 and not len(queue))
    queue.add(lambda: True)
    wait_until(lambda: not len(queue))


def test_the_length_includes_a_release_until_its_memory_is_free() -> None:
    lengths, queue = [], Releases()

    class Release:
        tries = 0

        def __call__(self) -> bool:
            lengths.append(len(queue))
            self.tries += 1
            return self.tries == 2

        def __del__(self) -> None:
            lengths.append(len(queue))

    queue.add(Release())
    wait_until(lambda: not len(queue))
    assert lengths == [1, 1, 1]


# -- refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(("pool", "why"), [(4242, "asynchronous pool"), (0, "expandable segments")])
def test_memory_without_a_handle_is_refused(driver: Driver, pool: int, why: str) -> None:
    driver.has_handles, driver.pool = False, pool
    x = array()
    with pytest.raises(zc.UnsupportedConversionError, match=why) as raised:
        zc.share(x)
    assert raised.value.code == "no-device-handle"
    assert "share(" in str(raised.value)
    np.testing.assert_array_equal(zc.convert(zc.share(zc.convert(x, to="numpy")), to="numpy"), x._host)


def test_arrays_without_elements_need_no_driver(driver: Driver, reader: Reader) -> None:
    with zc.share(array((0, 3))) as shared:
        assert reader.open(shared) == "done"
        assert reader.run("x.shape, type(x).__module__") == "((0, 3), 'cupy')"
        assert not destroyed(driver)
        reader.drop()


def test_errors_of_the_driver_are_raised(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuIpcGetMemHandle", lambda *arguments: 1, raising=False)
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_VALUE"):
        zc.share(array())
    assert len(releases) == 0


def test_no_room_for_the_lease_block_destroys_the_event(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> Any:
        raise zc.errors.SharedMemoryError("", "the test has no room")

    monkeypatch.setattr(type(large_blocks), "take", refuse)
    with pytest.raises(MemoryError, match="no room"):
        zc.share(array())
    assert ("destroy", driver.events) in driver.log


def test_a_gpu_that_the_reader_does_not_see_is_refused(driver: Driver, reader: Reader) -> None:
    with zc.share(array()) as shared:
        reader.run("driver.visible = {0: 7}")
        assert "CUDA_VISIBLE_DEVICES" in reader.open(shared)
        reader.run("driver.visible = {0: 1, 1: 0}")  # in another order
        assert reader.open(shared) == "done"
        assert reader.run("x.device.id") == "1"
        reader.run("driver.visible = {0: 0, 1: 1}")
        reader.drop()


def test_host_frames_still_refuse_device_memory(driver: Driver) -> None:
    with pytest.raises(zc.UnsupportedConversionError) as raised:
        to_frames(array())
    assert raised.value.code == "other-device"


def test_damaged_descriptors_are_refused() -> None:
    good = Descriptor(bytes(16), bytes(64), bytes(64), 1024, 512)
    assert Descriptor.unpack(good.pack(), 512) == good
    for data, nbytes in ((b"", 1), (good.pack()[:-1], 1), (b"x" + good.pack()[1:], 1), (good.pack(), 513)):
        with pytest.raises(HandleFormatError):
            Descriptor.unpack(data, nbytes)


def test_handles_of_devices_are_not_opened_as_host_memory(driver: Driver) -> None:
    """A sender that changes the flags gets an error or bytes of its own lease block, never a crash."""
    with zc.share(array()) as shared:
        handle = shared.handle
        for flags in (0, 1, 2, 4, 5, 6, 9, 12):
            changed = zc.Shared.from_bytes(handle._replace(flags=flags).pack())
            try:
                opened = zc.convert(changed, to="numpy")
            except zc.ZeroCopyError:
                continue
            assert opened.nbytes <= 48
