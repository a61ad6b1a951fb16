"""Bytes that the loader writes after decoding, by the addresses of its batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

import zerocopy as zc
from benchmarks.contest import installed
from benchmarks.loader.data import BATCH, File, numbers
from benchmarks.loader.goals import ELSEWHERE, PER_VALUE, goals
from benchmarks.loader.targets import MODES
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.tables.data import aliases, spans

TOTAL, DECODED = "bytes of the batches", "bytes in decoded columns"
WINDOW, SPLIT = "bytes in a buffer of rows", "bytes in columns of one batch"

#: Not a divisor of the row groups: batches across their borders are joined.
_UNEVEN = 6000
#: Counts do not depend on the number of rows.
_ROWS = 16 * BATCH


class _Record:
    """What the loader reads and writes in an epoch; all memory is kept, so that addresses stay unique."""

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.spans: dict[str, list[tuple[int, int]]] = {DECODED: [], WINDOW: [], SPLIT: []}
        self.written = 0

    def decoded(self, table: Any) -> None:
        """Add a table that pyarrow has decoded."""
        self.kept.append(table)
        self.spans[DECODED] += spans(table)

    def wrote(self, kind: str, arrays: list[Any], nbytes: int) -> None:
        """Add arrays that a kernel has written."""
        self.kept += arrays
        self.spans[kind] += [_span(array) for array in arrays]
        self.written += nbytes

    def place(self, array: Any) -> str:
        """Return which memory an array of a batch is in."""
        return next((kind for kind, memory in self.spans.items() if aliases(array, memory)), ELSEWHERE)


def _span(array: Any) -> tuple[int, int]:
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes


@contextmanager
def _recorded() -> Iterator[_Record]:
    """Record what pyarrow decodes, and what the loader's kernels write."""
    import pyarrow.parquet as pq

    from zerocopy.loading import assembly, batch_plan

    record = _Record()
    read, write, split = pq.ParquetFile.read_row_groups, batch_plan.write_rows, assembly.read_rows

    def reading(self: Any, *args: Any, **kwargs: Any) -> Any:
        table = read(self, *args, **kwargs)
        record.decoded(table)
        return table

    def writing(out: Any, columns: Any, *args: Any, **kwargs: Any) -> None:
        write(out, columns, *args, **kwargs)
        record.wrote(WINDOW, [out], sum(column.nbytes for column in columns))

    def splitting(rows: Any, columns: Any, *args: Any, **kwargs: Any) -> None:
        split(rows, columns, *args, **kwargs)
        record.wrote(SPLIT, list(columns), sum(column.nbytes for column in columns))

    with (
        mock.patch.object(pq.ParquetFile, "read_row_groups", reading),
        mock.patch.object(batch_plan, "write_rows", writing),
        mock.patch.object(assembly, "read_rows", splitting),
    ):
        yield record


def measure(name: str, file: File, batch_size: int = BATCH, **options: Any) -> Case:
    """Return the bytes of an epoch by the memory that they are in."""
    totals = dict.fromkeys((DECODED, WINDOW, SPLIT, ELSEWHERE), 0)
    with _recorded() as record:
        for each in zc.loader(str(file.path), to="torch", batch_size=batch_size, **options):
            for tensor in each.values() if isinstance(each, dict) else [each]:
                array = np.asarray(tensor)
                totals[record.place(array)] += array.nbytes
    total = sum(totals.values())
    writes = (record.written + totals[ELSEWHERE]) / total
    figures = {TOTAL: total, **totals, PER_VALUE: writes}
    return Case(name, figures={key: float(value) for key, value in figures.items()})


def _tasks(settings: Settings) -> list[Task]:
    if not installed("torch", "pyarrow") or not settings.wants("torch"):
        return []
    return [Task("copies", _all, seconds=2)]


def _all() -> list[Case]:
    # Whole batches in each row group.
    file = numbers(_ROWS, 2 * BATCH)
    cases = [measure(mode, file, **options) for mode, options in MODES.items()]
    return [*cases, measure(f"columns, in order, batches of {_UNEVEN:,} rows", file, _UNEVEN)]


SECTIONS = (Section("copies", "bytes written after decoding, by address", _tasks, "figures", goals),)
