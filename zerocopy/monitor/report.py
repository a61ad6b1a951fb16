"""Reports on copies: `record`, `Snapshot`, and the tables of both and of the audit.

A report has rows of one dataclass. It is shown as plain text, as HTML in notebooks and as an Arrow table.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, ClassVar

from zerocopy.errors import MonitorStateError
from zerocopy.formatting import format_bytes, format_count, format_seconds, printable
from zerocopy.formatting.lines import Line, side_by_side
from zerocopy.monitor.conversion import (
    ORDERS,
    SUMMED,
    ConversionRow,
    as_dict,
    check_order,
    short_path,
    sort,
    sum_rows,
)
from zerocopy.monitor.sample import ProcessRecord

if TYPE_CHECKING:
    from zerocopy.monitor.writes import Write

#: The most rows of the text; `rows` has all of them.
_MOST = 30
#: A space at which lines are not broken.
_NO_BREAK = "\N{NO-BREAK SPACE}"
_NARROWEST, _WIDEST = 60, 140
_UNITS = {"aliased_bytes": "bytes", "copied_bytes": "bytes", "bytes": "bytes", "seconds": "seconds"}


class Report:
    """Base of reports: a sequence of rows, and their forms."""

    _row: ClassVar[type]

    @property
    def rows(self) -> list[Any]:
        """The rows, in their order."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True  # although it may have no rows yet

    def _listed(self) -> list[Any]:
        """Return the rows of the Arrow table."""
        return self.rows

    def to_arrow(self) -> Any:
        """Return the rows as a ``pyarrow.Table``: a column for each attribute, with its unit in the metadata.

        Raises
        ------
        FrameworkNotInstalledError
            pyarrow is not installed.
        """
        from zerocopy.registry import by_name

        pa = by_name("pyarrow").module()
        types = {"int": pa.int64(), "str": pa.string()}
        schema = []
        for field in fields(self._row):
            unit = {"unit": _UNITS[field.name]} if field.name in _UNITS else None
            kind, nullable = types.get(str(field.type), pa.float64()), "None" in str(field.type)
            schema.append(pa.field(field.name, kind, nullable=nullable, metadata=unit))
        rows = self._listed()
        columns = [[getattr(row, each.name) for row in rows] for each in schema]
        return pa.table(columns, schema=pa.schema(schema))


class ConversionReport(Report):
    """Base of `Recording` and `Snapshot`: the counts of each call site and pair."""

    _row = ConversionRow
    _order = ORDERS[0]

    def _unsorted(self) -> Sequence[ConversionRow]:
        raise NotImplementedError

    @property
    def rows(self) -> list[ConversionRow]:
        """The counts of each call site and pair, in `order`."""
        return sort(self._unsorted(), self._order)

    @property
    def order(self) -> str:
        """The order of the rows: ``"bytes"``, most copied bytes first, or ``"time"``, longest first."""
        return self._order

    @order.setter
    def order(self, order: str) -> None:
        self._order = check_order(order)

    @property
    def totals(self) -> ConversionRow:
        """Sums over all rows, as a row without a place."""
        return sum_rows(self._unsorted())

    def __str__(self) -> str:
        rows = self.rows
        table = text_table(rows)
        return summary(rows) + (f"\n\n{table}" if table else "")

    def __repr__(self) -> str:
        return f"<zerocopy.monitor.{type(self).__name__}: {summary(self._unsorted())}>"

    def _repr_html_(self) -> str:
        rows = self.rows
        return html_table(summary(rows), rows)


# -- the conversions of a block, and those of a process ------------------------------------


def new_recorder(sites: bool) -> Any:
    """Return a `Recorder` of all conversions of this process."""
    # Imported here, because it loads the engine, and `import zerocopy` with ZEROCOPY_MONITOR must not.
    from zerocopy.monitor.recorder import Recorder

    return Recorder(sites=sites)


def record(sites: bool = True, order: str = "bytes", writes: bool = False) -> Recording:
    """Record the conversions of a block of code, in all threads of this process.

    Parameters
    ----------
    sites : bool, default True
        Record the line of code of each conversion, its time and why it copies.
    order : {"bytes", "time"}
        The order of the rows: most copied bytes first, or the longest time first. The attribute `order` of
        the result changes it.
    writes : bool, default False
        Find writes to immutable memory, such as pandas columns, through its aliases: `Recording.writes`. It
        is read at the conversion, at the release of the alias and at the end of the block. A write to memory
        of :func:`zerocopy.share` ends the process by SIGSEGV, after a traceback.

    Returns
    -------
    Recording
        A context manager, which can be read in the block and afterwards. Blocks may be nested.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> with zc.monitor.record() as r:
    ...     array = zc.convert(np.arange(3.0), to="numpy", copy=True)
    >>> r.totals.calls, r.totals.copied_bytes
    (1, 24)
    """
    recording = Recording(sites)
    recording.order, recording._watches = order, writes
    return recording


