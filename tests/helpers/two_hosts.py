"""Programs that tests run on the first of two hosts; their arguments run a command on the second."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.hosts import engines
from benchmarks.hosts.network import ADDRESSES
from benchmarks.processes import dask, flight
from benchmarks.processes.objects import make
from helpers import dask_tasks as tasks
from helpers.dask_cluster import run_on

NBYTES = 32 << 20
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas")


def same(received: dict[str, Any], framework: str) -> None:
    """Check the type, the elements and the values of an object, and that no handle was sent."""
    expected = tasks.describe(tasks.make(framework, NBYTES))
    for key in ("type", "dtype", "sum"):
        assert received[key] == expected[key], (framework, key)
    assert not received["any mapped"]


def run_dask(there: list[str]) -> None:
    with dask.Cluster({}, ADDRESSES[0], there) as cluster:
        client, receiver = cluster.client, cluster.receiver
        client.run(_count_copies, workers=[receiver])
        for framework in FRAMEWORKS:
            obj = run_on(client, cluster.sender, tasks.make, framework, NBYTES)
            same(run_on(client, receiver, tasks.describe, obj).result(timeout=300), framework)
        assert client.run(_copies, workers=[receiver]) == {receiver: 0}


def _count_copies() -> None:
    from zerocopy.integrations.dask import serializers

    own = serializers._copy
    serializers.copies = 0

    def copy(buffer: Any) -> Any:
        serializers.copies += 1
        return own(buffer)

    serializers._copy = copy


def _copies() -> int:
    from zerocopy.integrations.dask import serializers

    return serializers.copies


def run_ray(there: list[str]) -> None:
    with engines.two_nodes(there) as reader:
        import ray

        from zerocopy.integrations.ray import install

        install()
        describe = ray.remote(tasks.describe).options(resources={engines.SECOND: 0.1})
        for framework in FRAMEWORKS:
            obj = tasks.make(framework, NBYTES)
            same(ray.get(describe.remote(obj)), framework)
            grown = [ray.get(reader.get.remote([ray.put(obj)]))[1] for _ in range(4)]
            assert min(grown) < NBYTES // 4, (framework, grown)  # the first import the framework


def run_flight(there: list[str]) -> None:
    with flight.connect(f"grpc://{ADDRESSES[1]}:0", NBYTES, there) as client:
        received = flight.fetch(client, b"kept")()
        assert received.equals(make("pyarrow", NBYTES))
        assert not tasks.describe(received)["any mapped"]


if __name__ == "__main__":
    globals()[f"run_{sys.argv[1]}"](sys.argv[2:])
