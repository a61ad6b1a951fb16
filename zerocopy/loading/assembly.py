"""Assembles the rows that the thread reads into chunks of whole batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from zerocopy.layout.rows import read_rows, write_rows
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.buffers import BufferCache
from zerocopy.loading.dataset import DecodedRows, concatenate, count_rows, slice_rows, take_rows
from zerocopy.loading.order import Run, window_positions
from zerocopy.loading.reading import Part, Reader
from zerocopy.source import Array


class Cut(NamedTuple):
    """A batch within a chunk.

    Attributes
    ----------
    low, high : int
        Rows of the chunk.
    done : int
        Number of batches of the epoch that the shard has delivered after this one.
    """

    low: int
    high: int
    done: int


class Chunk:
    """Rows that make up whole batches.

    Attributes
    ----------
    cuts : sequence of Cut
        Its batches, in the order of delivery.
    """

    def __init__(self, plan: BatchPlan, cuts: Sequence[Cut]) -> None:
        self.plan, self.cuts = plan, cuts

    @property
    def batches(self) -> int:
        """Number of batches."""
        return len(self.cuts)

    @property
    def row_bytes(self) -> float:
        """Bytes of a row; the mean if rows differ in size."""
        return 0.0 if self.plan.template is None else self.plan.template.pitch

    def rows_of(self, cut: Cut) -> int:
        """Return the number of rows of a batch, without those that were skipped."""
        return cut.high - cut.low

    def batch(self, cut: Cut) -> Any:
        """Return a batch in the target framework; None if too few of its rows could be read."""
        raise NotImplementedError


class TableChunk(Chunk):
    """Rows of an Arrow table or of a dict of arrays; a batch is converted from a slice."""

    def __init__(self, plan: BatchPlan, cuts: Sequence[Cut], content: Any) -> None:
        super().__init__(plan, cuts)
        self._content = content

    @cached_property
    def row_bytes(self) -> float:
        """Mean bytes of a row, without the words of dictionaries."""
        rows = count_rows(self._content)
        return table_bytes(self._content) / max(1, rows)

    def batch(self, cut: Cut) -> Any:
        """Return a batch: an alias where the target aliases the columns."""
        return self.plan.to_target(slice_rows(self._content, cut.low, cut.high))


class ColumnChunk(Chunk):
    """Columns on the host; a batch aliases slices of them."""

    def __init__(self, plan: BatchPlan, cuts: Sequence[Cut], arrays: Sequence[Array]) -> None:
        super().__init__(plan, cuts)
        self._arrays = arrays

    def batch(self, cut: Cut) -> Any:
        """Return a batch: an alias where the target aliases NumPy's arrays."""
        return self.plan.from_arrays([array[cut.low : cut.high] for array in self._arrays])


class RowChunk(Chunk):
    """Rows of a buffer, in the order of delivery.

    A matrix aliases the buffer; columns are copied from it.
    """

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
        read_rows(rows, columns, [field.offset for field in self.plan.fields])
        return self.plan.from_arrays(columns)


def table_bytes(table: Any) -> int:
    """Return the bytes of rows, without the words of dictionaries."""
    if isinstance(table, dict):
        return sum(int(array.nbytes) for array in table.values())
    if isinstance(table, DecodedRows):
        return table.nbytes
    import pyarrow as pa

    return sum(
        sum(chunk.indices.nbytes for chunk in column.chunks)
        if pa.types.is_dictionary(column.type)
        else int(column.nbytes)
        for column in table.columns
    )


