"""A real local Dask cluster whose workers send frames, and handles within this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from helpers import dask_tasks as tasks
from helpers.dask_cluster import addresses, local_cluster, run_on
from helpers.tiers import runs_all

import zerocopy.integrations.dask

distributed = pytest.importorskip("distributed")

MIB = 1 << 20
#: The workers import each framework, TensorFlow in 4 s. test_dask_serializers.py has all, without workers.
FRAMEWORKS = [
    *("numpy", "torch", "pyarrow", "pandas"),
    *(pytest.param(name, marks=pytest.mark.full) for name in ("jax", "tensorflow", "polars")),
]
WAIT = 60


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with local_cluster() as client:
        zerocopy.integrations.dask.install(client)
        yield client
        zerocopy.integrations.dask.uninstall(client)


def sent(client: Any, make: Any, read: Any = tasks.describe) -> Any:
    """Make an object in one worker, and return the result of `read` of it in another worker."""
    sender, receiver = addresses(client)[:2]
    return run_on(client, receiver, read, run_on(client, sender, make)).result(timeout=WAIT)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_workers_of_one_machine_map_large_objects_and_receive_small_ones(client, framework: str) -> None:
    pytest.importorskip(framework)
    for nbytes, mapped in ((3 * MIB, True), (3 * 4096, False)):
        make = partial(tasks.make, framework, nbytes)
        expected = tasks.describe(make())
        received = sent(client, make)
        assert received["mapped"] is received["any mapped"] is mapped
        for key in ("type", "dtype", "sum"):
            assert received[key] == expected[key], key
        assert received["writable"] == expected["writable"]


@pytest.mark.hazard("training#writes-to-arguments-in-dask")
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_write_changes_the_receivers_object_alone(client, framework: str) -> None:
    pytest.importorskip(framework)
    sender, receiver = addresses(client)
    made = run_on(client, sender, tasks.make, framework, MIB)
    assert run_on(client, receiver, tasks.write, made).result(timeout=WAIT) == -1
    assert run_on(client, sender, tasks.first, made).result(timeout=WAIT) == 0


def test_collections_and_objects_that_frames_would_change(client) -> None:
    torch = pytest.importorskip("torch")

    def make() -> Any:
        import numpy as np
        import torch

        large = np.ones(MIB)
        weights = torch.ones(MIB, requires_grad=True)
        return {
            "nested": [large, (large[:3], "text")],
            "weights": weights,
            "objects": np.array([{1}], object),
        }

    def read(obj: Any) -> Any:
        large, (small, text) = obj["nested"]
        weights = obj["weights"]
        assert weights.requires_grad
        assert weights.is_leaf
        return large.sum(), small.tolist(), text, float(weights.sum()), obj["objects"][0]

    assert sent(client, make, read) == (MIB, [1.0] * 3, "text", float(MIB), {1})
    assert torch is not None


def test_read_only_arrays_stay_read_only(client) -> None:
    def make() -> Any:
        array = np.ones(MIB)
        array.flags.writeable = False
        return array

    assert sent(client, make)["writable"] is False


def test_several_recipients_share_one_segment(client) -> None:
    """The second and the third transfer copy nothing."""
    sender = addresses(client)[0]

    def taken() -> int:
        from zerocopy.shared.blocks import large_blocks

        return large_blocks.fresh + large_blocks.recycled

    future = run_on(client, sender, tasks.make, "numpy", 2 * MIB)
    with client.as_current():
        distributed.wait(future, timeout=WAIT)
    before = client.run(taken, workers=[sender])[sender]
    for _ in range(3):
        (array,) = client.gather([future], direct=True)
        assert tasks.describe(array)["mapped"]
        del array
    assert client.run(taken, workers=[sender])[sender] == before + 1


@pytest.mark.hazard("robustness#messages-that-are-passed-on")
def test_the_scheduler_passes_on_bytes_that_any_client_reads(client) -> None:
    """A client without zerocopy's serializers, results through the scheduler, and scattered data."""
    array = tasks.values(MIB)
    future = client.scatter(array, direct=False)
    assert client.submit(tasks.describe, future).result(timeout=WAIT)["sum"] == float(array.sum())
    result = client.submit(tasks.make, "numpy", MIB).result(timeout=WAIT)
    assert np.array_equal(result, array)
    assert not tasks.describe(result)["mapped"]
    code = (
        "import sys\nfrom distributed import Client\n"
        f"with Client({client.scheduler.address!r}) as client:\n"
        "    from helpers import dask_tasks as tasks\n"
        "    for framework in sys.argv[1:]:\n"
        f"        future = client.submit(tasks.make, framework, {MIB})\n"
        "        for direct in (False, True):\n"
        "            print(type(client.gather(future, direct=direct)).__name__)\n"
        "assert 'zerocopy' not in sys.modules\n"
    )
    types = {"torch": "Tensor", "pandas": "DataFrame"}
    types |= {"jax": "ArrayImpl", "polars": "DataFrame"} if runs_all() else {}
    for name in types:
        pytest.importorskip(name)
    output = _python(code, *types)
    assert output.split() == [name for name in types.values() for _ in range(2)]


def _python(code: str, *arguments: str) -> str:
    import subprocess
    import sys

    from helpers.paths import ROOT

    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Counter:
    """An actor with an array."""

    def __init__(self) -> None:
        self.total = np.zeros(MIB)

    def add(self, array: Any) -> Any:
        self.total = self.total + array
        return self.total.copy()  # is dropped when the reply was written


