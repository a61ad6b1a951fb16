"""Peak memory of an epoch: files of 4 and of 8 windows, each in a fresh process."""

from __future__ import annotations

import statistics
import sys
import time
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.children import call
from benchmarks.contest import installed
from benchmarks.loader.data import BATCH, numbers, rows_of, table
from benchmarks.loader.goals import PEAK, goals
from benchmarks.loader.targets import MODES
from benchmarks.machine import peak_of
from benchmarks.suite import Case, Section, Settings, Task

POOL, BUFFERS, WINDOW = "Arrow's pool, ", "buffers of rows, ", "bytes of a window"

#: Windows of the files.
WINDOWS = (4, 8)
#: Processes for each peak; it varies with the timing of threads.
_RUNS = 3
#: Seconds between two batches, so that the loader is as far ahead as it may be.
_PAUSE = 0.002


def _tasks(settings: Settings) -> list[Task]:
    if not sys.platform.startswith("linux") or not settings.wants("torch"):
        return []
    if not installed("torch", "pyarrow"):
        return []
    return [Task(mode, partial(measure, mode, settings), seconds=20) for mode in MODES]


def measure(mode: str, settings: Settings) -> list[Case]:
    """Return the medians of the peaks of a mode."""
    case = Case(mode)
    window = max(rows_of(settings) // WINDOWS[0], 2)
    for count in WINDOWS:
        file = numbers(window * count, window // 2)
        answers = [call(peaks, mode, str(file.path), window) for _ in range(1 if settings.quick else _RUNS)]
        for i, name in enumerate((PEAK, POOL, BUFFERS)):
            case.figures[f"{name}{file.rows:,} rows"] = statistics.median(answer[i] for answer in answers)
    case.remarks.append(
        f"A window has {window:,} rows, a row group half of them, and the files 4 and 8 windows. The peak is "
        "that of resident memory, minus the memory before the loader was created. The consumer waits 2 ms "
        "after each batch, so that the loader is as far ahead as it may be"
    )
    return [case]


def peaks(mode: str, path: str, window: int) -> list[int]:
    """Return the peak of an epoch, the peak of Arrow's pool, and the bytes of buffers; runs in a child."""
    import pyarrow as pa

    options = dict(MODES[mode])
    if options.get("shuffle"):
        options["shuffle"] = window
    for _ in zc.loader(table(2 * BATCH), to="torch", batch_size=BATCH, **options):
        pass  # imports, threads
    loaders: list[Any] = []

    def epoch() -> None:
        loaders.append(zc.loader(path, to="torch", batch_size=BATCH, **options))
        for _ in loaders[0]:
            time.sleep(_PAUSE)

    peak = peak_of(epoch)
    buffers = loaders[0]._buffers
    held = 0 if buffers is None else buffers.allocated * buffers.nbytes  # columns in order have none
    return [peak, pa.default_memory_pool().max_memory(), held]


SECTIONS = (Section("memory", "peak memory of an epoch", _tasks, "figures", goals, quick=False),)
