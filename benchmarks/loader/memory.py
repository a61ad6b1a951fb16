"""Peak memory of an epoch: files of 4 and of 8 windows, each in a fresh process."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from functools import partial

from benchmarks.children import environment
from benchmarks.loader.data import File, numbers, rows_of
from benchmarks.loader.goals import PEAK, goals
from benchmarks.loader.targets import MODES
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.tables.data import installed

POOL, BUFFERS, WINDOW = "Arrow's pool, ", "buffers of rows, ", "bytes of a window"

#: Windows of the files.
WINDOWS = (4, 8)
#: Processes for each peak; it varies with the timing of threads.
_RUNS = 3


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
        answers = [_child(mode, file, window) for _ in range(1 if settings.quick else _RUNS)]
        for i, name in enumerate((PEAK, POOL, BUFFERS)):
            case.figures[f"{name}{file.rows:,} rows"] = statistics.median(answer[i] for answer in answers)
    case.remarks.append(
        f"A window has {window:,} rows, a row group half of them, and the files 4 and 8 windows. The peak is "
        "that of resident memory, minus the memory before the loader was created. The consumer waits 2 ms "
        "after each batch, so that the loader is as far ahead as it may be"
    )
    return [case]


def _child(mode: str, file: File, window: int) -> list[int]:
    """Return the peak, the peak of Arrow's pool, and the bytes of buffers of one epoch."""
    command = [sys.executable, "-m", "benchmarks.loader.child", mode, str(file.path), str(window)]
    completed = subprocess.run(
        command, env=environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    answer: list[int] = json.loads(completed.stdout)
    return answer


SECTIONS = (Section("memory", "peak memory of an epoch", _tasks, "figures", goals, quick=False),)
