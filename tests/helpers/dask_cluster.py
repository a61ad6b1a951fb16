"""A local Dask cluster for tests: worker processes on the loopback interface, without a dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def local_cluster(workers: int = 2, **options: Any) -> Iterator[Any]:
    """Start a cluster on this machine and stop it at the end; yields its client."""
    distributed = pytest.importorskip("distributed")
    import dask

    settings = {
        "distributed.worker.memory.terminate": False,
        # The active memory manager moves replicas in the background.
        "distributed.scheduler.active-memory-manager.start": False,
        "distributed.comm.timeouts.connect": "20s",
        "distributed.admin.log-format": "%(message)s",
    }
    with dask.config.set(settings):
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",  # with None, its HTTP server warns if port 8787 is in use
            silence_logs=50,
            **{"memory_limit": 0, **options},
        )
        try:
            with cluster, distributed.Client(cluster, set_as_default=False) as client:
                yield client
        finally:
            cluster.close()


def addresses(client: Any) -> list[str]:
    """Return the addresses of a cluster's workers, which do not change their order.

    `Client.scheduler_info` may return no workers: its result is an attribute that the client replaces
    every two seconds, without workers.
    """
    return sorted(client.nthreads())


def run_on(client: Any, worker: str, task: Callable[..., Any], *arguments: Any) -> Any:
    """Return the future of a task that runs in one worker."""
    return client.submit(task, *arguments, workers=[worker], allow_other_workers=False, pure=False)
