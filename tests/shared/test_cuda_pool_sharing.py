"""Arrays in asynchronous pools of CUDA between processes, over a stand-in for the driver."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import cuda_ipc_driver, cuda_stubs
from helpers.cuda_ipc_driver import Driver
from helpers.cuda_ipc_reader import Reader, array, destroyed, wait_until

import zerocopy as zc
from zerocopy.errors import DeviceError
from zerocopy.shared import broker, start_broker, stop_broker
from zerocopy.shared.broker import Offer, offered
from zerocopy.shared.cuda import exporting
from zerocopy.shared.cuda.releases import releases
from zerocopy.shared.segment_file import request_offer

pytestmark = pytest.mark.skipif(not hasattr(os, "eventfd"), reason="Linux, Python 3.10")


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    process = Reader()
    yield process
    process.kill()


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    simulated = cuda_ipc_driver.install(monkeypatch)
    simulated.has_handles, simulated.pool, simulated.exportable = False, 4242, True
    yield simulated
    gc.collect()
    wait_until(lambda: len(releases) == 0)
    cuda_stubs.forget()
    stop_broker()


def calls(reader: Reader) -> list[Any]:
    """Return the reader's calls of the driver that concern pools."""
    log = [each for each in eval(reader.run("driver.log")) if isinstance(each, str)]
    reader.run("driver.log.clear()")
    return log


def test_reader_uses_the_same_memory(driver: Driver, reader: Reader) -> None:
    x = array()
    calls(reader)
    with zc.share(x) as shared:
        assert (shared.copied_bytes, shared.framework) == (0, "cupy")
        assert reader.open(shared) == "done"
        assert reader.run("x._host.tolist()") == str(x._host.tolist())
        x._host[...] = 1
        assert reader.run("x._host.tolist()") == str(x._host.tolist())
        reader.drop()
    assert calls(reader) == ["import-pool", "import", "synchronize", "free", "destroy-pool"]


@pytest.mark.hazard("robustness#driver-files")
def test_a_pool_and_an_allocation_are_imported_once(driver: Driver, reader: Reader) -> None:
    x, z = array((8,)), array((2,))
    calls(reader)
    with zc.share(x[:4]) as first, zc.share(x[4:]) as second, zc.share(z) as third:
        for shared, name in ((first, "a"), (second, "b"), (third, "c")):
            assert reader.open(shared) == "done"
            reader.run(f"{name} = x")
        assert reader.run("b._host.tolist(), c._host.tolist()") == "([4.0, 5.0, 6.0, 7.0], [0.0, 1.0])"
        assert calls(reader) == ["import-pool", "import", "import"]
        reader.drop("a, b, c, x")
        assert calls(reader).count("free") == 2
        assert reader.open(first) == "done"  # again
        assert calls(reader) == ["import-pool", "import"]
        reader.drop()
    assert driver.log.count("export-pool") == 1


def test_opening_and_dropping_never_import_an_allocation_twice(driver: Driver, reader: Reader) -> None:
    with zc.share(array()) as shared:
        handle = bytes(shared).hex()
        opened = f"zc.convert(zc.Shared.from_bytes(bytes.fromhex('{handle}')), to='cupy')"
        assert reader.run(f"{{{opened}.shape for _ in range(300)}}") == "{(3, 4)}"
        reader.run("y = 0")
        reader.drop("y")


def test_owner_frees_after_the_reader(driver: Driver, reader: Reader) -> None:
    x = array()
    shared, ptr = zc.share(x), x.data.ptr
    assert reader.open(shared) == "done"
    shared.close()
    del x
    time.sleep(0.2)
    assert not destroyed(driver)
    assert driver.machine.allocation(ptr)
    calls(reader)
    reader.drop()
    wait_until(lambda: destroyed(driver))
    assert calls(reader) == ["synchronize", "free", "destroy-pool"]