class Recording(ConversionReport):
    """The conversions of a block; :func:`zerocopy.monitor.record` creates it.

    Examples
    --------
    >>> import zerocopy as zc
    >>> with zc.monitor.record() as r:
    ...     pass
    >>> print(r)
    no conversions
    """

    _watches = False
    _watcher: Any = None

    def __init__(self, sites: bool = True, *, recorder: Callable[[bool], Any] = new_recorder) -> None:
        self._sites, self._new_recorder = sites, recorder
        self._recorder: Any = None
        self._rows: Sequence[ConversionRow] = []

    def __enter__(self) -> Recording:
        if self._recorder is not None:
            raise MonitorStateError(
                "monitor.record()",
                "the block of this recording is running",
                "call record() once more",
                code="monitor-running",
            )
        recorder = self._new_recorder(self._sites)
        recorder.start()
        self._recorder = recorder
        if self._watches:
            from zerocopy.monitor.writes import Watcher  # it loads the engine too

            try:
                self._watcher = Watcher()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        recorder = self._recorder
        if recorder is not None:
            try:
                recorder.stop()
                self._rows = recorder.rows()
            finally:
                self._recorder = None
                if self._watcher is not None:
                    self._watcher.stop()  # else pages of shared memory would stay read-only

    @property
    def writes(self) -> list[Write]:
        """The writes to immutable memory until now, with ``record(writes=True)``."""
        return [] if self._watcher is None else self._watcher.writes()

    def __str__(self) -> str:
        return "\n\n".join([super().__str__(), *map(str, self.writes)])

    def _unsorted(self) -> Sequence[ConversionRow]:
        recorder = self._recorder
        return self._rows if recorder is None else recorder.rows()

    def as_dict(self) -> dict[str, Any]:
        """Return the sums and the rows as JSON types."""
        rows = self.rows
        sums = sum_rows(rows)
        totals = {name: getattr(sums, name) for name in SUMMED}
        lists = {"rows": list(map(as_dict, rows)), "writes": list(map(asdict, self.writes))}
        return {"totals": totals, **lists}


class Snapshot(ConversionReport):
    """The figures of this process at one moment; :func:`zerocopy.monitor.snapshot` returns it.

    Attributes
    ----------
    record : ProcessRecord
        The conversions, the pool, shared memory and the loaders, as other processes read them.

    Examples
    --------
    >>> import zerocopy as zc
    >>> session = zc.monitor.start()
    >>> zc.monitor.stop().record["ended"]
    True
    """

    def __init__(self, rows: Sequence[ConversionRow], record: ProcessRecord) -> None:
        self._rows = rows
        self.record = record

    def _unsorted(self) -> Sequence[ConversionRow]:
        return self._rows

    def as_dict(self) -> ProcessRecord:
        """Return the record, in JSON types."""
        return self.record

    def __str__(self) -> str:
        return "\n".join([*map(printable, self._heads()), super().__str__()])

    def _repr_html_(self) -> str:
        from zerocopy.formatting import html

        first, *others = self._heads()
        facts = [tuple(line.split(": ", 1)) for line in others]
        return html.table(first, facts) + super()._repr_html_()

    def _heads(self) -> list[str]:
        """Return lines about the process, its memory, pool, shared memory and loaders."""
        record = self.record
        process, pool, shared = record["process"], record["pool"], record["shared"]
        seconds = format_seconds(record["time"] - record["recording_since"])
        lines = [f"process {process['pid']} ({process['program']}), recorded for {seconds}"]
        lines.append(f"memory: {format_bytes(record['rss'])} resident")
        if pool["kind"]:
            in_use = sum(device["in_use"] for device in pool["devices"].values())
            in_use += sum(mode["in_use"] or 0 for mode in pool["host"].values())
            lines.append(f"pool: {pool['kind']}, {format_bytes(in_use)} in use")
        if shared["segments"] or shared["mapped"]:
            count = format_count(shared["segments"], "segment")
            own, others = format_bytes(shared["segment_bytes"]), format_bytes(shared["mapped_bytes"])
            lines.append(f"shared: {count}, {own}; {others} of others mapped")
        lines += [f"loader: {loader['name']}: {loader['bottleneck']}" for loader in record["loaders"]]
        return lines


# -- rows as text ------------------------------------------------------------------------


def summary(rows: Sequence[ConversionRow]) -> str:
    """Return the line above a table."""
    sums = sum_rows(rows)
    if not sums.calls:
        return "no conversions"
    parts = [f"{format_bytes(sums.aliased_bytes)} aliased", f"{format_bytes(sums.copied_bytes)} copied"]
    parts += [f"{sums.refused_calls:,} refused"] * bool(sums.refused_calls)
    parts += [f"{sums.unmeasured_calls:,} not measured"] * bool(sums.unmeasured_calls)
    parts += [] if sums.seconds is None else [f"in {format_seconds(sums.seconds)}"]
    return f"{format_count(sums.calls, 'call')}: {', '.join(parts)}"


def text_table(rows: Sequence[ConversionRow], width: int | None = None) -> str:
    """Return a table of plain text, with the reason and the fix below each row; "" without rows."""
    if not rows:
        return ""
    titles, table = _cells(rows[:_MOST])
    lines = aligned(titles, table, list(map(notes, rows)), 2 if titles[0] == "call site" else 1, width)
    if len(rows) > _MOST:
        lines.append(f"and {format_count(len(rows) - _MOST, 'more row')}: see .rows")
    return "\n".join(lines)


