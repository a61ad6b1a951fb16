"""Chunks: whole batches that the reader's thread hands to the consumer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from zerocopy.layout.rows import read_rows
from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.contents import DecodedRows, count_rows, slice_rows
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
