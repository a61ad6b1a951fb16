"""Ratio of the time of an epoch to that of the consumer's computation alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import perf_counter_ns
from typing import Any

import zerocopy as zc
from benchmarks.loader import rivals
from benchmarks.loader.checks import all_rows
from benchmarks.loader.data import BATCH, numbers, rows_of
from benchmarks.loader.targets import MODES
from benchmarks.loader.turns import Contender, contest
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.tables.data import installed

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
        count = -(-file.rows // BATCH)
        bound = partial(_computing, partial(range, count), compute)

        def one(label: str, role: str, batches: rivals.Batches) -> Contender:
            computing = partial(_computing, batches, compute)
            return Contender(label, role, computing, bound, file.rows, all_rows(file.rows))

        contenders = [one(f"zc.loader, {mode}", "ours", _loader(file.path, **MODES[mode])) for mode in MODES]
        contenders += [
            one("zc.convert of iter_batches, columns", "idiom", rivals.recipe(file.path)),
            one("torch.stack of iter_batches, matrix", "idiom", rivals.stack(file.path)),
            one("torch.stack and a permutation, matrix", "idiom", rivals.shuffled_by_hand(file.path)),
            one("DataLoader, 0 workers, columns", "library", rivals.data_loader(file.path, 0)),
        ]
        case = contest("a consumer that computes", contenders, settings, ALONE)
        case.figures[COMPUTE] = float(nanoseconds)
    finally:
        torch.set_num_threads(threads)
    return [case]


def _loader(path: Any, **options: Any) -> rivals.Batches:
    loader = zc.loader(str(path), to="torch", batch=BATCH, **options)
    return lambda: loader


def _tasks(settings: Settings) -> list[Task]:
    if not installed("torch", "pyarrow") or not settings.wants("torch"):
        return []
    return [Task("waiting", partial(_measure, settings), seconds=8)]


SECTIONS = (
    Section("waiting", "a consumer that computes for 2 ms per batch, in one thread", _tasks, "rivals"),
)
