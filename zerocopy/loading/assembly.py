"""Assembles the rows that the thread reads into chunks of whole batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from zerocopy.layout.rows import write_rows
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.buffers import BufferCache
from zerocopy.loading.chunks import Chunk, ColumnChunk, Cut, RowChunk, TableChunk
from zerocopy.loading.order import Run, window_positions
from zerocopy.loading.reading import Part, Reader, slice_rows
from zerocopy.source import Array


class Grid:
    """The batches of one run: `batch` rows each, from the run's first row.

    Parameters
    ----------
    number : int
        The number of the run.
    run : Run
        Its rows.
    batch : int
        Rows of a batch.
    drop_last : bool
        Whether a last batch with fewer rows is left out.
    """

    def __init__(self, number: int, run: Run, batch: int, drop_last: bool) -> None:
        self.number, self.run, self.batch, self.drop_last = number, run, batch, drop_last

    def boundary(self, row: int) -> int:
        """Return the end of the batch that has a row, counted from the run's start."""
        return row + self.batch - (row - self.run.first) % self.batch

    def cuts(self, begin: int, low: int, high: int) -> list[Cut]:
        """Return the batches from row `low` to `high` of the run, in a chunk that starts at row `begin`."""
        ends = [*range(self.boundary(low), high, self.batch), high]
        return [
            Cut(start - begin, end - begin, self.number, end)
            for start, end in zip([low, *ends], ends, strict=False)
        ]


def in_order(plan: BatchPlan, read: Reader, grid: Grid) -> Iterator[Chunk]:
    """Return batches of rows in the order of the source: slices of what was read, without a copy.

    Only a batch whose rows are in several groups is copied together.
    """
    run = grid.run
    pending: list[Any] = []
    row = run.first
    stop = -1 if run.stop < 0 else run.start + (run.last if run.last >= 0 else run.stop - run.start)
    for part in read(run.start + run.first, stop):
        content, begin = part.content, part.position - run.start
        row, end = begin, begin + part.rows
        head = min(end, grid.boundary(row))
        if pending or (row - run.first) % grid.batch or head < grid.boundary(row):
            if content is not None:
                pending.append(slice_rows(content, 0, head - row))
            row = head
            if head < grid.boundary(begin):
                continue
            yield from _joined(plan, pending, grid, row)
            pending = []
        whole = end - (end - run.first) % grid.batch
        if row < whole and content is not None:
            cuts = grid.cuts(row, row, whole)
            yield _chunk(plan, cuts, slice_rows(content, row - begin, whole - begin))
        row = max(row, whole)
        if row < end and content is not None:
            pending.append(slice_rows(content, row - begin, end - begin))
        row = end
        del part, content
    if not grid.drop_last:
        yield from _joined(plan, pending, grid, row)


def _chunk(plan: BatchPlan, cuts: Sequence[Cut], content: Any) -> Chunk:
    if plan.template is None:
        return TableChunk(plan, cuts, content)
    return ColumnChunk(plan, cuts, plan.to_arrays(content))


def _joined(plan: BatchPlan, pending: list[Any], grid: Grid, end: int) -> Iterator[Chunk]:
    """Return one batch of rows from several groups, which ends at row `end` of the run."""
    if not pending:
        return
    if plan.template is None:
        content = concatenate(pending)
        yield TableChunk(plan, [Cut(0, content.num_rows, grid.number, end)], content)
        return
    parts = [plan.to_arrays(content) for content in pending]
    arrays = [np.concatenate(pieces) if len(parts) > 1 else pieces[0] for pieces in zip(*parts, strict=True)]
    yield ColumnChunk(plan, [Cut(0, len(arrays[0]), grid.number, end)], arrays)


def concatenate(tables: Sequence[Any]) -> Any:
    """Return the rows of several Arrow tables; without a copy."""
    import pyarrow as pa

    return pa.concat_tables(tables) if len(tables) > 1 else tables[0]