@pytest.mark.hazard("robustness#object-dropped-before-it-is-opened")
def test_actors_get_and_return_arrays(client) -> None:
    sender, receiver = addresses(client)
    # The scheduler releases an actor when its last future is gone, and the actor does not always hold one.
    future = client.submit(Counter, actor=True, workers=[sender])
    actor = future.result(timeout=WAIT)

    def use(actor: Any) -> float:
        array = np.ones(MIB)
        return float(sum(actor.add(array).result()[0] for _ in range(3)))

    assert run_on(client, receiver, use, actor).result(timeout=WAIT) == 1 + 2 + 3


# -- failures ---------------------------------------------------------------------------


@pytest.mark.hazard("robustness#errors-in-messages")
def test_a_receiver_that_cannot_open_handles_gets_bytes(client) -> None:
    """Opening fails once; Dask asks again, and the receiver no longer announces that it reads handles."""
    receiver = addresses(client)[1]

    def forbid() -> None:
        from zerocopy.errors import HandleAccessError
        from zerocopy.integrations.dask import serializers

        def refuse(handle: Any) -> Any:
            raise HandleAccessError("", "not permitted", "")

        serializers.open_frames = refuse

    def allow() -> None:
        from zerocopy.integrations.dask import serializers
        from zerocopy.shared.reading import open_frames

        serializers.open_frames = open_frames

    client.run(forbid, workers=[receiver])
    try:
        for _ in range(2):
            described = sent(client, partial(tasks.make, "numpy", MIB))
            assert described["sum"] == float(tasks.values(MIB).sum())
            assert not described["mapped"]
    finally:
        client.run(allow, workers=[receiver])
        zerocopy.integrations.dask.install(client)
    assert sent(client, partial(tasks.make, "numpy", MIB))["mapped"]


@pytest.fixture
def other_client() -> Iterator[Any]:
    """A cluster of its own: Dask starts a killed worker again at a time of its choice."""
    with local_cluster() as client:
        zerocopy.integrations.dask.install(client)
        yield client


@pytest.mark.full
def test_a_worker_that_joins_later_and_is_killed(other_client) -> None:
    """The receiver keeps its results, and loses nothing: Dask computes the others again."""
    client = other_client
    old = addresses(client)
    client.cluster.scale(3)
    client.wait_for_workers(3, timeout=WAIT)
    (joined,) = set(addresses(client)) - set(old)
    made: list[Any] = []
    for i in range(30):
        # Dask prefers the worker, but it may choose another one.
        size = MIB + 4096 * i
        future = client.submit(tasks.make, "numpy", size, workers=[joined], allow_other_workers=True)
        with client.as_current():
            distributed.wait(future, timeout=WAIT)
        if client.who_has([future])[future.key] == (joined,):
            made.append(future)
        if len(made) == 3:
            break
    held = [run_on(client, old[0], tasks.describe, future).result(timeout=WAIT) for future in made]
    assert all(each["mapped"] for each in held)
    kept = [client.submit(_as_is, future, workers=[old[0]], pure=False) for future in made]
    with client.as_current():
        distributed.wait(kept, timeout=WAIT)
    os.kill(client.run(tasks.process_id, workers=[joined])[joined], signal.SIGKILL)
    again = client.gather([client.submit(tasks.describe, x, workers=[old[1]], pure=False) for x in kept])
    assert [each["sum"] for each in again] == [each["sum"] for each in held]
    assert client.gather(client.map(float, client.map(np.sum, made))) == [each["sum"] for each in held]


def _as_is(obj: Any) -> Any:
    return obj


def test_uninstall_and_install_again(client) -> None:
    zerocopy.integrations.dask.uninstall(client)
    assert not sent(client, partial(tasks.make, "numpy", MIB))["any mapped"]
    zerocopy.integrations.dask.install(client, same_host=False)
    assert not sent(client, partial(tasks.make, "numpy", MIB))["any mapped"]
    zerocopy.integrations.dask.install(client, pool={"host": "aligned"})
    assert sent(client, partial(tasks.make, "numpy", MIB))["mapped"]


@pytest.mark.hazard("robustness#addresses-of-processes")
@pytest.mark.full
def test_workers_with_different_addresses_of_one_machine() -> None:
    """The handshake decides, not the addresses."""
    nanny = {"cls": distributed.Nanny}
    common = {"nthreads": 1, "dashboard": False, "silence_logs": 50, "memory_limit": 0}
    hosts = ["127.0.0.1", "127.0.0.2"]
    workers = {host: {**nanny, "options": {**common, "host": host}} for host in hosts}
    scheduler = {
        "cls": distributed.Scheduler,
        "options": {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": ":0"},
    }
    with (
        distributed.SpecCluster(workers, scheduler, silence_logs=50) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        zerocopy.integrations.dask.install(client)
        first, second = addresses(client)
        assert ("127.0.0.1" in first, "127.0.0.2" in second) == (True, True)
        assert sent(client, partial(tasks.make, "numpy", MIB))["mapped"]
        # Another machine with the same addresses, and another PID namespace, announce other memory.
        client.run(_announce_other_memory, workers=[second])
        described = sent(client, partial(tasks.make, "numpy", MIB))
        assert not described["any mapped"]
        assert described["sum"] == float(tasks.values(MIB).sum())


async def _announce_other_memory(dask_worker: Any) -> None:
    from zerocopy.integrations.dask import peers

    peers.withdraw(dask_worker)
    original = peers.accessible_memory
    peers.accessible_memory = lambda: original()[:16] + b"\0" * 8 + original()[24:]
    peers.announce(dask_worker, same_host=True)
