"""``share`` of arrays in CUDA memory: another process opens them by the driver's handles."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.gpu_arrays import MARKS, NAMES, have, side
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy.errors import StaleHandleError
from zerocopy.protocols import cuda_driver, cuda_ipc
from zerocopy.shared.cuda.releases import releases

pytestmark = MARKS

READER = """
import gc, sys
import zerocopy as zc
print("ready", flush=True)
for line in sys.stdin:
    try:
        try:
            print(eval(line), flush=True)
        except SyntaxError:
            exec(line)
            print("done", flush=True)
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace(chr(10), " "), flush=True)
"""


class Reader:
    """A process that runs lines of Python."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._answer() == "ready"

    def run(self, line: str) -> str:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._answer()

    def open(self, shared: zc.Shared, to: str) -> str:
        handle = f"zc.Shared.from_bytes(bytes.fromhex('{bytes(shared).hex()}'))"
        return self.run(f"x = zc.convert({handle}, to='{to}')")

    def values(self) -> np.ndarray:
        # Through CuPy: a JAX array keeps the first copy of its values on the host.
        return np.array(eval(self.run("zc.convert(zc.convert(x, to='cupy'), to='numpy').tolist()")))

    def _answer(self) -> str:
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def reader() -> Iterator[Reader]:
    process = Reader()
    yield process
    process.kill()


def needs(*names: str) -> None:
    for name in names:
        if not have(name):
            pytest.skip(f"{name} is not installed, or finds no GPU")


def plain(values: np.ndarray) -> Any:
    """Return an array in memory of ``cudaMalloc``, which has a handle."""
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.using_allocator(None):
        return cupy.asarray(values)


def wait_until(condition: Any) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.mark.parametrize("to", NAMES)
def test_another_process_reads_and_writes_the_same_memory(reader: Reader, to: str) -> None:
    needs("cupy", to)
    x = plain(np.arange(12, dtype="f4").reshape(3, 4))
    with zc.share(x) as shared:
        assert shared.copied_bytes == 0
        assert reader.open(shared, to) == "done"
        np.testing.assert_array_equal(reader.values(), x.get())
        x[0, 0] = 99
        cuda_ipc.synchronize(0)
        assert reader.values()[0, 0] == 99


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_each_framework_are_shared_or_refused(reader: Reader, name: str) -> None:
    """Their default allocators: those over ``cudaMalloc`` have handles, asynchronous pools have none."""
    needs(name, "cupy")
    x = side(name).make(np.arange(6, dtype="f4"))
    try:
        shared = zc.share(x)
    except zc.UnsupportedConversionError as error:
        if error.code != "no-device-handle":
            raise
        return
    with shared:
        assert reader.open(shared, "cupy") == "done"
        np.testing.assert_array_equal(reader.values(), np.arange(6))


def test_the_event_orders_pending_work(reader: Reader) -> None:
    """The writer's stream is busy when the array is shared, and the reader reads the new values."""
    needs("cupy")
    cupy = pytest.importorskip("cupy")
    x = plain(np.zeros(1 << 20, "f4"))
    big = cupy.ones((8192, 8192), "f4")
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(20):
            big @ big
        x[...] = 2
        shared = zc.share(x)
    assert reader.open(shared, "cupy") == "done"
    assert reader.run("float(x.min())") == "2.0"


def test_the_array_is_kept_until_the_reader_has_ended(reader: Reader) -> None:
    needs("cupy")
    free = cuda_driver.memory_info(0)[0]
    shared = zc.share(plain(np.zeros(1 << 28, "u1")))
    assert reader.open(shared, "cupy") == "done"
    handle = bytes(shared)
    shared.close()
    time.sleep(0.5)
    assert len(releases) == 1
    with pytest.raises(StaleHandleError):
        zc.convert(zc.Shared.from_bytes(handle), to="cupy")
    reader.kill()
    wait_until(lambda: len(releases) == 0)
    assert cuda_driver.memory_info(0)[0] > free - (1 << 27)


def test_views_of_one_allocation_are_opened_once(reader: Reader) -> None:
    needs("cupy")
    x = plain(np.arange(8, dtype="f4"))
    with zc.share(x[:4]) as first, zc.share(x[4:]) as second:
        assert reader.open(first, "cupy") == "done"
        reader.run("y = x")
        assert reader.open(second, "cupy") == "done"
        assert reader.run("x.data.ptr - y.data.ptr") == "16"


OWNER_OF_POOL = """
import gc, subprocess, sys, time
import zerocopy as zc
import rmm
pool = zc.install_pool(resource=lambda device: rmm.mr.CudaAsyncMemoryResource(enable_ipc=True))
import cupy
from zerocopy.shared.cuda.releases import releases
x, y = cupy.arange(1 << 20, dtype="f4"), cupy.ones(10, "i4")
first, second = zc.share(x), zc.share(y)
command = [sys.executable, "-c", sys.argv[1], bytes(first).hex(), bytes(second).hex()]
with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
    print(process.stdout.readline().strip())
    first.close()
    del x
    time.sleep(0.5)
    print(len(releases))  # the owner keeps the array
    process.communicate(chr(10))
print(int(y.sum()))
while len(releases):
    time.sleep(0.01)
gc.collect()
print(pool.stats().current_bytes < 1 << 20)  # only y is left
"""
READER_OF_POOL = """
import sys, zerocopy as zc
x, y = [zc.convert(zc.Shared.from_bytes(bytes.fromhex(each)), to="cupy") for each in sys.argv[1:]]
print(float(x[-1]), int(y.sum()), flush=True)
sys.stdin.readline()
y[:] = 2
zc.convert(y, to="numpy")  # waits for the write
"""


def test_memory_of_a_pool_for_other_processes_is_shared() -> None:
    """The owner is a process of its own, because a process has one pool."""
    needs("cupy")
    pytest.importorskip("rmm")
    done = subprocess.run(
        [sys.executable, "-c", OWNER_OF_POOL, READER_OF_POOL],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=False,
    )
    assert done.stdout.splitlines() == ["1048575.0 10", "1", "20", "True"], done.stderr


def test_memory_of_asynchronous_pools_is_refused() -> None:
    needs("cupy")
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        x = cupy.ones(4)
    with pytest.raises(zc.UnsupportedConversionError, match="asynchronous pool"):
        zc.share(x)


def test_expandable_segments_are_refused() -> None:
    needs("torch")
    code = """
import torch, zerocopy as zc
try:
    zc.share(torch.ones(1 << 20, device="cuda"))
except zc.UnsupportedConversionError as error:
    print(error.code)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        check=True,
        env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    )
    assert done.stdout.strip() == "no-device-handle"


def test_a_forked_child_gets_an_error() -> None:
    needs("cupy")
    shared = zc.share(plain(np.ones(4)))
    pid = os.fork()
    if not pid:
        try:
            zc.convert(zc.Shared.from_bytes(bytes(shared)), to="numpy")
        except Exception:  # noqa: BLE001 - any error is right, and a hang is not
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