class Grid:
    """The batches of one run: `batch` rows each, counted from the start of the run.

    Parameters
    ----------
    run : Run
        The rows. Its first row is the first row of a batch.
    before : int
        Number of batches of the epoch that the shard delivers before this run.
    batch : int
        Rows of a batch.
    drop_last : bool
        Whether a batch with fewer rows is left out.
    """

    def __init__(self, run: Run, before: int, batch: int, drop_last: bool) -> None:
        self.run, self.before, self.batch, self.drop_last = run, before, batch, drop_last

    def done(self, row: int) -> int:
        """Return the number of batches that the shard has delivered after the one that ends at a row."""
        return self.before + -(-(row - self.run.first) // self.batch)

    def cuts(self, begin: int, low: int, high: int) -> list[Cut]:
        """Return the batches from row `low` to `high` of the run, in a chunk that starts at row `begin`.

        `low` is the first row of a batch.
        """
        cuts = [
            Cut(row - begin, min(row + self.batch, high) - begin, self.done(min(row + self.batch, high)))
            for row in range(low, high, self.batch)
        ]
        if cuts and not self.accepts(cuts[-1].high - cuts[-1].low):
            cuts.pop()
        return cuts

    def accepts(self, rows: int) -> bool:
        """Whether a batch of `rows` rows is delivered."""
        return rows >= (self.batch if self.drop_last else 1)


def in_order(plan: BatchPlan, read: Reader, grid: Grid) -> Iterator[Chunk]:
    """Return chunks in the order of the source: slices of the groups, without a copy.

    Only the rows of a batch that several groups hold are copied together.
    """
    run, batch = grid.run, grid.batch
    pending: list[Any] = []  # the rows of a batch whose other rows are in the next parts
    end = run.first
    stop = -1 if run.end < 0 else run.start + run.end
    for part in read(run.start + run.first, stop, stop):
        content, begin = _prepared(plan, part.content), part.position - run.start
        end = begin + part.rows
        head = min(-(-begin // batch) * batch, end)  # the end of the batch that has begun
        tail = max(end // batch * batch, head)  # the start of the batch that the next part continues
        if content is not None and begin < head:
            pending.append(slice_rows(content, 0, head - begin))
        if begin < head and head % batch == 0:
            yield from _joined(plan, pending, grid, head)
            pending = []
        if content is not None and head < tail:
            whole = slice_rows(content, head - begin, tail - begin)
            yield _chunk(plan, grid.cuts(head, head, tail), whole)
            del whole
        if content is not None and tail < end:
            pending.append(slice_rows(content, tail - begin, end - begin))
        del part, content
    yield from _joined(plan, pending, grid, end)


def _prepared(plan: BatchPlan, content: Any) -> Any:
    """Return rows as arrays by path, if batches are made of arrays: once for all batches of a group."""
    if content is None or plan.template is None:
        return content
    paths = [field.path for field in plan.fields]
    return dict(zip(paths, plan.to_arrays(content), strict=True))


def _chunk(plan: BatchPlan, cuts: Sequence[Cut], content: Any) -> Chunk:
    if plan.template is None:
        return TableChunk(plan, cuts, content)
    return ColumnChunk(plan, cuts, list(content.values()))


def _joined(plan: BatchPlan, pending: list[Any], grid: Grid, end: int) -> Iterator[Chunk]:
    """Return the batch of rows from several groups that ends at row `end` of the run, if it has rows."""
    rows = sum(map(count_rows, pending))
    if not grid.accepts(rows):
        return
    yield _chunk(plan, [Cut(0, rows, grid.done(end))], concatenate(pending))


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
        # The permutation depends on a window's first row, so permuted windows start at multiples of its rows.
        for start, count in _windows(grid.run, self._rows, is_aligned=self._key is not None):
            rows, filled, present = self._fill(
                read, grid.run.start + start, count, grid.run.start + grid.run.end
            )
            low, high = max(start, grid.run.first), start + filled
            if grid.run.end >= 0:
                high = min(high, grid.run.end)
            cuts = grid.cuts(start, low, high)
            if cuts:
                yield RowChunk(self._plan, cuts, rows, present, grid.batch if grid.drop_last else 1)
            del rows
            if filled < count:
                return  # the end of a stream

    def _fill(self, read: Reader, position: int, count: int, limit: int) -> tuple[Array, int, Array | None]:
        """Return a window of rows, how many there are, and which of them are present (None: all)."""
        pitch = self._plan.template.pitch if self._plan.template is not None else 0
        rows = self._buffers.take()[: count * pitch].reshape(count, pitch)
        places = None if self._key is None else window_positions(*self._key, position, count)
        present, filled = None, 0
        for part in read(position, position + count, limit):
            first, filled = part.position - position, part.position - position + part.rows
            chosen = None if places is None else places[first:filled]
            if part.content is None:
                present = np.ones(count, bool) if present is None else present
                present[slice(first, filled) if chosen is None else chosen] = False
            else:
                target = rows[first:filled] if chosen is None else rows
                # One thread, because Arrow decodes the next group in the others.
                write_rows(target, self._plan.to_arrays(part.content), self._offsets, chosen, threads=1)
        if filled < count and places is not None:
            # The stream has ended before the window is full: close the gaps, and keep the order of the rows.
            kept = np.sort(places[:filled])
            rows, present = rows[kept], None if present is None else present[kept]
        return rows, filled, present


def shuffled_tables(
    plan: BatchPlan, read: Reader, grid: Grid, window_rows: int, key: tuple[int, int]
) -> Iterator[Chunk]:
    """Return windows of permuted rows of Arrow tables.

    Arrow takes the rows of a whole window at once, because it took four times as long batch by batch.
    """
    for start, count in _windows(grid.run, window_rows, is_aligned=True):
        position = grid.run.start + start
        parts = list(read(position, position + count, grid.run.start + grid.run.end))
        filled = sum(part.rows for part in parts)
        source = _rows_by_place(parts, window_positions(*key, position, count))
        contents = [part.content for part in parts if part.content is not None]
        del parts
        low, high = max(start, grid.run.first), start + filled
        if grid.run.end >= 0:
            high = min(high, grid.run.end)
        cuts = grid.cuts(start, low, high)
        if cuts and contents:
            is_read = source >= 0
            content = take_rows(contents, source[is_read])
            contents.clear()
            ends = np.concatenate([[0], np.cumsum(is_read)])
            cuts = [cut._replace(low=int(ends[cut.low]), high=int(ends[cut.high])) for cut in cuts]
            yield TableChunk(plan, [cut for cut in cuts if grid.accepts(cut.high - cut.low)], content)
            del content
        if filled < count:
            return  # the end of a stream


def _windows(run: Run, rows: int, is_aligned: bool) -> Iterator[tuple[int, int]]:
    """Return the first row and the number of rows of each window of a run."""
    start = run.first - run.first % rows if is_aligned else run.first
    stop = run.stop - run.start if is_aligned else run.end
    while run.stop < 0 or start < run.end:
        yield start, rows if run.stop < 0 else min(rows, stop - start)
        start += rows


def _rows_by_place(parts: Sequence[Part], places: Array) -> Array:
    """Return the row that each place of a window delivers; -1 for a row that is skipped."""
    source, row, first = np.full(len(places), -1), 0, 0
    for part in parts:
        if part.content is not None:
            source[places[first : first + part.rows]] = np.arange(row, row + part.rows)
            row += part.rows
        first += part.rows
    return source if first == len(places) else source[np.sort(places[:first])]
