"""``LoaderPlan``: the batches of a loader, its copies, and the reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from zerocopy.errors import Reason
from zerocopy.formatting.printable import printable

#: The most groups of columns with equal plans that the text lists.
_LISTED = 20
_WIDTH = 80


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The aliases and copies of one column of a batch.

    Attributes
    ----------
    aliased : bool or None
        Whether batches alias the memory of the source, or of a decoded row group. None: it depends on the
        address of a batch's first row.
    nbytes : int
        Bytes of the column in a batch; for text and lists, unknown and 0 before a file is read.
    copied_bytes : int
        Bytes of it that its conversion copies for each batch: packed bits, masks, casts, dates, and arrays
        that the target does not alias. If `aliased` is None, those of a batch that is copied.
    reasons : tuple of Reason
        Reasons for the copies, each with its remedy.

    Examples
    --------
    >>> import pyarrow as pa, zerocopy as zc
    >>> plan = zc.loader(pa.table({"late": [True, False]}), to="numpy", batch=2).explain()
    >>> plan.columns["late"].copied_bytes, plan.columns["late"].reasons[0].why
    (2, 'Arrow packs booleans into bits')
    """

    aliased: bool | None
    nbytes: int
    copied_bytes: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class LoaderPlan:
    """The batches of a loader, its copies, and the reasons; returned by ``loader.explain()``.

    Attributes
    ----------
    source, target : str
        Short descriptions of the source and the target framework.
    rows, batches : int
        Rows and batches of one epoch of this shard; -1 for a stream, whose rows are unknown in advance.
    groups, files : int
        Groups of rows that are read at once, and files; 0 for a stream.
    batch : int
        Rows of a batch.
    order : str
        The order of the rows.
    columns : dict of str to ColumnPlan
        Each column of the source.
    batch_bytes : int
        Bytes of a whole batch; -1 for sparse rows, and for those that a device decodes. `columns` and
        `copies` are then empty: unknown.
    copies : dict of str to int
        The bytes that are copied for a batch, by operation. Decoding of files is not included.
    joined : int
        Batches whose rows are in several groups, and which are copied together for that reason; -1 for a
        stream.
    memory_bytes : int
        Memory for windows, or for row groups, that the loader uses at most; -1 if it is unknown.
    notes : tuple of str
        Effects that depend on the data or the machine.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> plan = zc.loader({"x": np.arange(8.0)}, to="numpy", batch=4, shuffle=True).explain()
    >>> plan.copies
    {'rows to their places in a window': 32, 'rows of a window to columns': 32}
    """

    source: str
    target: str
    rows: int
    batches: int
    groups: int
    files: int
    batch: int
    order: str
    columns: dict[str, ColumnPlan]
    batch_bytes: int
    copies: dict[str, int]
    joined: int
    memory_bytes: int
    notes: tuple[str, ...] = ()

    @property
    def copied_bytes(self) -> int:
        """Bytes that are copied for a batch, without decoding."""
        return sum(self.copies.values())

    def __str__(self) -> str:
        return "\n".join(map(printable, self._lines()))

    def _repr_html_(self) -> str:
        """Return tables for notebooks: the batches, and the columns."""
        from zerocopy.notebooks import html

        caption = f"{self.source} \u2192 {self.target}"
        copies = "".join(f"\n{nbytes:,}  {name}" for name, nbytes in self.copies.items())
        rows = [(name, text + copies if name == "copied" else text) for name, text in self._rows()]
        tables = [html.table(caption, rows)]
        columns = [
            (", ".join(names), verdict, "\n".join(f"{name}: {text}" for name, text in _facts(reasons)))
            for names, verdict, reasons in self._alike()
        ]
        if columns:
            tables.append(html.table("Columns", columns, ("columns", "result", "details")))
        return "".join(tables)

    def _rows(self) -> Iterator[tuple[str, str]]:
        """Return names and texts of the facts about a whole batch."""
        if self.rows >= 0:
            files = f" of {_count(self.files, 'file')}" if self.files else ""
            yield "rows", f"{self.rows:,} in {_count(self.groups, 'group')}{files}"
        number = f"{self.batches:,} of" if self.batches >= 0 else "of"
        size = f", {self.batch_bytes:,} bytes each" if self.batch_bytes >= 0 else ""
        yield "batches", f"{number} {self.batch:,} rows{size}"
        yield "order", self.order
        if self.batch_bytes >= 0:
            yield "copied", f"{self.copied_bytes:,} bytes for a batch" + ":" * bool(self.copies)
        if self.joined > 0:
            yield "joined", f"{_count(self.joined, 'batch', 'es')} with rows of several groups"
        if self.memory_bytes >= 0:
            yield "memory", f"at most about {self.memory_bytes:,} bytes for rows in advance"
        for note in self.notes:
            yield "note", note

    def _alike(self) -> list[tuple[list[str], str, tuple[Reason, ...]]]:
        """Return groups of columns with the same result and the same reasons."""
        alike: dict[tuple[str, tuple[Reason, ...]], list[str]] = {}
        for name, column in self.columns.items():
            alike.setdefault((_verdict(column), column.reasons), []).append(name)
        return [
            (names, f"{verdict} each" if len(names) > 1 and "bytes" in verdict else verdict, reasons)
            for (verdict, reasons), names in alike.items()
        ]

    def _lines(self) -> Iterator[str]:
        yield from _wrapped(f"{self.source} -> {self.target}", "")
        for name, text in self._rows():
            yield from _wrapped(text, f"  {name:<9} ", " " * 12)
            for operation, nbytes in self.copies.items() if name == "copied" else ():
                yield f"              {nbytes:>13,}  {operation}"
        if self.columns:
            yield "  columns"
        alike = self._alike()
        for names, verdict, reasons in alike[:_LISTED]:
            yield from _wrapped(f"{', '.join(names)}: {verdict}", "    ")
            for name, text in _facts(reasons):
                yield from _wrapped(f"{name}: {text}", "      ")
        if len(alike) > _LISTED:
            yield f"    and {sum(len(names) for names, _, _ in alike[_LISTED:]):,} more"


def _facts(reasons: tuple[Reason, ...]) -> Iterator[tuple[str, str]]:
    """Return the reasons and their fixes, each with its name."""
    for reason in reasons:
        yield "why", reason.why
        if reason.remedy:
            yield "fix", reason.remedy


def _verdict(column: ColumnPlan) -> str:
    if column.aliased is None:
        return f"aliased, or {column.copied_bytes:,} bytes copied, depending on the batch's address"
    if column.aliased and column.copied_bytes:
        return f"values are aliased; {column.copied_bytes:,} bytes are new or copied"
    if column.copied_bytes:
        return f"{column.copied_bytes:,} bytes copied"
    return "aliased" if column.aliased else "copied with its rows"


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{plural if number != 1 else ''}"


def _wrapped(content: str, first: str, rest: str | None = None) -> Iterator[str]:
    yield from textwrap.wrap(content, _WIDTH, initial_indent=first, subsequent_indent=rest or f"{first}  ")