def html_table(caption: str, rows: Sequence[ConversionRow]) -> str:
    """Return a table for notebooks."""
    from zerocopy.formatting import html

    if not rows:
        return html.table(caption, [])
    titles, table = _cells(rows[:_MOST])
    cells = [(*line, "\n".join(notes(row))) for row, line in zip(rows, table, strict=False)]
    return html.table(caption, cells, (*titles, "notes"))


def notes(row: ConversionRow) -> list[str]:
    """Return which figures are unknown, the reason and the fix, as far as the row has them."""
    texts = {"not measured": row.not_measured, "why": row.why, "fix": row.fix}
    return [f"{name}: {text}" for name, text in texts.items() if text]


def _cells(rows: Sequence[ConversionRow]) -> tuple[list[str], list[list[str]]]:
    """Return titles and texts; a column without a value in any row is omitted."""
    with_sites = any(row.file for row in rows)
    with_time = any(row.seconds is not None for row in rows)
    titles = ["call site", "conversion", "calls", "aliased", "copied", "time"]
    table = []
    for row in rows:
        place = f"{short_path(row.file)}:{row.line} {row.function}" if row.file else "(other call sites)"
        pair = f"{row.source} -> {row.target}" if row.source else "(all others)"
        calls, *figures = count_cells(row)
        calls += " refused" if row.refused_calls == row.calls else ""
        table.append([place, pair, calls, *figures])
    kept = [i for i in range(6) if (i or with_sites) and (i < 5 or with_time)]
    return [titles[i] for i in kept], [[cells[i] for i in kept] for cells in table]


def count_cells(row: ConversionRow) -> tuple[str, str, str, str]:
    """Return calls, aliased and copied bytes and time; a question mark stands for an unknown figure."""
    seconds = "?" if row.seconds is None else format_seconds(row.seconds)
    sizes = []
    for count in (row.aliased_bytes, row.copied_bytes):
        known = format_bytes(count) if count or not row.unmeasured_calls else ""
        sizes.append(known + ("+?" if known else "?") * bool(row.unmeasured_calls))
    return f"{row.calls:,}", sizes[0], sizes[1], seconds


def width_of_terminal(width: int | None = None) -> int:
    """Return the width of the terminal, or the given one, within limits."""
    width = shutil.get_terminal_size((80, 24)).columns if width is None else width
    return min(max(width, _NARROWEST), _WIDEST)


def aligned(
    titles: list[str],
    table: list[list[str]],
    notes: list[list[str]],
    texts: int,
    width: int | None = None,
) -> list[str]:
    """Return the lines of a table, with notes below each row; the first `texts` columns are wrapped."""
    width = width_of_terminal(width)
    table = [list(map(printable, cells)) for cells in table]
    numbers = [max(len(row[i]) for row in [titles, *table]) for i in range(texts, len(titles))]
    room = width - sum(numbers) - 2 * (len(titles) - 1)
    columns = [[row[i] for row in [titles, *table]] for i in range(texts)]
    if texts == 2 and sum(map(_longest_word, columns)) > room:
        table = [[cells[0].rpartition("/")[2], *cells[1:]] for cells in table]  # the file without its folder
        columns[0] = [titles[0], *(cells[0] for cells in table)]
    widths = [*_divided(room, columns), *numbers]
    lines = _lines(titles, widths, texts)
    for cells, texts_below in zip(table, notes, strict=False):
        lines += _lines(cells, widths, texts)
        for text in map(printable, texts_below):  # code in it is not broken within a word
            lines += textwrap.wrap(
                text, width, initial_indent="  ", subsequent_indent=" " * 7, break_long_words=False,
                break_on_hyphens=False,
            )  # fmt: skip
    return lines


def _divided(room: int, columns: list[list[str]]) -> list[int]:
    """Return the widths of columns of text: as wide as their texts, or half of the room."""
    needed = [max(map(len, column)) for column in columns]
    if sum(needed) <= room or len(needed) == 1:
        return [min(need, room) for need in needed]
    half = room // 2
    first = needed[0] if needed[0] < half else max(half, room - needed[1])
    words = [_longest_word(column) for column in columns]
    if sum(words) <= room:  # no name is broken
        first = min(max(first, words[0]), room - words[1])
    return [first, room - first]


def _longest_word(column: Sequence[str]) -> int:
    return max(len(word) for cell in column for word in cell.split(" "))


def _lines(cells: Sequence[str], widths: Sequence[int], texts: int) -> list[str]:
    """Return the lines of a row: its first cells are wrapped, and its numbers aligned to the right."""
    columns: list[tuple[int, list[Line]]] = []
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        joined = cell.replace("-> ", f"->{_NO_BREAK}")
        wrapped = textwrap.wrap(joined, width, break_on_hyphens=False) if i < texts else [cell.rjust(width)]
        columns.append((width + 2, [[(line.replace(_NO_BREAK, " "), "")] for line in wrapped]))
    return ["".join(text for text, _ in line).rstrip() for line in side_by_side(columns)]
