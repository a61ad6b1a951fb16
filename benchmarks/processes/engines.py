"""The engines, each in a module of this package that is imported when it is measured."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module

from benchmarks.processes.goals import goals
from benchmarks.suite import Case, Section, Settings, Task

#: The module of each engine, the distribution that it needs, and its description.
ENGINES = {
    "pipes": ("multiprocessing", "multiprocessing: Pipe and Queue"),
    "dataloader": ("torch", "torch's DataLoader: batches of 32 MiB from 1 and 2 workers"),
    "ray": ("ray", "Ray: put and get"),
    "dask": ("distributed", "Dask: worker to worker, on one host and by tcp"),
    "flight": ("pyarrow", "Arrow Flight: a table on one host"),
}


def _tasks(name: str, settings: Settings) -> list[Task]:
    module = f"{__package__}.{name}"
    if importlib.util.find_spec(ENGINES[name][0]) is None or importlib.util.find_spec(module) is None:
        return []
    return [Task(name, partial(_run, module, settings), seconds=8)]


def _run(module: str, settings: Settings) -> Iterable[Case]:
    # Imported here: an engine takes seconds to import.
    rows: Callable[[Settings], Iterable[Case]] = import_module(module).rows
    return rows(settings)


SECTIONS = tuple(
    Section(name, about, partial(_tasks, name), "rivals", goals) for name, (_, about) in ENGINES.items()
)
