"""The loader's targets, in each mode, and the time of a consumer that computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any

from benchmarks.contest import installed
from benchmarks.loader import rivals
from benchmarks.loader.data import BATCH, all_rows, numbers, row_groups, rows_of
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


#: The label of the computation on its own.
ALONE = "the computation alone"
COMPUTE = "nanoseconds of the computation of a batch"
_SIDE = 256
#: Nanoseconds of the computation of a batch: several times what reading takes.
_PER_BATCH = 2_000_000


def _computation() -> tuple[Callable[[], None], int]:
    """Return products of matrices that take 2 ms in one thread, and the measured nanoseconds."""
    import torch

    left, right = torch.rand(_SIDE, _SIDE), torch.rand(_SIDE, _SIDE)
    out = torch.empty(_SIDE, _SIDE)

    def products(count: int) -> None:
        for _ in range(count):
            torch.mm(left, right, out=out)

    def spent(count: int) -> int:
        start = perf_counter_ns()
        products(count)
        return perf_counter_ns() - start

    spent(20)
    one = min(spent(10) for _ in range(5)) / 10
    count = max(1, round(_PER_BATCH / one))
    return partial(products, count), round(one * count)


def _computing(batches: Callable[[], Iterable[Any]], compute: Callable[[], None]) -> Iterator[Any]:
    for batch in batches():
        compute()
        yield batch


def _measure(settings: Settings) -> list[Case]:
    import torch

    file = numbers(rows_of(settings))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the consumer has one core, and the reader the other
    try:
        compute, nanoseconds = _computation()
        bound = partial(_computing, partial(range, -(-file.rows // BATCH)), compute)
        ways = [ours(file.path, f"zc.loader, {mode}", **options) for mode, options in MODES.items()]
        ways += [
            Way("zc.convert of iter_batches, columns", "idiom", rivals.recipe(file.path)),
            Way("torch.stack of iter_batches, matrix", "idiom", rivals.stack(file.path)),
            Way("torch.stack and a permutation, matrix", "idiom", rivals.shuffled_by_hand(file.path)),
            Way("DataLoader, 0 workers, columns", "library", rivals.data_loader(file.path, 0)),
        ]
        ways = [way._replace(batches=partial(_computing, way.batches, compute)) for way in ways]
        check = all_rows(file.rows)
        case = contest("a consumer that computes", ways, file.rows, bound, check, settings, ALONE)
        case.figures[COMPUTE] = float(nanoseconds)
    finally:
        torch.set_num_threads(threads)
    return [case]


def _tasks(settings: Settings) -> list[Task]:
    if not installed("torch", "pyarrow") or not settings.wants("torch"):
        return []
    return [Task("waiting", partial(_measure, settings), seconds=8)]


SECTIONS = (
    Section("waiting", "a consumer that computes for 2 ms per batch, in one thread", _tasks, "rivals"),
    Section("targets", "epochs of each target", tasks, "rivals"),
)