class Windows:
    """Assembles windows of rows in recycled buffers.

    Parameters
    ----------
    plan : BatchPlan
        A plan with a template.
    rows : int
        Rows of a window, a multiple of the batch.
    key : (int, int) or None
        Seed and epoch; None keeps the order of the source.
    buffers : BufferCache
        Buffers of a window.
    """

    def __init__(self, plan: BatchPlan, rows: int, key: tuple[int, int] | None, buffers: BufferCache) -> None:
        self._plan, self._rows, self._key, self._buffers = plan, rows, key, buffers
        self._offsets = [field.offset for field in plan.fields]

    def __call__(self, read: Reader, grid: Grid) -> Iterator[Chunk]:
        """Return the windows of a run."""
        run = grid.run
        end = run.first + run.rows if run.stop >= 0 else -1
        # A window of an epoch in the source's order may start anywhere; a permuted one starts at its place.
        start = run.first if self._key is None else run.first - run.first % self._rows
        while end < 0 or start < end:
            last = self._rows if run.stop < 0 else min(self._rows, run.stop - run.start - start)
            rows, filled, present = self._fill(read, run.start + start, last)
            high = start + filled if end < 0 else min(start + filled, end)
            low = max(start, run.first)
            cuts = grid.cuts(start, low, high) if low < high else []
            if cuts and grid.drop_last and cuts[-1].high - cuts[-1].low < grid.batch:
                cuts.pop()
            if cuts:
                yield RowChunk(self._plan, cuts, rows, present)
            del rows
            if filled < last:
                return  # the end of a stream
            start += last

    def _fill(self, read: Reader, position: int, count: int) -> tuple[Array, int, Array | None]:
        """Return a window of rows, how many there are, and which of them are present (None: all)."""
        pitch = self._plan.template.pitch if self._plan.template is not None else 0
        rows = self._buffers.take()[: count * pitch].reshape(count, pitch)
        places = None if self._key is None else window_positions(*self._key, position, count)
        present, filled = None, 0
        for part in read(position, position + count):
            first, filled = part.position - position, part.position - position + part.rows
            chosen = None if places is None else places[first:filled]
            if part.content is None:
                present = np.ones(count, bool) if present is None else present
                present[slice(first, filled) if chosen is None else chosen] = False
            else:
                target = rows[first:filled] if chosen is None else rows
                write_rows(target, self._plan.to_arrays(part.content), self._offsets, chosen)
        if filled < count and places is not None:
            # The stream has ended. The rows keep their order, without the places of the missing ones.
            kept = np.sort(places[:filled])
            rows, present = rows[kept], None if present is None else present[kept]
        return rows, filled, present


def shuffled_tables(
    plan: BatchPlan, read: Reader, grid: Grid, window_rows: int, key: tuple[int, int]
) -> Iterator[Chunk]:
    """Return windows of permuted rows of Arrow tables.

    The rows of a whole window are taken at once: Arrow took four times as long batch by batch.
    """
    run = grid.run
    end = run.first + run.rows if run.stop >= 0 else -1
    start = run.first - run.first % window_rows
    while end < 0 or start < end:
        count = window_rows if run.stop < 0 else min(window_rows, run.stop - run.start - start)
        parts = list(read(run.start + start, run.start + start + count))
        filled = sum(part.rows for part in parts)
        source = _rows_by_place(parts, window_positions(*key, run.start + start, count))
        tables = [part.content for part in parts if part.content is not None]
        del parts
        low, high = max(start, run.first), start + filled if end < 0 else min(start + filled, end)
        cuts = grid.cuts(start, low, high) if low < high else []
        if cuts and grid.drop_last and cuts[-1].high - cuts[-1].low < grid.batch:
            cuts.pop()
        if cuts and tables:
            is_read = source >= 0
            # Arrow takes rows from one chunk five times as fast as from several.
            table = concatenate(tables).combine_chunks().take(source[is_read])
            tables.clear()
            ends = np.concatenate([[0], np.cumsum(is_read)])
            cuts = [cut._replace(low=int(ends[cut.low]), high=int(ends[cut.high])) for cut in cuts]
            yield TableChunk(plan, [cut for cut in cuts if cut.low < cut.high], table)
            del table
        if filled < count:
            return
        start += count


def _rows_by_place(parts: Sequence[Part], places: Array) -> Array:
    """Return for each place of a window the row that is delivered there; -1 for one that is skipped."""
    source, row, first = np.full(len(places), -1), 0, 0
    for part in parts:
        if part.content is not None:
            source[places[first : first + part.rows]] = np.arange(row, row + part.rows)
            row += part.rows
        first += part.rows
    return source if first == len(places) else source[np.sort(places[:first])]
