"""Epochs of numbers: in order and shuffled, as columns and as a matrix, compared with other ways to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.contest import installed
from benchmarks.loader import rivals
from benchmarks.loader.data import BATCH, File, all_rows, numbers, row_groups, rows_of
from benchmarks.loader.goals import FEWER, HF_TORCH, IN_MEMORY, OURS, goals
from benchmarks.loader.turns import Batches, Way, contest
from benchmarks.suite import Case, Section, Settings, Task

UNBUFFERED = "pyarrow reads with pre_buffer=False"
CREATED, GROUP = "zc.loader, created for the epoch", "zc.loader, window of a row group"

#: A way without its file: its label, its role, whether it is slow, and a function of the path.
Rival = tuple[str, str, bool, Callable[[Any], Batches]]

_SECONDS = 4


def columns_in_order() -> list[Rival]:
    """Return the ways to get columns in the order of the file."""
    ways: list[Rival] = [
        ("zc.convert of iter_batches", "idiom", False, rivals.recipe),
        ("from_numpy of iter_batches", "idiom", False, rivals.by_hand),
        ("DataLoader over iter_batches, 0 workers", "library", False, partial(rivals.data_loader, workers=0)),
        ("DataLoader over iter_batches, 2 workers", "library", True, partial(rivals.data_loader, workers=2)),
    ]
    if installed("polars"):
        ways.append(("polars collect_batches", "library", False, partial(rivals.polars, kind="dict")))
    if installed("datasets"):
        ways += [
            (HF_TORCH, "library", True, partial(rivals.hugging_face, form="torch")),
            (
                'datasets, with_format("arrow"), and zc.convert',
                "library",
                True,
                partial(rivals.hugging_face, form="arrow"),
            ),
        ]
    return ways


def matrix_in_order() -> list[Rival]:
    """Return the ways to get a matrix in the order of the file."""
    recipe = partial(rivals.recipe, layout="matrix")
    ways: list[Rival] = [
        ("zc.convert of iter_batches", "idiom", False, recipe),
        ("torch.stack of iter_batches", "idiom", False, rivals.stack),
    ]
    if installed("polars"):
        ways.append(("polars collect_batches", "library", False, partial(rivals.polars, kind="tensor")))
    if installed("tensorflow"):
        ways.append(("tf.data from_generator", "library", True, rivals.tf_data))
    return ways


def columns_shuffled() -> list[Rival]:
    """Return the ways to get columns in a random order."""
    ways: list[Rival] = [("Table.take in a row group", "idiom", True, rivals.taken_by_hand)]
    if installed("datasets"):
        ways.append(("datasets, shuffle, and zc.convert", "library", True, rivals.hugging_face_shuffled))
    return ways


def matrix_shuffled() -> list[Rival]:
    """Return the ways to get a matrix in a random order."""
    return [
        ("torch.stack and a permutation of a row group", "idiom", False, rivals.shuffled_by_hand),
        (IN_MEMORY, "library", True, rivals.data_loader_in_memory),
    ]


def ours(path: Any, label: str = OURS, to: str = "torch", batch_size: int = BATCH, **options: Any) -> Way:
    """Return a loader that exists before the clock runs: each turn is its next epoch."""
    loader = zc.loader(str(path), to=to, batch_size=batch_size, **options)
    return Way(label, "ours", lambda: loader)


def _epochs(
    name: str, rivals: Callable[[], Sequence[Rival]], options: dict[str, Any], slow: bool, settings: Settings
) -> list[Case]:
    file = numbers(rows_of(settings, slow))
    ways = [ours(file.path, **options)]
    if not slow:
        # Created within the clock: it reads the footer, plans and allocates.
        created = partial(zc.loader, str(file.path), to="torch", batch_size=BATCH, **options)
        ways.append(Way(CREATED, "reference", created))
        ways.append(Way(UNBUFFERED, "reference", partial(row_groups, file.path, pre_buffer=False)))
        if options.get("shuffle"):
            ways.append(ours(file.path, GROUP, **options | {"shuffle": file.group_rows}))
    ways += [Way(label, role, make(file.path)) for label, role, is_slow, make in rivals() if is_slow == slow]
    bound = partial(row_groups, file.path)
    case = contest(name + FEWER * slow, ways, file.rows, bound, all_rows(file.rows), settings)
    if options.get("shuffle"):
        case.figures["rows of the window"] = float(window(file, **options))
    return [case]


def window(file: File, **options: Any) -> int:
    """Return the rows of a loader's window."""
    return int(zc.loader(str(file.path), to="torch", batch_size=BATCH, **options).state_dict()["window"])


def _tasks(
    modes: dict[str, tuple[Callable[[], Sequence[Rival]], dict[str, Any]]], settings: Settings
) -> list[Task]:
    if not installed("torch", "pyarrow") or not settings.wants("torch"):
        return []
    return [
        Task(name + FEWER * slow, partial(_epochs, name, ways, options, slow, settings), seconds=_SECONDS)
        for name, (ways, options) in modes.items()
        for slow in (False, True)
    ]


_MATRIX = {"layout": "matrix"}
_SHUFFLED = {"shuffle": True}

SECTIONS = (
    Section(
        "order",
        "an epoch in the order of the file, torch",
        partial(
            _tasks,
            {"columns, in order": (columns_in_order, {}), "matrix, in order": (matrix_in_order, _MATRIX)},
        ),
        "rivals",
        goals,
    ),
    Section(
        "shuffle",
        "an epoch in a random order, torch",
        partial(
            _tasks,
            {
                "matrix, shuffled": (matrix_shuffled, _MATRIX | _SHUFFLED),
                "columns, shuffled": (columns_shuffled, _SHUFFLED),
            },
        ),
        "rivals",
        goals,
    ),
)
