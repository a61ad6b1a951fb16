"""Receivers with few or no free descriptors, or little address space, and processes that are killed."""

from __future__ import annotations

import errno
import os
import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pyarrow as pa
import pytest

import zerocopy.integrations.multiprocessing as zmp
from zerocopy.errors import SharedMemoryError
from zerocopy.integrations.multiprocessing import reducing
from zerocopy.shared import descriptors
from zerocopy.shared.reading import Mapping

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*")

HEAD = """
import os, resource, sys, numpy as np, multiprocessing as mp
import zerocopy as zc, zerocopy.integrations.multiprocessing as zmp
from concurrent.futures import ProcessPoolExecutor
COUNT, SIZE = 40, 1 << 16
def make(i): return np.full(SIZE, i, "f8")
def right(got):
    assert all(a.shape == (SIZE,) and int(a.min()) == int(a.max()) for a in got)
    return sorted(int(a[0]) for a in got) == [*range(COUNT)]
ctx = mp.get_context("fork")
def put(queue):
    zmp.install()
    for i in range(COUNT): queue.put(make(i))
def send(pipe):
    zmp.install()
    for i in range(COUNT): pipe.send(make(i))
def few(count=64): resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
zmp.install()
"""

WAYS = {
    "pool": """
with ctx.Pool(1, initializer=zmp.install) as pool:
    got = pool.map_async(make, range(COUNT), chunksize=1).get(30)
""",
    "queue": """
queue = ctx.Queue()
process = ctx.Process(target=put, args=(queue,)); process.start()
got = [queue.get(timeout=30) for _ in range(COUNT)]; process.join(30)
""",
    "pipe": """
receiver, sender = ctx.Pipe(False)
process = ctx.Process(target=send, args=(sender,)); process.start()
got = [receiver.recv() for _ in range(COUNT)]; process.join(30)
""",
    "executor": """
with ProcessPoolExecutor(1, mp_context=ctx, initializer=zmp.install) as executor:
    got = list(executor.map(make, range(COUNT), timeout=30))
""",
    "dataloader": """
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return COUNT
    def __getitem__(self, i): return make(i)
collate = zmp.shared_collate("numpy", stack=False)
got = list(torch.utils.data.DataLoader(Rows(), None, num_workers=1, collate_fn=collate))
""",
}


@pytest.mark.hazard("robustness#receiver-without-descriptors")
@pytest.mark.parametrize("way", WAYS)
def test_all_objects_arrive_with_few_descriptors(run_warm, way: str) -> None:
    process = run_warm(f"{HEAD}\nfew()\n{WAYS[way]}\nassert right(got) and zmp.in_flight().objects == 0\n")
    assert process.returncode == 0, process.stderr


#: A pipe is filled by a child; the receiver then takes every descriptor that is left.
NONE = """
receiver, sender = ctx.Pipe(False)
process = ctx.Process(target=send, args=(sender,)); process.start()
got = [receiver.recv()]  # imports what a table needs
few(40); fds = []
try:
    while True: fds.append(os.dup(0))
except OSError: pass
"""


@pytest.mark.hazard("robustness#receiver-without-descriptors")
@pytest.mark.parametrize("form", ["array", "table"])
def test_all_objects_arrive_without_a_free_descriptor(run_warm, form: str) -> None:
    make, column = "", "a"
    if form == "table":  # two blocks, of which one has the index
        make = "import pyarrow as pa\nmake = lambda i: pa.table({n: np.full(SIZE, i) for n in 'ab'})"
        column = "(a['a'].to_numpy() + a['b'].to_numpy()) / 2"
    code = f"""{HEAD}
{make}
{NONE}
got += [receiver.recv() for _ in range(COUNT - 1)]
for fd in fds: os.close(fd)
process.join(30)
assert process.exitcode == 0 and right([{column} for a in got])
"""
    process = run_warm(code)
    assert process.returncode == 0, process.stderr


