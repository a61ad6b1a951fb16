"""``Audit``: the report of an audit, in the forms of the reports of recorded conversions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from zerocopy.audit import wrapper
from zerocopy.audit.check import ALIAS, AVOIDABLE, NEEDED
from zerocopy.audit.recorder import SAMPLED, AuditRow, Recorder
from zerocopy.formatting import format_bytes, format_count, format_seconds, printable
from zerocopy.monitor.conversion import short_path
from zerocopy.monitor.report import Report, aligned, width_of_terminal

_NOTE = (
    "The result of a fix is an alias: writes to it change the source, or are refused. Pass copy=True if the "
    "copy is intended. The fixes need: import zerocopy as zc"
)
_SAMPLING = (
    f"The first {SAMPLED} calls of a line are checked, then each {SAMPLED}th; the bytes and times are those "
    "of the checked calls."
)
_TITLES = {
    AVOIDABLE: "Copies that zerocopy.convert avoids",
    NEEDED: "Copies that are needed",
    ALIAS: "Calls that alias",
}
_HEADS = ["call site", "call", "calls", "bytes", "time"]


class Audit(Report):
    """The report of :func:`audit`."""

    _row = AuditRow

    def __init__(self, min_bytes: int = 1024) -> None:
        self._recorder = Recorder(min_bytes)

    def __enter__(self) -> Audit:
        wrapper.add(self._recorder)
        return self

    def __exit__(self, *error: object) -> None:
        wrapper.remove(self._recorder)

    @property
    def all_rows(self) -> list[AuditRow]:
        """The calls of all kinds, most bytes first; a copy that can be read while the audit runs."""
        return self._recorder.rows()

    @property
    def rows(self) -> list[AuditRow]:
        """The calls that copy where ``convert`` would alias, most bytes first."""
        return [row for row in self.all_rows if row.kind == AVOIDABLE]

    def _listed(self) -> list[AuditRow]:
        return self.all_rows

    def as_dict(self, every: bool = False) -> dict[str, Any]:
        """Return the totals and the rows, of all kinds if `every`, as JSON types."""
        rows = self.rows
        return {
            "min_bytes": self._recorder.min_bytes,
            "avoidable_bytes": sum(row.bytes for row in rows),
            "avoidable_calls": sum(row.counted for row in rows),
            "seconds": sum(row.seconds for row in rows),
            "rows": [asdict(row) for row in (self.all_rows if every else rows)],
        }

    def text(self, every: bool = False, width: int | None = None) -> str:
        """Return the report for a terminal; with the calls of all kinds if `every` is True."""
        width = width_of_terminal(width)
        rows = self.all_rows
        avoidable = [row for row in rows if row.kind == AVOIDABLE]
        lines = [] if avoidable else ["No call copied where zerocopy.convert would alias."]
        for kind in (AVOIDABLE, NEEDED, ALIAS) if every else (AVOIDABLE,):
            chosen = [row for row in rows if row.kind == kind]
            if chosen:
                table = aligned(_HEADS, _cells(chosen), [_notes(row) for row in chosen], 2, width)
                lines += [_TITLES[kind], "", *table, ""]
        if avoidable:
            calls, seconds = sum(row.counted for row in avoidable), sum(row.seconds for row in avoidable)
            size = format_bytes(sum(row.bytes for row in avoidable))
            counts = format_count(calls, "call"), format_count(len(avoidable), "place")
            lines += [f"Total: {size} in {counts[0]}, {format_seconds(seconds)}, at {counts[1]}."]
            lines += ["", *textwrap.wrap(_NOTE, width)]
        if any(row.checked < row.calls for row in rows):
            lines += textwrap.wrap(_SAMPLING, width)
        return printable("\n".join(lines).rstrip(), "\n")

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        rows = self.rows
        size = format_bytes(sum(row.bytes for row in rows))
        return f"<zerocopy Audit: {size} avoidable at {format_count(len(rows), 'place')}>"

    def _repr_html_(self) -> str:
        from zerocopy.formatting import html

        rows = self.rows
        cells = [(*line, "\n".join(_notes(row))) for line, row in zip(_cells(rows), rows, strict=True)]
        return html.table(_TITLES[AVOIDABLE], cells, (*_HEADS, "notes"))


def audit(min_bytes: int = 1024) -> Audit:
    """Report the calls in a ``with`` block that copy where :func:`zerocopy.convert` would alias.

    The frameworks' own functions, such as ``torch.tensor`` and ``np.array``, report to the audit while the
    block runs, in all threads. Their results do not change. Print it after the block, or read its `rows`.

    Parameters
    ----------
    min_bytes : int, default 1024
        Results with fewer bytes are not listed.

    Examples
    --------
    >>> import numpy as np, torch
    >>> from zerocopy.audit import audit
    >>> with audit() as report:
    ...     t = torch.from_numpy(np.zeros(1024))
    >>> print(report)
    No call copied where zerocopy.convert would alias.
    >>> report
    <zerocopy Audit: 0 B avoidable at 0 places>
    """
    return Audit(min_bytes)


def _cells(rows: Sequence[AuditRow]) -> list[list[str]]:
    return [
        [
            f"{short_path(row.file)}:{row.line}",
            row.call,
            f"{row.counted:,}",
            format_bytes(row.bytes),
            format_seconds(row.seconds),
        ]
        for row in rows
    ]


def _notes(row: AuditRow) -> list[str]:
    """Return which calls were checked, the reason and the fix, as far as the row has them."""
    notes = [f"checked: {row.checked:,} of {row.calls:,} calls"] * (row.checked < row.calls)
    return notes + [f"why: {row.why}"] * bool(row.why) + [f"fix: {row.fix}"] * bool(row.fix)
