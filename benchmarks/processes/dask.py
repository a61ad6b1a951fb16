"""Dask: a task whose argument lies in another worker of the machine, against an empty task.

Three clusters run at the same time, and take turns: Dask alone, frames over TCP, and handles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache, partial
from time import perf_counter_ns
from typing import Any

import numpy as np

from benchmarks.processes.objects import available, make, nbytes_of
from benchmarks.processes.row import Contender, row, size
from benchmarks.suite import Case, Settings

TODAY, TCP, HANDLES = "Dask", "Dask and zerocopy, frames over TCP", "Dask and zerocopy, handles"
EMPTY = "an empty task"
#: Options of `zerocopy.integrations.dask.install` for each cluster; None without it.
SIDES: dict[str, dict[str, Any] | None] = {TODAY: None, TCP: {"same_host": False}, HANDLES: {}}
#: Each round makes the argument of each side again.
_ROUNDS = 9


def rows(settings: Settings) -> Iterator[Case]:
    """Yield the cases of each framework: by handle on one host, and over TCP."""
    import dask

    # All objects of a round fit into memory.
    with dask.config.set({"distributed.worker.memory.terminate": False}), ExitStack() as stack:
        sides = {name: stack.enter_context(_Cluster(options)) for name, options in SIDES.items()}
        for framework in available(settings):
            nbytes = nbytes_of(framework, settings, size(settings))
            roles = {TODAY: "idiom", TCP: "ours", HANDLES: "ours"}
            contenders = [
                Contender(name, roles[name], partial(side.transfer, framework, nbytes))
                for name, side in sides.items()
            ]
            contenders.append(Contender(EMPTY, "reference", partial(sides[HANDLES].transfer, None, 0)))
            both = row("", contenders, settings, rounds=_ROUNDS)
            for question, left_out in (("Dask, same host", TCP), ("Dask, tcp", HANDLES)):
                entries = [entry for entry in both.entries if entry.label != left_out]
                yield Case(f"{question}, {framework}", entries)


class _Cluster:
    """A cluster of two workers, with or without the serializers of zerocopy."""

    def __init__(self, options: dict[str, Any] | None) -> None:
        self._options = options
        self._stack = ExitStack()

    def __enter__(self) -> _Cluster:
        from distributed import Client, LocalCluster

        import zerocopy.integrations.dask

        cluster = LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",  # with None, its HTTP server warns if port 8787 is in use
            memory_limit=0,
        )
        self._stack.enter_context(cluster)
        self._client = self._stack.enter_context(Client(cluster, set_as_default=False))
        if self._options is not None:
            zerocopy.integrations.dask.install(self._client, **self._options)
        self._sender, self._receiver = sorted(self._client.nthreads())
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def transfer(self, framework: str | None, nbytes: int) -> int:
        """Return the nanoseconds of a task in the receiver, whose argument is in the sender."""
        on_sender = {"workers": [self._sender], "pure": False}
        argument = self._client.submit(_argument, framework, nbytes, **on_sender)
        self._client.submit(_nothing, argument, **on_sender).result()
        start = perf_counter_ns()
        self._client.submit(_read, argument, workers=[self._receiver], pure=False).result()
        return perf_counter_ns() - start


def _argument(framework: str | None, nbytes: int) -> Any:
    """Return an object that Dask has not seen, because a worker keeps those that it received."""
    if framework is None:
        return 0
    kept = _kept(framework, nbytes)
    for name in ("clone", "copy", "__copy__"):
        if hasattr(kept, name):
            return getattr(kept, name)()
    import copy

    return copy.copy(kept)


@cache
def _kept(framework: str, nbytes: int) -> Any:
    return make(framework, nbytes)


def _read(obj: Any) -> float:
    """Return one element without creating an array of the framework, which can compile a kernel."""
    if isinstance(obj, int):
        return 0
    if hasattr(obj, "columns"):
        return float(len(obj))
    return float(np.asarray(obj)[5])


def _nothing(obj: Any) -> int:
    return 0