@pytest.mark.hazard("robustness#receiver-without-descriptors")
@pytest.mark.parametrize("form", ["array", "table"])
def test_an_object_that_cannot_be_mapped_is_copied(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Mapping fails if there is little address space, or if there are too many mappings."""

    def fail(fd: int) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    values = np.arange(1 << 17)
    obj = values if form == "array" else pa.table({"a": values, "b": values * 2})
    zmp.install()
    try:
        data = bytes(ForkingPickler.dumps(obj))
        assert len(data) < 4096
        monkeypatch.setattr(Mapping, "private", fail)
        got = pickle.loads(data)
        assert zmp.in_flight().objects == 0
    finally:
        zmp.uninstall()
    if form == "array":
        got += 1  # a write to it is permitted
        assert np.array_equal(got, values + 1)
    else:
        assert got.equals(obj)


@pytest.mark.hazard("robustness#receiver-without-descriptors")
def test_an_object_that_was_not_opened_can_be_received_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: object) -> None:
        raise SharedMemoryError("", "no room")

    zmp.install()
    try:
        data = bytes(ForkingPickler.dumps(np.arange(1 << 17)))
        with monkeypatch.context() as patch:
            patch.setattr(reducing, "open_frames", fail)
            with pytest.raises(SharedMemoryError):
                pickle.loads(data)
        assert zmp.in_flight().objects == 1
        assert pickle.loads(data)[-1] == (1 << 17) - 1
        assert zmp.in_flight().objects == 0
    finally:
        zmp.uninstall()


def test_a_reserve_that_a_daemon_has_closed_closes_no_other_file() -> None:
    """The numbers of the closed descriptors can belong to other files afterwards."""
    descriptors.keep_reserve()
    held = [*descriptors._held]
    with open(os.devnull, "rb") as file:
        for fd in held:
            os.dup2(file.fileno(), fd)
        assert descriptors.with_reserve(lambda: 1) == 1
        errors = [OSError(errno.EMFILE, "none is free")]

        def once() -> int:
            if errors:
                raise errors.pop()
            return 2

        assert descriptors.with_reserve(once) == 2
        for fd in held:
            assert os.fstat(fd).st_rdev == os.fstat(file.fileno()).st_rdev
            os.close(fd)
    assert len(descriptors._held) == 3


MANY = f"{HEAD}\nCOUNT, SIZE = 1000, 1 << 17\nfew(1024)\n"
MANY_WAYS = {
    "pool": "with ctx.Pool(2, initializer=zmp.install) as pool: got = pool.map(make, range(COUNT))",
    "queue": WAYS["queue"],
}


@pytest.mark.full
@pytest.mark.hazard("robustness#receiver-without-descriptors")
@pytest.mark.parametrize("way", MANY_WAYS)
def test_a_thousand_results_of_one_megabyte_arrive_with_1024_descriptors(run_warm, way: str) -> None:
    process = run_warm(f"{MANY}{MANY_WAYS[way]}\nassert right(got) and zmp.in_flight().objects == 0\n")
    assert process.returncode == 0, process.stderr


#: Clients and servers, workers and stores of real clusters, each with 1,024 descriptors.
CLUSTERS = {
    "flight": """
from pyarrow import flight
from helpers.flight_server import running
from zerocopy.integrations.flight import fetch
with running("grpc://127.0.0.1:0") as program, program.connect() as client:
    command = flight.FlightDescriptor.for_command("polars")  # another copy in each call
    got = [fetch(client, command) for _ in range(COUNT)]
    assert all(table.equals(got[0]) for table in got[::100])
""",
    "dask": """
from helpers.dask_cluster import addresses, local_cluster, run_on
import zerocopy.integrations.dask
def read(arrays): return [int(a[0]) for a in arrays]
with local_cluster() as client:
    zerocopy.integrations.dask.install(client)
    client.run(few, 1024)
    sender, receiver = addresses(client)
    futures = [run_on(client, sender, make, i) for i in range(COUNT)]
    assert run_on(client, receiver, read, futures).result(timeout=250) == [*range(COUNT)]
    assert right(client.gather(futures))
""",
    "ray": """
from helpers import ray_cluster
import zerocopy.integrations.ray as zray
ray_cluster.STORE = 2 << 30
zray.install()
with ray_cluster.local_ray(runtime_env=zray.runtime_env()) as ray:
    few(1024)  # Ray's own processes need more
    remote = ray.remote(make)
    assert right(ray.get([remote.remote(i) for i in range(COUNT)]))
""",
}


@pytest.mark.full
@pytest.mark.hazard("robustness#receiver-without-descriptors")
@pytest.mark.parametrize("name", CLUSTERS)
def test_a_thousand_results_of_a_cluster_arrive_with_1024_descriptors(run_python, name: str) -> None:
    pytest.importorskip({"flight": "pyarrow.flight", "dask": "distributed"}.get(name, name))
    limit = "" if name == "ray" else "few(1024)"
    head = HEAD.replace("zmp.install()\n", "").replace(
        "COUNT, SIZE = 40, 1 << 16", "COUNT, SIZE = 1000, 1 << 17"
    )
    process = run_python(f"import sys\nsys.path.insert(0, 'tests')\n{head}\n{limit}\n{CLUSTERS[name]}")
    assert process.returncode == 0, process.stderr[-4000:]


LITTLE_SPACE = """
import mmap
{make}
def send_sizes(pipe):
    zmp.install()
    for size in (1 << 17, 1 << 23, 1 << 17, 1 << 23): pipe.send(make(size))
ours, theirs = ctx.Pipe()
process = ctx.Process(target=send_sizes, args=(theirs,)); process.start(); theirs.close()
assert ours.recv().nbytes == 1 << 20  # imports what a receiver needs
used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20), resource.RLIM_INFINITY))
outcomes = []
for _ in range(3):
    try: outcomes.append(ours.recv().nbytes)
    except MemoryError: outcomes.append(MemoryError)
