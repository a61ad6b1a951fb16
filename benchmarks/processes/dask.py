"""Dask: a task whose argument lies in another worker of the machine, against an empty task.

Three clusters run at the same time, and take turns: Dask alone, frames over TCP, and handles.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from time import perf_counter_ns, process_time_ns
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
        sides = {name: stack.enter_context(Cluster(options)) for name, options in SIDES.items()}
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


class Cluster:
    """A cluster of two workers, with the serializers of zerocopy if `options` of `install` are given.

    `address` is that of this host. `other` are the words before a command that run it on another host, which
    then has the receiver.
    """

    def __init__(
        self, options: dict[str, Any] | None, address: str = "127.0.0.1", other: Sequence[str] = ()
    ) -> None:
        self._options, self._address, self._other = options, address, other
        self._stack = ExitStack()

    def __enter__(self) -> Cluster:
        from distributed import Client, LocalCluster

        import zerocopy.integrations.dask

        cluster = LocalCluster(
            n_workers=1 if self._other else 2,
            host=self._address,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",  # with None, its HTTP server warns if port 8787 is in use
            memory_limit=0,
        )
        self._stack.enter_context(cluster)
        self.client = self._stack.enter_context(Client(cluster, set_as_default=False))
        if self._other:
            options = ("--nthreads=1", "--memory-limit=0", "--no-dashboard", "--no-nanny")
            worker = (sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address)
            process = subprocess.Popen([*self._other, *worker, *options], stderr=subprocess.DEVNULL)
            self._stack.callback(process.kill)
            self.client.wait_for_workers(2, timeout=60)
        if self._options is not None:
            zerocopy.integrations.dask.install(self.client, **self._options)
        self.sender, self.receiver = sorted(self.client.nthreads())
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def transfer(self, framework: str | None, nbytes: int, processor: list[float] | None = None) -> int:
        """Return the nanoseconds of a task in the receiver, whose argument is in the sender.

        Append the CPU time of both workers to `processor`, also in nanoseconds.
        """
        on_sender = {"workers": [self.sender], "pure": False}
        argument = self.client.submit(_argument, framework, nbytes, **on_sender)
        self.client.submit(_nothing, argument, **on_sender).result()
        before = self._processor_time() if processor is not None else 0
        start = perf_counter_ns()
        self.client.submit(_read, argument, workers=[self.receiver], pure=False).result()
        spent = perf_counter_ns() - start
        if processor is not None:
            processor.append(self._processor_time() - before)
        return spent

    def _processor_time(self) -> int:
        return sum(self.client.run(process_time_ns).values())


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
