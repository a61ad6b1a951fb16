"""A local Ray cluster for tests: small, without a dashboard, and without the network."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

#: Bytes of the store: what one test holds at a time fits, so that only the tests that fill it need the disk.
STORE = 256 << 20


@contextmanager
def local_ray(**options: Any) -> Iterator[Any]:
    """Start Ray on this machine and stop it at the end; yields the module."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_DISABLE_IMPORT_WARNING", "1")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        # Ray refuses to spill to a disk of which 95% is used, however much is free.
        patch.setenv("RAY_local_fs_capacity_threshold", "1")
        with warnings.catch_warnings():
            # Ray forks to start its processes, and JAX and Python 3.12 warn of forks with threads.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
            ray.init(
                address="local",
                num_cpus=2,
                object_store_memory=STORE,
                include_dashboard=False,
                configure_logging=False,
                log_to_driver=False,
                **options,
            )
        try:
            yield ray
        finally:
            ray.shutdown()


def serializers() -> Any:
    """Return Ray's table of reducers by type in this process."""
    import ray.cloudpickle

    return ray.cloudpickle.CloudPickler.dispatch