process.join(60)
assert outcomes == [MemoryError, 1 << 20, MemoryError], outcomes
assert process.exitcode == 0
"""
MAKES = {
    "array": "def make(size): return np.ones(size)",
    "table": "import pyarrow as pa\ndef make(size): return pa.table({'a': np.ones(size)})",
}


@pytest.mark.hazard("robustness#receiver-without-descriptors")
@pytest.mark.parametrize("form", MAKES)
def test_a_receiver_with_little_address_space_raises_and_its_sender_ends(run_python, form: str) -> None:
    """The sender does not wait for an object that its receiver had no memory to open."""
    process = run_python(f"{HEAD}\n{LITTLE_SPACE.replace('{make}', MAKES[form])}")
    assert process.returncode == 0, process.stderr


def test_a_failed_object_can_be_received_later_and_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handle: object) -> None:
        raise MemoryError

    zmp.install()
    try:
        data = bytes(ForkingPickler.dumps(np.arange(1 << 17)))
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(reducing, "open_frames", fail)
                with pytest.raises(MemoryError):
                    pickle.loads(data)
        reducing._tickets.wait(0, lambda: pytest.fail("it waits"))
        assert zmp.in_flight().objects == 1
        assert pickle.loads(data)[-1] == (1 << 17) - 1
        assert zmp.in_flight().objects == 0
    finally:
        zmp.uninstall()


KILLED = """
import time
{make}
def pids(): return [*filter(str.isdecimal, os.listdir("/proc"))]
def segments(pids):
    found = set()
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{fd}"
                if os.readlink(path).startswith("/memfd:zerocopy"): found.add(os.stat(path).st_ino)
        except OSError: pass
    return found
def send_and_wait(pipe):
    zmp.install()
    pipe.send(make(1 << 20)); time.sleep(60)
def wait(pipe, ready): ready.send(0); time.sleep(60)
inherited, names = segments([os.getpid()]), set(os.listdir("/dev/shm"))
receiver, sender = ctx.Pipe(False)
ready, there = ctx.Pipe(False)
processes = [ctx.Process(target=send_and_wait, args=(sender,))]
processes += [ctx.Process(target=wait, args=(receiver, there))]
for process in processes: process.start()
ready.recv()
assert receiver.poll(60)  # the handle is sent
held = segments([processes[0].pid]) - inherited
assert held
for process in ORDER:
    process.kill(); process.join(60)
assert not held & segments(pids())
assert not [name for name in set(os.listdir("/dev/shm")) - names if "zerocopy" in name]
if len(ORDER) == 1:
    try: receiver.recv()
    except zc.errors.StaleHandleError: pass
    else: raise SystemExit("an object of a dead process was received")
    processes[1].kill(); processes[1].join(60)
"""


@pytest.mark.hazard("robustness#sender-that-is-killed")
@pytest.mark.parametrize("form", MAKES)
@pytest.mark.parametrize("order", ["processes[:1]", "processes", "processes[::-1]"])
def test_processes_killed_between_send_and_receive_leave_no_segment(run_warm, form: str, order: str) -> None:
    process = run_warm(f"{HEAD}\n{KILLED.replace('{make}', MAKES[form]).replace('ORDER', order)}")
    assert process.returncode == 0, process.stderr