@pytest.mark.hazard("robustness#order-of-finalizers")
@pytest.mark.parametrize("has_handles", [False, True])
def test_a_garbage_collection_frees_in_the_same_order(
    driver: Driver, reader: Reader, has_handles: bool
) -> None:
    """It may call the finalizers of all objects in a cycle before it drops any."""
    driver.has_handles = has_handles
    shared = zc.share(array())
    reader.run("gc.disable()")
    assert reader.open(shared) == "done"
    reader.run("cycle = [zc.view(x), x]; cycle.append(cycle); del x")
    calls(reader)
    shared.close()
    reader.run("gc.enable()")
    reader.drop("cycle")
    wait_until(lambda: destroyed(driver))
    freed = ["close"] if has_handles else ["free", "destroy-pool"]
    assert calls(reader) == ["synchronize", *freed]


def test_a_killed_reader_has_no_lease(driver: Driver) -> None:
    shared, reader = zc.share(array()), Reader()
    assert reader.open(shared) == "done"
    shared.close()
    reader.kill()
    wait_until(lambda: destroyed(driver))


def test_the_pools_file_is_closed_with_its_last_shared_array(driver: Driver) -> None:
    x = array()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    start_broker()
    for _ in range(20):
        zc.share(x).close()
        wait_until(lambda: not exporting._offers)
    stop_broker()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # a new segment for lease blocks, and its lock


def test_share_starts_a_broker_and_keeps_the_programs_own(driver: Driver) -> None:
    assert broker._broker is None
    with zc.share(array()):
        own = broker._broker
        assert own is not None
    with zc.share(array()):
        assert broker._broker is own


def test_without_a_broker_the_reader_gets_an_error(driver: Driver, reader: Reader) -> None:
    with zc.share(array()) as shared:
        stop_broker()
        assert reader.open(shared).startswith("HandleAccessError")
        start_broker()
        assert reader.open(shared) == "done"
        reader.drop()


def test_a_broker_that_does_not_start_is_an_error(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise PermissionError("no sockets")

    monkeypatch.setattr(broker, "_listen", refuse)
    with pytest.raises(zc.UnsupportedConversionError, match="no sockets"):
        zc.share(array())


def test_pools_that_are_not_exportable_are_refused(driver: Driver) -> None:
    driver.exportable = False
    with pytest.raises(zc.UnsupportedConversionError, match=r"asynchronous pool(.|\n)*ipc=True") as raised:
        zc.share(array())
    assert raised.value.code == "no-device-handle"
    assert not exporting._offers


def test_errors_of_the_driver_are_raised(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "cuMemPoolExportPointer", lambda *arguments: 1, raising=False)
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_VALUE"):
        zc.share(array())
    assert len(releases) == 0


def test_a_reader_that_cannot_import_keeps_nothing(driver: Driver, reader: Reader) -> None:
    with zc.share(array()) as shared:
        reader.run("driver.cuMemPoolImportPointer = lambda *arguments: 1")
        calls(reader)
        assert reader.open(shared).startswith("DeviceError")
        reader.run("gc.collect()")
        assert set(calls(reader)) == {"import-pool", "destroy-pool"}
        assert reader.run("driver.pools, driver.imports") == "({}, {})"
        reader.run("del driver.cuMemPoolImportPointer")
        assert reader.open(shared) == "done"
        reader.drop()


def test_the_broker_gives_offered_files_only() -> None:
    start_broker()
    try:
        shared = zc.shared_empty((100_000,), "u1")
        location = zc.share(shared).handle.location
        offer = Offer(os.eventfd(5))
        number, fd = offer.number, request_offer(location, offer.number)
        assert fd is not None
        assert os.eventfd_read(fd) == 5
        os.close(fd)
        for wrong in (0, number ^ 2, location.inode):
            with pytest.raises(FileNotFoundError):
                request_offer(location, wrong)
        del offer
        assert offered(number) is None
        with pytest.raises(FileNotFoundError):
            request_offer(location, number)
    finally:
        stop_broker()
