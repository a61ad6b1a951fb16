"""multiprocessing and concurrent.futures: arrays and tables by handles, in real processes."""

from __future__ import annotations

import pickle
import queue
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from helpers import mp_workers
from helpers.frameworks import HOST
from helpers.mp_workers import IGNORE_FORK, MEBI, METHODS, checksum, context

import zerocopy as zc
import zerocopy.integrations.multiprocessing as zmp
from zerocopy.errors import SharedMemoryError
from zerocopy.integrations.multiprocessing import reducing
from zerocopy.shared.blocks import large_blocks

pytestmark = pytest.mark.filterwarnings(IGNORE_FORK)
PATIENCE = 60


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    zmp.install()
    yield
    zmp.release()
    zmp.uninstall()


@pytest.fixture
def pipe() -> Iterator[tuple[Any, Any]]:
    receiver, sender = context("spawn").Pipe(duplex=False)
    yield receiver, sender
    receiver.close()
    sender.close()


@pytest.fixture(scope="module")
def echoed() -> Iterator[Any]:
    """Return a function that sends an object to a process and back: type's name there, and the object."""
    ours, theirs = context("spawn").Pipe()
    process = context("spawn").Process(target=mp_workers.echo, args=(theirs,), daemon=True)
    process.start()
    theirs.close()

    def echo(obj: Any) -> Any:
        ours.send(obj)
        assert ours.poll(PATIENCE)
        return ours.recv()

    yield echo
    ours.send(None)
    process.join(PATIENCE)
    assert process.exitcode == 0


def received(obj: Any) -> Any:
    """Return an object as it arrives, in this process."""
    return pickle.loads(dumps(obj))


def dumps(obj: Any) -> bytes:
    return bytes(ForkingPickler.dumps(obj))


def array_of(name: str) -> Any:
    return zc.convert(np.arange(MEBI, dtype="f4").reshape(512, -1), to=name, copy=True)


def table_of(name: str) -> Any:
    columns = {"a": np.arange(MEBI, dtype="f8"), "b": np.arange(MEBI, dtype="i4")}
    return zc.convert(columns, to=name)


# -- what arrives ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("numpy", "torch") else pytest.mark.full)
        for name in ("numpy", "torch", "jax", "tensorflow")
        if name in HOST
    ],
)
def test_arrays_of_every_framework(name: str, echoed: Any) -> None:
    array = array_of(name)
    assert len(dumps(array)) < 512
    there, back = echoed(array)
    assert there == type(array).__name__
    assert type(back) is type(array)
    assert np.array_equal(np.asarray(back), np.asarray(array))
    assert back.dtype == array.dtype


@pytest.mark.parametrize("name", ["pyarrow", "pandas", "polars"])
def test_tables_of_every_framework(name: str, echoed: Any) -> None:
    pytest.importorskip(name)
    table = table_of(name)
    assert len(dumps(table)) < 2048
    there, back = echoed(table)
    assert there == type(table).__name__
    assert type(back) is type(table)
    assert back.equals(table)


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(2.0 * MEBI).reshape(2, -1).repeat(2, 0)),
        np.arange(4.0 * MEBI)[::2],
        np.arange(4 * MEBI).reshape(4, -1).T[:, ::-1],
        np.ones(MEBI, "i4,f8"),
        np.arange(MEBI).astype("M8[s]"),
        np.arange(MEBI).astype(">i4"),
        np.arange(MEBI).astype("S9"),
    ],
    ids=["fortran", "strided", "reversed", "records", "dates", "byte-order", "text"],
)
def test_numpy_arrays_of_every_kind(array: Any) -> None:
    data = dumps(array)
    result = pickle.loads(data)
    assert len(data) < 1024
    assert result.dtype == array.dtype
    assert np.array_equal(result, array)
    assert result.flags.writeable
    assert zmp.in_flight().objects == 0


