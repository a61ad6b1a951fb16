"""Assembles the rows that the thread reads into chunks of whole batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from zerocopy.layout.rows import read_rows
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.buffers import BufferCache
from zerocopy.loading.dataset import concatenate, count_rows, slice_rows, table_bytes, take_rows
from zerocopy.loading.order import Run, window_positions
from zerocopy.loading.reading import Part, Reader
from zerocopy.source import Array


class Cut(NamedTuple):
    """A batch: rows `low` to `high` of a chunk. `done` batches of the epoch are delivered with it."""

    low: int
    high: int
    done: int


class Chunk:
    """Rows that make up whole batches, which are `cuts` in the order of delivery."""

    def __init__(self, plan: BatchPlan, cuts: Sequence[Cut]) -> None:
        self.plan = plan
        self.cuts = cuts

    @property
    def batches(self) -> int:
        """Number of batches."""
        return len(self.cuts)

    @property
    def row_bytes(self) -> float:
        """Bytes of a row; the mean if rows differ in size."""
        return self.plan.pitch

    def rows_of(self, cut: Cut) -> int:
        """Return the number of rows of a batch, without those that were skipped."""
        return cut.high - cut.low

    def batch(self, cut: Cut) -> Any:
        """Return a batch in the target framework; None if too few of its rows could be read."""
        raise NotImplementedError


class SliceChunk(Chunk):
    """Rows in the order of delivery: a table, or a dict of arrays. A batch is converted from a slice."""

    def __init__(self, plan: BatchPlan, cuts: Sequence[Cut], content: Any) -> None:
        """`content` has the arrays of the plan's template, if it has one."""
        super().__init__(plan, cuts)
        self._content = content

    @cached_property
    def row_bytes(self) -> float:
        """Mean bytes of a row, without the words of dictionaries."""
        if self.plan.template is not None:
            return self.plan.pitch
        return table_bytes(self._content) / max(1, count_rows(self._content))

    def batch(self, cut: Cut) -> Any:
        """Return a batch: an alias where the target aliases the columns."""
        return self.plan.from_rows(slice_rows(self._content, cut.low, cut.high))


class RowChunk(Chunk):
    """Rows of a buffer, in the order of delivery. A matrix aliases the buffer; columns are copied from it."""

    def __init__(
        self, plan: BatchPlan, cuts: Sequence[Cut], rows: Array, present: Array | None, least: int
    ) -> None:
        """`rows` is uint8 of shape (rows, pitch); `present` has False for rows that could not be read.

        A batch with fewer than `least` rows that could be read is left out.
        """
        super().__init__(plan, cuts)
        self._rows, self._present, self._least = rows, present, least

    def rows_of(self, cut: Cut) -> int:
        """Return the number of rows of a batch, without those that were skipped."""
        if self._present is None:
            return cut.high - cut.low
        return int(np.count_nonzero(self._present[cut.low : cut.high]))

    def batch(self, cut: Cut) -> Any:
        """Return a batch without the rows that could not be read."""
        rows = self._rows[cut.low : cut.high]
        if self._present is not None:
            rows = np.ascontiguousarray(rows[self._present[cut.low : cut.high]])
            if len(rows) < self._least:
                return None
        if self.plan.is_matrix:
            return self.plan.from_matrix(rows)
        columns = self.plan.empty_columns(len(rows))
        read_rows(rows, columns, self.plan.offsets)
        return self.plan.from_arrays(columns)


