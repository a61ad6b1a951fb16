"""Reads the rows of runs group by group, in a second thread ahead of the one that assembles them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from zerocopy.errors import ReadError
from zerocopy.loading.dataset import Dataset, Stream, close_iterator, count_rows, slice_rows, table_bytes
from zerocopy.loading.order import Order
from zerocopy.loading.stats import Counters


class Part(NamedTuple):
    """Rows at consecutive positions of the epoch; `content` is None if they are skipped.

    With `is_alone`, the groups ahead have been read, so that all cores may assemble the rows.
    """

    position: int
    rows: int
    content: Any
    is_alone: bool = False


#: Function of positions (start, stop, limit) that returns the rows from `start` to `stop`. Later calls will
#: read up to `limit`.
Reader = Callable[[int, int, int], Iterator[Part]]

#: Groups that the second thread reads ahead of the one that is assembled, and their most bytes; always one.
_AHEAD_GROUPS, _AHEAD_BYTES = 2, 64 << 20
#: Least rows of a group that is read in the second thread.
_AHEAD_ROWS = 1 << 15


def groups_ahead(nbytes: float) -> int:
    """Return how many groups of some bytes are read ahead."""
    return 1 if nbytes > _AHEAD_BYTES else _AHEAD_GROUPS


class GroupReader:
    """Reads positions of an epoch from the groups of a dataset.

    A group that two consecutive calls need is read once. `lock` is held while the dataset reads or closes,
    because several iterators may use it at once. With `reads_ahead`, a second thread reads the next groups
    without a pause, while the caller works on one.
    """

    def __init__(
        self,
        dataset: Dataset,
        order: Order,
        skip_errors: bool,
        counters: Counters,
        lock: Any,
        reads_ahead: bool = False,
        row_bytes: int = 0,
    ) -> None:
        """`row_bytes` is 0 if it is not known before a group has been read."""
        self._dataset, self._order, self._skip_errors = dataset, order, skip_errors
        self._counters, self._lock = counters, lock
        self._last: tuple[int, Any] = (-1, None)
        self._executor = ThreadPoolExecutor(1, "zerocopy-loader-ahead") if reads_ahead else None
        #: The groups that the second thread reads, in their order.
        self._ahead: deque[tuple[int, Future[Any]]] = deque()
        self._row_bytes = row_bytes or float("inf")

    def __call__(self, start: int, stop: int, limit: int) -> Iterator[Part]:
        """Return the rows at positions from `start` to `stop`; later calls will need those up to `limit`."""
        limit = max(stop, limit)
        self._read_ahead(start, limit)  # while the caller prepares its work
        return self._parts(start, stop, limit)

    def _parts(self, start: int, stop: int, limit: int) -> Iterator[Part]:
        for piece in self._order.pieces(start, stop):
            group = self._dataset.groups[piece.group]
            content = self._read(piece.group, piece.position - piece.low + group.rows, limit)
            if piece.high == group.rows:
                self._last = (-1, None)  # so that the group is freed with its batches
            rows = piece.high - piece.low
            if content is not None and rows < group.rows:
                content = slice_rows(content, piece.low, piece.high)
            is_alone = self._executor is not None and all(future.done() for _, future in self._ahead)
            part = Part(piece.position, rows, content, is_alone)
            del content
            yield part
            del part  # so that its memory is freed before the next group is read

    def _read(self, index: int, end: int, limit: int) -> Any:
        """Return the rows of a group, which ends at position `end`; None if it is skipped."""
        if self._last[0] == index:
            return self._last[1]
        self._last = (-1, None)
        group = self._dataset.groups[index]
        while self._ahead and self._ahead[0][0] != index:
            self._ahead.popleft()[1].cancel()  # of a run that has ended early
        ahead = self._ahead.popleft()[1] if self._ahead else None
        try:
            with self._counters.timed("wait"):
                content = self._read_now(index) if ahead is None else ahead.result()
            del ahead
            if (rows := count_rows(content)) != group.rows:
                raise ReadError(
                    f"reading {group}",
                    f"it has {rows} rows, and had {group.rows} when the loader was created",
                    "create the loader again",
                    code="changed-file",
                    file=group.file,
                    row_group=group.number,
                )
            if self._row_bytes == float("inf"):
                self._row_bytes = table_bytes(content) / max(rows, 1)
            self._counters.count_group()
        except ReadError as error:
            if not self._skip_errors:
                raise
            self._counters.skip(group, error)
            content = None
        self._last = (index, content)
        self._read_ahead(end, limit)
        return content

    def _read_now(self, index: int) -> Any:
        with self._lock, self._counters.timed("read"):
            return self._dataset.read(index)

    def _read_ahead(self, position: int, limit: int) -> None:
        """Begin to read groups from a position in the second thread, up to the limits."""
        if self._executor is None:
            return
        begun = {self._last[0], *(index for index, _ in self._ahead)}
        for piece in self._order.pieces(position, limit):
            rows = self._dataset.groups[piece.group].rows
            if piece.group in begun:
                continue
            if len(self._ahead) >= groups_ahead(rows * self._row_bytes) or rows < _AHEAD_ROWS:
                return
            self._ahead.append((piece.group, self._executor.submit(self._read_now, piece.group)))

    def close(self) -> None:
        """Drop the last group, end the second thread, and close the files."""
        self._last = (-1, None)
        self._ahead.clear()
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
        with self._lock:
            self._dataset.close()


class StreamReader:
    """Reads positions of a stream, whose rows before the first position are skipped."""

    def __init__(self, stream: Stream, counters: Counters) -> None:
        self._counters = counters
        self._batches: Any = stream.batches()
        self._position = 0
        self._rest: Any = None

    def __call__(self, start: int, stop: int, limit: int) -> Iterator[Part]:
        """Return the rows at positions from `start` to `stop`, or to the end of the stream if it is -1."""
        while stop < 0 or self._position < stop:
            table = self._next()
            if table is None:
                return
            rows, begin = table.num_rows, self._position
            low, high = max(start - begin, 0), rows if stop < 0 else min(rows, stop - begin)
            if high < rows:
                self._rest = table.slice(high, rows - high)
            self._position = begin + high
            if low < high:
                yield Part(begin + low, high - low, table.slice(low, high - low))

    def _next(self) -> Any:
        if self._rest is not None:
            table, self._rest = self._rest, None
            return table
        with self._counters.timed("wait"), self._counters.timed("read"):
            table = next(self._batches, None)
        if table is not None:
            self._counters.count_group()
        return table

    def close(self) -> None:
        """End the stream."""
        self._rest = None
        close_iterator(self._batches)
