"""``Audit``: the report of an audit, as text, JSON, HTML and an Arrow table."""

from __future__ import annotations

import os
import shutil
import textwrap
from dataclasses import asdict, fields
from types import TracebackType
from typing import Any, TypedDict

from zerocopy import registry
from zerocopy.audit import patches
from zerocopy.audit.check import ALIAS, AVOIDABLE, NEEDED
from zerocopy.audit.recorder import SAMPLED, Recorder
from zerocopy.audit.row import AuditRow
from zerocopy.formatting.printable import printable
from zerocopy.formatting.units import format_bytes, format_count, format_seconds

_NOTE = (
    "The result of a fix is an alias: writes to it change the source, or are refused. Pass copy=True if the "
    "copy is intended. The fixes need: import zerocopy as zc"
)
#: The least number of characters of a shortened call.
_LEAST = 16
_TITLES = {
    AVOIDABLE: "Copies that zerocopy.convert avoids",
    NEEDED: "Copies that are needed",
    ALIAS: "Calls that alias",
}


class AuditDocument(TypedDict):
    """The JSON document of an audit."""

    min_bytes: int
    avoidable_bytes: int
    avoidable_calls: int
    seconds: float
    rows: list[dict[str, Any]]


class Audit:
    """Calls of the frameworks in a ``with`` block that copy where ``convert`` would alias.

    Parameters
    ----------
    min_bytes : int
        Results with fewer bytes are not listed.

    Examples
    --------
    >>> from zerocopy.audit import Audit
    >>> with Audit() as report:
    ...     text = "torch.tensor(array) would be reported here"
    >>> report
    <zerocopy Audit: 0 B avoidable at 0 places>
    """

    def __init__(self, min_bytes: int = 1024) -> None:
        self._recorder = Recorder(min_bytes)

    def __enter__(self) -> Audit:
        patches.add(self._recorder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        patches.remove(self._recorder)

    @property
    def all_rows(self) -> list[AuditRow]:
        """The calls of all kinds, most bytes first; a copy that can be read while the audit runs."""
        return self._recorder.rows()

    @property
    def rows(self) -> list[AuditRow]:
        """The calls that copy where ``convert`` would alias, most bytes first."""
        return [row for row in self.all_rows if row.kind == AVOIDABLE]

    def as_dict(self, every: bool = False) -> AuditDocument:
        """Return the totals and the rows, of all kinds if `every`, as JSON types."""
        rows = self.rows
        return {
            "min_bytes": self._recorder.min_bytes,
            "avoidable_bytes": sum(row.bytes for row in rows),
            "avoidable_calls": sum(row.counted for row in rows),
            "seconds": sum(row.seconds for row in rows),
            "rows": [asdict(row) for row in (self.all_rows if every else rows)],
        }

    def to_arrow(self) -> Any:
        """Return the calls of all kinds as a ``pyarrow.Table``, one row each.

        Raises
        ------
        FrameworkNotInstalledError
            pyarrow is not installed.
        """
        rows, names = self.all_rows, [each.name for each in fields(AuditRow)]
        types = {"int": "int64", "float": "float64", "str": "string"}
        pa = registry.by_name("pyarrow").module()
        schema = pa.schema([(each.name, types[str(each.type)]) for each in fields(AuditRow)])
        return pa.table({name: [getattr(row, name) for row in rows] for name in names}, schema=schema)

    def text(self, every: bool = False, width: int | None = None) -> str:
        """Return the report for a terminal; with the calls of all kinds if `every` is True."""
        width = width or min(shutil.get_terminal_size((80, 24)).columns, 100)
        rows = self.all_rows
        avoidable = [row for row in rows if row.kind == AVOIDABLE]
        lines = [] if avoidable else ["No call copied where zerocopy.convert would alias."]
        for kind in (AVOIDABLE, NEEDED, ALIAS) if every else (AVOIDABLE,):
            chosen = [row for row in rows if row.kind == kind]
            if chosen:
                lines += [_TITLES[kind], ""] + [line for row in chosen for line in _lines(row, width)]
                lines += [""]
        if avoidable:
            calls, seconds = sum(row.counted for row in avoidable), sum(row.seconds for row in avoidable)
            size = format_bytes(sum(row.bytes for row in avoidable))
            counts = format_count(calls, "call"), format_count(len(avoidable), "place")
            lines += [f"Total: {size} in {counts[0]}, {format_seconds(seconds)}, at {counts[1]}."]
            lines += ["", *textwrap.wrap(_NOTE, width)]
        if any(row.checked < row.calls for row in rows):
            sampling = (
                f"The first {SAMPLED} calls of a line are checked, then each {SAMPLED}th; the bytes and "
                "times are those of the checked calls."
            )
            lines += textwrap.wrap(sampling, width)
        return printable("\n".join(lines).rstrip(), "\n")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        rows = self.rows
        size = format_bytes(sum(row.bytes for row in rows))
        return f"<zerocopy Audit: {size} avoidable at {format_count(len(rows), 'place')}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        from zerocopy.notebooks import html

        titles = ("place", "call", "size", "calls", "time", "fix")
        rows = [
            (
                _place(row),
                row.call,
                format_bytes(row.bytes),
                _calls(row),
                format_seconds(row.seconds),
                row.fix,
            )
            for row in self.rows
        ]
        return html.table(_TITLES[AVOIDABLE], rows, titles)


def audit(min_bytes: int = 1024) -> Audit:
    """Report the calls in a ``with`` block that copy where :func:`zerocopy.convert` would alias.

    The frameworks' own functions, such as ``torch.tensor`` and ``np.array``, report to the audit while the
    block runs, in all threads. Their results do not change.

    Parameters
    ----------
    min_bytes : int, default 1024
        Results with fewer bytes are not listed.

    Returns
    -------
    Audit
        Print it after the block, or read its ``rows``.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from zerocopy.audit import audit
    >>> with audit() as report:
    ...     t = torch.from_numpy(np.zeros(1024))
    >>> print(report)
    No call copied where zerocopy.convert would alias.
    """
    return Audit(min_bytes)


def _lines(row: AuditRow, width: int) -> list[str]:
    """Return the lines of one row, at most `width` wide unless the path or the fix is longer."""
    figures = f"{format_bytes(row.bytes)} in {_calls(row)}, {format_seconds(row.seconds)}"
    start = f"{_place(row)}  "
    if len(start) + len(row.call) + len(figures) + 2 <= width:
        lines = [f"{start}{row.call}  {figures}"]
    else:
        lines = [start + _shortened(row.call, max(width - len(start), _LEAST)), f"  {figures}"]
    if row.fix:
        lines.append(f"  fix: {row.fix}")
    if row.why:
        lines += textwrap.wrap(f"why: {row.why}", width, initial_indent="  ", subsequent_indent="    ")
    return lines


def _shortened(call: str, room: int) -> str:
    return call if len(call) <= room else call[: room - 3] + "..."


def _place(row: AuditRow) -> str:
    """Return the file, relative to the current folder if it is below, and the line."""
    path = os.path.relpath(row.file) if os.path.isabs(row.file) else row.file
    return f"{row.file if path.startswith('..') else path}:{row.line}"


def _calls(row: AuditRow) -> str:
    if row.checked == row.calls:
        return format_count(row.counted, "call")
    counted = f"{row.counted} of {row.checked}" if row.counted != row.checked else f"{row.checked}"
    return f"{counted} checked of {format_count(row.calls, 'call')}"
