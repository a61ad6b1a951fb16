"""``ray.put`` and ``ray.get``: Ray alone, and with zerocopy's serializers, on a local cluster."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
    """Yield the cases of each framework."""
    names = [name for name in available(settings) if name in FRAMEWORKS]
    if not names:
        return
    with cluster() as reader:
        for name in names:
            yield from _cases(name, reader, settings)


@contextmanager
def cluster() -> Iterator[Any]:
    """Start a local Ray with a reader in another process, and yield the reader."""
    import ray

    from zerocopy.integrations.ray import runtime_env

    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=_STORE_BYTES,
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
        runtime_env=runtime_env(),
    )
    try:
        yield ray.remote(_Reader).remote()
    finally:
        switch(TODAY)
        ray.shutdown()


class _Reader:
    """An actor that reads objects and reports the growth of its private memory."""

    def __init__(self) -> None:
        self._kept: Any = None

    def growth(self, held: list[Any]) -> int:
        """Return the growth; `held` has a reference, because Ray resolves plain arguments."""
        import psutil
        import ray

        self._kept = None
        gc.collect()
        before = psutil.Process().memory_full_info().uss
        self._kept = ray.get(held[0])
        return int(psutil.Process().memory_full_info().uss - before)


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
        side: float(min(ray.get(reader.growth.remote([references[side]])) for _ in range(3)))
        for side in references
    }
    figures = {PRIVATE: _mebibytes(grown[OURS]), PRIVATE_TODAY: _mebibytes(grown[TODAY])}
    yield row(f"Ray get, {framework}", contenders(get), settings, figures)


def _mebibytes(nbytes: float) -> float:
    """Return bytes rounded to whole MiB: reading an object also allocates some pages for Python."""
    return float(round(nbytes / 2**20) << 20)


def switch(side: str) -> None:
    """Install or remove zerocopy's serializers in this process."""
    from zerocopy.integrations.ray import install, uninstall

    install() if side == OURS else uninstall()
