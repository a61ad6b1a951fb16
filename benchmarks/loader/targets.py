"""The loader's targets: columns and a matrix, in order and shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.loader.data import numbers, rows_of
from benchmarks.loader.epochs import ours
from benchmarks.loader.turns import Contender, contest
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.tables.data import installed

TARGETS = {
    "torch": "torch",
    "jax": "jax",
    "tensorflow": "tensorflow",
    "numpy": "numpy",
    "polars": "polars",
}

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
    contenders = [
        _finished(ours(file, target, target, **options))
        for target in targets
        if target != "polars" or "layout" not in options
    ]
    return [contest(mode, contenders, settings)]


def _finished(one: Contender) -> Contender:
    """Return a contender whose batches are complete: JAX returns arrays before they are written."""
    if one.label != "jax":
        return one
    import jax

    def batches() -> Iterator[Any]:
        return map(jax.block_until_ready, one.batches())

    return replace(one, batches=batches)


SECTIONS = (Section("targets", "epochs of each target", tasks, "rivals"),)