class Grid:
    """The batches of one run: `batch_size` rows each, counted from the start of the run.

    `before` is the number of batches that the shard delivers before this run. With `drop_last`, a batch with
    fewer rows is left out.
    """

    def __init__(self, run: Run, before: int, batch_size: int, drop_last: bool) -> None:
        self.run = run
        self._before = before
        self.batch_size = batch_size
        #: The least rows of a batch.
        self.least: int = batch_size if drop_last else 1

    def done(self, row: int) -> int:
        """Return the number of batches that the shard has delivered after the one that ends at a row."""
        return self._before + -(-(row - self.run.first) // self.batch_size)

    def cuts(self, begin: int, low: int, high: int) -> list[Cut]:
        """Return the batches from row `low` to `high` of the run, in a chunk that starts at row `begin`.

        `low` is the first row of a batch.
        """
        rows = range(low, high, self.batch_size)
        ends = (*rows[1:], high)
        cuts = [Cut(row - begin, end - begin, self.done(end)) for row, end in zip(rows, ends, strict=False)]
        if cuts and cuts[-1].high - cuts[-1].low < self.least:
            cuts.pop()
        return cuts

    def window_cuts(self, start: int, filled: int) -> list[Cut]:
        """Return the batches of a window that starts at row `start` of the run, and has `filled` rows."""
        high = start + filled if self.run.end < 0 else min(start + filled, self.run.end)
        return self.cuts(start, max(start, self.run.first), high)


def in_order(plan: BatchPlan, read: Reader, grid: Grid, buffers: BufferCache | None) -> Iterator[Chunk]:
    """Return chunks in the order of the source: slices of the groups, without a copy.

    Only the rows of a batch that several groups hold are copied together. With `buffers`, each of which has
    rows of whole batches, the rows are written to them as a matrix.
    """
    run, batch = grid.run, grid.batch_size
    step = sys.maxsize if buffers is None else buffers.nbytes // plan.pitch
    pending: list[Any] = []  # the rows of a batch whose other rows are in the next parts
    end = run.first
    stop = -1 if run.end < 0 else run.start + run.end
    for part in read(run.start + run.first, stop, stop):
        plan = plan if part.content is None else plan.of_rows(part.content)
        content, begin = plan.prepared(part.content), part.position - run.start
        end = begin + part.rows
        head = min(-(-begin // batch) * batch, end)  # the end of the batch that has begun
        tail = max(end // batch * batch, head)  # the start of the batch that the next part continues
        if content is not None and begin < head:
            pending.append(slice_rows(content, 0, head - begin))
        if begin < head and head % batch == 0:
            yield from _joined(plan, pending, grid, head, buffers)
            pending = []
        for low in range(head, tail if content is not None else head, step):
            high = min(low + step, tail)
            some = [slice_rows(content, low - begin, high - begin)]
            yield _chunk(plan, grid.cuts(low, low, high), some, grid, buffers)
            del some
        if content is not None and tail < end:
            pending.append(slice_rows(content, tail - begin, end - begin))
        del part, content
    yield from _joined(plan, pending, grid, end, buffers)


def _joined(
    plan: BatchPlan, pending: list[Any], grid: Grid, end: int, buffers: BufferCache | None
) -> Iterator[Chunk]:
    """Return the batch of rows from several groups that ends at row `end` of the run, if it has rows."""
    rows = sum(map(count_rows, pending))
    if rows >= grid.least:
        yield _chunk(plan, [Cut(0, rows, grid.done(end))], pending, grid, buffers)


def _chunk(
    plan: BatchPlan, cuts: Sequence[Cut], contents: list[Any], grid: Grid, buffers: BufferCache | None
) -> Chunk:
    """Return the rows of several contents as a chunk; they are copied to a buffer, if there are buffers."""
    if buffers is None:
        return SliceChunk(plan, cuts, concatenate(contents))
    ends = list(accumulate(map(count_rows, contents), initial=0))
    rows = plan.rows_of(buffers.take(), ends[-1])
    for content, low, high in zip(contents, ends, ends[1:], strict=False):
        plan.write_rows(rows[low:high], list(content.values()))
    return RowChunk(plan, cuts, rows, None, grid.least)


class Windows:
    """Assembles permuted windows of `rows` rows, a multiple of the batch.

    `key` is the seed and the epoch. The rows of arrays are written to `buffers`; those of tables are taken.
    """

    def __init__(self, plan: BatchPlan, rows: int, key: tuple[int, int], buffers: BufferCache) -> None:
        self._plan, self._rows, self._key, self._buffers = plan, rows, key, buffers

    def __call__(self, read: Reader, grid: Grid) -> Iterator[Chunk]:
        """Return the windows of a run."""
        run = grid.run
        assemble = self._taken if self._plan.template is None else self._written
        # The permutation depends on a window's first row, so windows start at multiples of its rows.
        start, stop = run.first - run.first % self._rows, run.stop - run.start
        while run.stop < 0 or start < run.end:
            count = self._rows if run.stop < 0 else min(self._rows, stop - start)
            position = run.start + start
            parts = read(position, position + count, run.start + run.end)
            filled, chunk = assemble(parts, grid, start, count)
            if chunk is not None:
                yield chunk
            del chunk
            if filled < count:
                return  # the end of a stream
            start += self._rows

    def _written(self, parts: Iterator[Part], grid: Grid, start: int, count: int) -> tuple[int, Chunk | None]:
        """Write the rows of a window to a buffer; return their number, and the chunk of its batches."""
        position = grid.run.start + start
        places = window_positions(*self._key, position, count)
        rows = self._plan.rows_of(self._buffers.take(), count)
        present, filled = None, 0
        for part in parts:
            first, filled = part.position - position, part.position - position + part.rows
            if part.content is None:
                present = np.ones(count, bool) if present is None else present
                present[places[first:filled]] = False
            else:
                arrays, threads = self._plan.to_arrays(part.content), None if part.is_alone else 1
                self._plan.write_rows(rows, arrays, places[first:filled], threads)
        if filled < count:
            # The stream has ended before the window is full: close the gaps, and keep the order of the rows.
            kept = np.sort(places[:filled])
            rows, present = rows[kept], None if present is None else present[kept]
        cuts = grid.window_cuts(start, filled)
        return filled, RowChunk(self._plan, cuts, rows, present, grid.least) if cuts else None

    def _taken(self, parts: Iterator[Part], grid: Grid, start: int, count: int) -> tuple[int, Chunk | None]:
        """Take the rows of a window of tables; return their number, and the chunk of its batches.

        Arrow takes the rows of a whole window at once, because it took four times as long batch by batch.
        """
        places = window_positions(*self._key, grid.run.start + start, count)
        contents: list[Any] = []
        source, row, filled = np.full(count, -1), 0, 0  # the row that each place delivers; -1: it is skipped
        for part in parts:
            if part.content is not None:
                source[places[filled : filled + part.rows]] = np.arange(row, row + part.rows)
                contents.append(part.content)
                row += part.rows
            filled += part.rows
        if filled < count:
            source = source[np.sort(places[:filled])]
        cuts = grid.window_cuts(start, filled)
        if row < filled:
            is_read = source >= 0
            source, ends = source[is_read], np.concatenate([[0], np.cumsum(is_read)])
            cuts = [cut._replace(low=int(ends[cut.low]), high=int(ends[cut.high])) for cut in cuts]
            cuts = [cut for cut in cuts if cut.high - cut.low >= grid.least]
        if not cuts:
            return filled, None
        rows = take_rows(contents, source)
        plan = self._plan.of_rows(rows)
        return filled, SliceChunk(plan, cuts, plan.prepared(rows))
