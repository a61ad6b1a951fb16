"""Arrays and tables between processes: pickle, shared memory, and engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module

from benchmarks.contest import installed
from benchmarks.goals import judge
from benchmarks.processes import scale, sharing
from benchmarks.processes.goals import PROMISES
from benchmarks.suite import Case, Section, Settings, Suite, Task

#: The module of each engine, the distribution that it needs, and its description.
ENGINES = {
    "pipes": ("multiprocessing", "multiprocessing: Pipe and Queue"),
    "dataloader": ("torch", "torch's DataLoader: batches of 32 MiB from 1 and 2 workers"),
    "ray": ("ray", "Ray: put and get"),
    "dask": ("distributed", "Dask: worker to worker, on one host and by tcp"),
    "flight": ("pyarrow", "Arrow Flight: a table on one host"),
}


def _tasks(name: str, settings: Settings) -> list[Task]:
    if not installed(ENGINES[name][0]):
        return []
    return [Task(name, partial(_run, f"{__package__}.{name}", settings), seconds=8)]


def _run(module: str, settings: Settings) -> Iterable[Case]:
    # Imported here: an engine takes seconds to import.
    rows: Callable[[Settings], Iterable[Case]] = import_module(module).rows
    return rows(settings)


_GOALS = partial(judge, PROMISES)
_ENGINE_SECTIONS = tuple(
    Section(name, about, partial(_tasks, name), "rivals", _GOALS) for name, (_, about) in ENGINES.items()
)

SUITE = Suite(
    "processes",
    "arrays and tables between processes: pickle, shared memory, Dask, Ray, Flight, multiprocessing",
    (*sharing.SECTIONS, *_ENGINE_SECTIONS, *scale.SECTIONS),
    frameworks=("numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas", "polars"),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "pyarrow", "pandas", "polars"),
        *("distributed", "ray"),
    ),
)
