"""The loader's targets: columns and a matrix, in order and shuffled."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.contest import installed
from benchmarks.loader.data import all_rows, numbers, row_groups, rows_of
from benchmarks.loader.epochs import ours
from benchmarks.loader.turns import Way, contest
from benchmarks.suite import Case, Section, Settings, Task

TARGETS = ("torch", "jax", "tensorflow", "numpy", "polars")

#: The modes, and their options. A table framework has no matrix.
MODES: dict[str, dict[str, Any]] = {
    "columns, in order": {},
    "columns, shuffled": {"shuffle": True},
    "matrix, in order": {"layout": "matrix"},
    "matrix, shuffled": {"layout": "matrix", "shuffle": True},
}


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each mode."""
    targets = [name for name in TARGETS if settings.wants(name) and installed(name)]
    if not targets or not installed("pyarrow"):
        return []
    return [Task(mode, partial(_mode, mode, targets, settings), seconds=4) for mode in MODES]


def _mode(mode: str, targets: list[str], settings: Settings) -> list[Case]:
    file, options = numbers(rows_of(settings)), MODES[mode]
    ways = [
        _finished(ours(file.path, target, target, **options))
        for target in targets
        if target != "polars" or "layout" not in options
    ]
    bound = partial(row_groups, file.path)
    return [contest(mode, ways, file.rows, bound, all_rows(file.rows), settings)]


def _finished(way: Way) -> Way:
    """Return a way whose batches are complete: JAX returns arrays before they are written."""
    if way.label != "jax":
        return way
    import jax

    return way._replace(batches=lambda: map(jax.block_until_ready, way.batches()))


SECTIONS = (Section("targets", "epochs of each target", tasks, "rivals"),)