def test_small_arrays_and_other_objects_are_sent_as_before() -> None:
    objects = [np.arange(100), np.zeros(MEBI // 2 - 1, "f4"), {"a": 1}, print, np.ndarray, zc.share]
    ours = [dumps(obj) for obj in objects]
    zmp.uninstall()
    assert ours == [dumps(obj) for obj in objects]


def test_objects_that_a_handle_cannot_carry_are_sent_as_before() -> None:
    class Sub(np.ndarray):
        pass

    plain = np.zeros(MEBI)
    objects = [np.full(MEBI, None), plain.view(np.matrix), np.ma.zeros(MEBI), plain.view(np.recarray)]
    for obj in objects:
        assert type(received(obj)) is type(obj)
    assert zmp.in_flight().objects == 0
    with pytest.raises((pickle.PicklingError, AttributeError)):  # a local class, as before
        dumps(np.zeros(MEBI).view(Sub))


@pytest.mark.hazard("robustness#reducers-of-torch")
@pytest.mark.parametrize("imported", [pytest.param("before", marks=pytest.mark.full), "after"])
def test_torch_reducers_get_what_a_handle_cannot_carry(run_warm, imported: str) -> None:
    pytest.importorskip("torch")
    process = run_warm(
        f"""
        import pickle, torch
        from multiprocessing.reduction import ForkingPickler
        import zerocopy.integrations.multiprocessing as zmp
        if {imported!r} == "before": import torch.multiprocessing
        zmp.install()
        import torch.multiprocessing
        from torch.multiprocessing.reductions import reduce_tensor
        def sent(obj): return b"zerocopy" in bytes(ForkingPickler.dumps(obj))
        big = torch.ones(1 << 20)
        assert sent(big) and sent(big[::2]) and sent(big.bfloat16())
        others = [torch.ones(1 << 20, requires_grad=True), torch.nn.Parameter(torch.ones(1 << 20)),
                  torch.nn.Parameter(torch.ones(1 << 20), requires_grad=False), torch.eye(1000).to_sparse(),
                  torch.ones(1 << 20).share_memory_(), torch.ones(1 << 20, device="meta"), torch.ones(10)]
        assert not any(map(sent, others))
        back = [pickle.loads(ForkingPickler.dumps(obj)) for obj in others]
        assert [type(b) for b in back] == [type(o) for o in others]
        assert [b.requires_grad for b in back] == [o.requires_grad for o in others]
        # What arrived goes through torch's own reducer too.
        received = pickle.loads(ForkingPickler.dumps(big))
        assert torch.equal(pickle.loads(ForkingPickler.dumps(received[:5])), big[:5])
        zmp.release()
        zmp.uninstall()
        assert ForkingPickler._extra_reducers[torch.Tensor] is reduce_tensor
        assert not sent(torch.ones(1 << 20)) and not hasattr(ForkingPickler, "reducer_override")
        """
    )
    assert process.returncode == 0, process.stderr


def test_a_container_has_one_handle_for_each_array(pipe: Any) -> None:
    receiver, sender = pipe
    batch = {"x": np.zeros(MEBI), "y": [np.ones(MEBI), (np.full(MEBI, 2.0), "text")], "z": np.arange(3)}
    sender.send(batch)
    assert zmp.in_flight() == (3, 3 * 8 * MEBI)
    result = receiver.recv()
    assert zmp.in_flight().objects == 0
    assert result["y"][1][0][-1] == 2
    assert result["z"].tolist() == [0, 1, 2]


def test_only_the_given_frameworks() -> None:
    zmp.install(["torch"])
    assert len(dumps(np.zeros(MEBI))) > 8 * MEBI
    zmp.install(["numpy"])
    assert len(dumps(np.zeros(MEBI))) < 512
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zmp.install(["nunpy"])


def test_a_hook_that_was_there_is_called_and_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(self: Any, obj: Any) -> Any:
        return (str, ("hooked",)) if obj is mark else NotImplemented

    mark = object()
    zmp.uninstall()
    monkeypatch.setattr(ForkingPickler, "reducer_override", hook, raising=False)
    zmp.install()
    assert pickle.loads(dumps(mark)) == "hooked"
    assert len(dumps(np.zeros(MEBI))) < 512
    zmp.uninstall()
    assert ForkingPickler.__dict__["reducer_override"] is hook
    monkeypatch.undo()
    zmp.install()
    assert len(dumps(np.zeros(MEBI))) < 512


@pytest.mark.hazard("robustness#received-arrays")
def test_received_arrays_are_independent() -> None:
    array = zc.shared_empty(MEBI, "f4")
    array[:] = 1
    first, second = received(array), received(array)
    first += 1
    received(first)[:] = 5
    assert (array[0], first[0], second[0]) == (1, 2, 1)


@pytest.mark.hazard("robustness#object-that-is-sent-on")
def test_a_received_array_is_sent_on_after_its_sender_has_freed_it(pipe: Any) -> None:
    """Sharing another process's memory again would give a handle that its owner makes stale."""
    receiver, sender = pipe
    first = received(np.arange(MEBI))
    sender.send(first)
    for _ in range(4):
        received(np.zeros(MEBI))
    assert np.array_equal(receiver.recv(), np.arange(MEBI))


# -- pools, queues and start methods ---------------------------------------------------


@pytest.mark.hazard("robustness#sender-that-ends")
@pytest.mark.parametrize("method", METHODS)
def test_pool_results(method: str) -> None:
    # With fork, which is fast, each worker ends when it has sent its result.
    tasks = 1 if method == "fork" else None
    with context(method).Pool(1, initializer=zmp.install, maxtasksperchild=tasks) as pool:
        job = pool.map_async(mp_workers.add_one, [np.full(MEBI, i, "f4") for i in range(4)], chunksize=1)
        assert [result[0] for result in job.get(PATIENCE)] == [1, 2, 3, 4]
        pool.close()
        pool.join()
    assert zmp.in_flight().objects == 0


def test_process_pool_executor() -> None:
    with ProcessPoolExecutor(1, mp_context=context("forkserver"), initializer=zmp.install) as executor:
        jobs = [executor.submit(mp_workers.add_one, np.full(MEBI, i, "f4")) for i in range(4)]
        assert [job.result(PATIENCE)[-1] for job in jobs] == [1, 2, 3, 4]
        assert executor.submit(mp_workers.zeros, 2 * MEBI).result(PATIENCE).shape == (2 * MEBI,)


@pytest.mark.hazard("robustness#sender-that-ends")
@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_puts_and_ends_waits_for_the_receiver(method: str) -> None:
    ctx = context(method)
    results = ctx.Queue()
    process = ctx.Process(target=mp_workers.put, args=(results, np.arange(MEBI, dtype="f4")))
    process.start()
    process.join(0.2)
    assert np.array_equal(results.get(timeout=PATIENCE), 2 * np.arange(MEBI, dtype="f4"))
    process.join(PATIENCE)
    assert process.exitcode == 0


@pytest.mark.hazard("robustness#sender-that-ends")
@pytest.mark.parametrize(
    "method", ["fork", *(pytest.param(method, marks=pytest.mark.full) for method in METHODS[1:])]
)
def test_a_worker_waits_for_a_busy_parent(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit is 0 seconds, and does not apply while its parent lives."""
    monkeypatch.setattr(reducing, "EXIT_SECONDS", 0.0)
    ctx = context(method)
    results = ctx.Queue()
    process = ctx.Process(target=mp_workers.put_without_seconds, args=(results,))
    process.start()
    process.join(0.3 if method == "fork" else 5)
    assert process.exitcode is None
    assert results.get(timeout=PATIENCE).sum() == MEBI
    process.join(PATIENCE)
    assert process.exitcode == 0


def test_a_thousand_messages_through_a_queue_with_four_consumers() -> None:
    zmp.install(limit=16 << 20)
    ctx = context("forkserver")
    tasks, results = ctx.Queue(), ctx.Queue()
    consumers = [ctx.Process(target=mp_workers.consume, args=(tasks, results)) for _ in range(4)]
    for process in consumers:
        process.start()
    fresh, expected = large_blocks.fresh, {}
    rng = np.random.default_rng(0)
    base = rng.integers(0, 256, 600_000, "u1")
    for number in range(1000):
        array = base + np.uint8(number % 256)
        expected[number] = checksum(array)
        tasks.put((number, array))
        if number % 20 == 19:  # otherwise the queue holds 600 MB of arrays
            for _ in range(20):
                number, value = results.get(timeout=PATIENCE)
                assert expected.pop(number) == value
    for _ in consumers:
        tasks.put(None)
    for process in consumers:
        process.join(PATIENCE)
        assert process.exitcode == 0
    assert not expected
    # At most 26 in flight, one open in each consumer, and one that is being written. Under load, consumers
    # hold leases longer, and a segment with a lease is passed over.
    assert large_blocks.fresh - fresh <= 100


# -- limits and faults -------------------------------------------------------------------


@pytest.mark.hazard("robustness#receiver-that-dies")
def test_beyond_the_limit_bytes_are_sent(pipe: Any) -> None:
    zmp.install(limit=5 << 20)
    sent = [dumps(np.full(MEBI, i, "f4")) for i in range(7)]
    assert [len(data) < 512 for data in sent] == [True] * 5 + [False] * 2
    assert [pickle.loads(data)[0] for data in sent] == list(range(7))
    assert len(dumps(np.zeros(MEBI, "f4"))) < 512


@pytest.mark.hazard("robustness#no-memory-for-a-segment")
def test_without_shared_memory_bytes_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise SharedMemoryError("", "no room")

    monkeypatch.setattr(reducing, "share_frames", fail)
    assert received(np.arange(MEBI))[-1] == MEBI - 1


@pytest.mark.hazard("robustness#pickle-that-is-loaded-twice")
def test_bytes_that_are_loaded_twice() -> None:
    data = dumps(np.arange(MEBI))
    first = pickle.loads(data)
    second = pickle.loads(data)  # the sender has not freed it yet
    assert np.array_equal(first, second)
    assert not np.shares_memory(first, second)
    received(np.zeros(MEBI))
    with pytest.raises(zc.errors.StaleHandleError, match="received before"):
        pickle.loads(data)
    assert first[-1] == MEBI - 1


def test_a_released_object_is_stale() -> None:
    data = dumps(np.arange(MEBI))
    zmp.release()
    assert zmp.in_flight() == (0, 0)
    with pytest.raises(zc.errors.StaleHandleError, match="released"):
        pickle.loads(data)


@pytest.mark.hazard("robustness#sender-that-is-killed")
def test_a_killed_sender(pipe: Any) -> None:
    receiver, sender = pipe
    process = context("forkserver").Process(target=mp_workers.put_two, args=(sender,))
    process.start()
    sender.close()
    first = receiver.recv()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGKILL
    with pytest.raises(zc.errors.StaleHandleError, match=rf"process {process.pid}.* ended.*\n.*keep process"):
        receiver.recv()
    assert first.sum() == MEBI
    with pytest.raises(EOFError):
        receiver.recv()


@pytest.mark.hazard("robustness#receiver-that-dies")
def test_a_receiver_that_is_killed_before_it_receives() -> None:
    ctx = context("forkserver")
    ours, theirs = ctx.Pipe()
    process = ctx.Process(target=mp_workers.wait_unread, args=(theirs,))
    process.start()
    theirs.close()
    assert ours.poll(PATIENCE)
    assert ours.recv_bytes() == b"ready"
    ours.send(np.zeros(MEBI))
    process.kill()
    process.join(PATIENCE)
    assert zmp.in_flight() == (1, 8 * MEBI)
    zmp.release()
    assert zmp.in_flight() == (0, 0)


def test_a_forked_child_leaves_what_is_in_flight(pipe: Any) -> None:
    receiver, sender = pipe
    sender.send(np.arange(MEBI))
    process = context("fork").Process(target=zmp.release)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert zmp.in_flight().objects == 1
    assert receiver.recv()[-1] == MEBI - 1


def test_threads_send_and_receive() -> None:
    items: queue.Queue[Any] = queue.Queue()
    threads = [
        threading.Thread(target=lambda i=i: [items.put(received(np.full(MEBI, i, "f4"))) for _ in range(10)])
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    sums = [items.get(timeout=PATIENCE).sum() / MEBI for _ in range(40)]
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(sums) == sorted(i for i in range(4) for _ in range(10))


def test_a_function_with_a_large_argument() -> None:
    """A target of ``Process`` or of a pool."""
    job = partial(mp_workers.add_one, np.zeros(MEBI, "f4"))
    assert len(dumps(job)) < 1024
    assert received(job)().sum() == MEBI
