"""``ray.put`` and ``ray.get``: Ray alone, and with zerocopy's serializers, on a local cluster."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter_ns
from typing import Any

from benchmarks.processes.objects import available, make, nbytes_of
from benchmarks.processes.row import Contender, elapsed, memcpy, row, size
from benchmarks.suite import Case, Settings

#: Figures: how the private memory of another process grows when it gets the object.
PRIVATE, PRIVATE_TODAY = "bytes private to the reader", "bytes private to the reader without zerocopy"
#: NumPy, pyarrow and pandas are stored out of band by Ray itself.
FRAMEWORKS = ("torch", "jax", "tensorflow", "polars")
TODAY, OURS = "Ray", "Ray and zerocopy"

_STORE_BYTES = 1 << 30


def rows(settings: Settings) -> Iterator[Case]:
    names = [name for name in available(settings) if name in FRAMEWORKS]
    if not names:
        return
    with cluster() as reader:
        for name in names:
            yield from _cases(name, reader, settings)


@contextmanager
def cluster(reader: dict[str, Any] | None = None, **options: Any) -> Iterator[Any]:
    """Connect to a Ray, by default a new one here, and yield a reader in another process.

    `reader` has options of the actor, and `options` those of ``ray.init``.
    """
    import ray

    from zerocopy.integrations.ray import runtime_env

    here = {"num_cpus": 2, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    ray.init(
        **(options or {"address": "local", **here}),
        configure_logging=False,
        log_to_driver=False,
        runtime_env=runtime_env(),
    )
    try:
        yield ray.remote(_Reader).options(**(reader or {})).remote()
    finally:
        switch(TODAY)
        ray.shutdown()


class _Reader:
    """An actor that reads objects and reports the growth of its private memory."""

    def __init__(self) -> None:
        self._kept: Any = None

    def get(self, held: list[Any]) -> tuple[int, int]:
        """Return the nanoseconds and the growth; `held` has a reference, as Ray resolves plain arguments."""
        import psutil
        import ray

        self._kept = None
        gc.collect()
        before = psutil.Process().memory_full_info().uss
        start = perf_counter_ns()
        self._kept = ray.get(held[0])
        spent = perf_counter_ns() - start
        return spent, int(psutil.Process().memory_full_info().uss - before)


def fetch(reader: Any, obj: Any, side: str, grown: list[float]) -> int:
    """Return the nanoseconds of ``ray.get`` of a new object in the reader; append its growth."""
    import ray

    switch(side)
    spent, growth = ray.get(reader.get.remote([ray.put(obj)]))
    grown.append(growth)
    return int(spent)


def _cases(framework: str, reader: Any, settings: Settings) -> Iterator[Case]:
    import ray

    nbytes = nbytes_of(framework, settings, size(settings))
    obj = make(framework, nbytes)

    def put(side: str) -> int:
        switch(side)
        return elapsed(lambda: ray.put(obj))

    def contenders(call: Callable[[str], int]) -> list[Contender]:
        ours = Contender(OURS, "ours", partial(call, OURS))
        return [Contender(TODAY, "idiom", partial(call, TODAY)), ours, memcpy(nbytes)]

    yield row(f"Ray put, {framework}", contenders(put), settings)
    references = {}
    for side in (TODAY, OURS):
        switch(side)
        references[side] = ray.put(obj)

    def get(side: str) -> int:
        switch(side)
        return elapsed(lambda: ray.get(references[side]))

    # The least of three: other work of the process also grows its memory.
    grown = {
        side: float(min(ray.get(reader.get.remote([references[side]]))[1] for _ in range(3)))
        for side in references
    }
    figures = {PRIVATE: mebibytes(grown[OURS]), PRIVATE_TODAY: mebibytes(grown[TODAY])}
    yield row(f"Ray get, {framework}", contenders(get), settings, figures)


def mebibytes(nbytes: float) -> float:
    """Return bytes rounded to whole MiB: reading an object also allocates some pages for Python."""
    return float(round(nbytes / 2**20) << 20)


def switch(side: str) -> None:
    """Install or remove zerocopy's serializers in this process."""
    from zerocopy.integrations.ray import install, uninstall

    install() if side == OURS else uninstall()
