"""Arrow tables and dicts of arrays in memory."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

from zerocopy.loading.dataset import Dataset, Group
from zerocopy.loading.sources.files import digest
from zerocopy.tables.hub import hub

#: Most rows of a group, so that the first batch does not wait for the whole table.
GROUP_ROWS = 1 << 17


class TableDataset(Dataset):
    """The record batches of a ``pyarrow.Table``, in parts of at most 131,072 rows."""

    in_memory = True

    def __init__(self, table: Any, columns: Sequence[Hashable] | None, name: str) -> None:
        self.name = name
        self._table = table if columns is None else table.select(list(columns))
        self.schema = self._table.schema
        self._starts: list[int] = []
        groups: list[Group] = []
        start = 0
        for batch in self._table.to_batches(max_chunksize=GROUP_ROWS):
            groups.append(Group(batch.num_rows, number=len(groups)))
            self._starts.append(start)
            start += batch.num_rows
        self.groups = groups

    def read(self, index: int) -> Any:
        """Return the rows of a group: an alias."""
        return self._table.slice(self._starts[index], self.groups[index].rows)

    @cached_property
    def _digest(self) -> str:
        return table_digest(self._table)

    def fingerprint(self) -> str:
        """Return a digest of the types, the number of rows and some of the rows."""
        return self._digest


class ArrayDataset(Dataset):
    """A dict of NumPy arrays whose first dimension is the rows."""

    in_memory = True

    def __init__(self, arrays: Mapping[Hashable, Any], name: str) -> None:
        self.name = name
        self._arrays = dict(arrays)
        rows = len(next(iter(self._arrays.values()))) if self._arrays else 0
        self.groups = groups_of(rows)

    def read(self, index: int) -> dict[Hashable, Any]:
        """Return the rows of a group: aliases."""
        start = index * GROUP_ROWS
        return {name: array[start : start + self.groups[index].rows] for name, array in self._arrays.items()}

    @cached_property
    def _digest(self) -> str:
        rows = sum(group.rows for group in self.groups)
        places = sampled(rows)
        return digest(
            rows,
            [(name, str(array.dtype), array.shape[1:]) for name, array in self._arrays.items()],
            [array[places].tobytes() for array in self._arrays.values()],
        )

    def fingerprint(self) -> str:
        """Return a digest of the types, the number of rows and some of the rows."""
        return self._digest


def groups_of(rows: int) -> list[Group]:
    """Return the groups of arrays in memory: at least one."""
    starts = range(0, max(rows, 1), GROUP_ROWS)
    return [Group(min(GROUP_ROWS, rows - start), number=number) for number, start in enumerate(starts)]


def table_digest(table: Any) -> str:
    """Return a digest of the types of a table, its number of rows and some of the rows."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        rows = pa.array(sampled(table.num_rows), pa.int64())  # an empty list has the type null
        writer.write_table(hub().writable(table.take(rows).combine_chunks()))
    return digest(table.num_rows, sink.getvalue().to_pybytes())


def sampled(rows: int) -> list[int]:
    """Return the rows that the digest covers: the first, the last and at most seven between."""
    return sorted({rows * part // 8 for part in range(8)} | {rows - 1}) if rows else []
