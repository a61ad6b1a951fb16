"""``merged_rows``: the conversions of several processes by call site and pair."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.sample import ProcessRecord
from zerocopy.monitor.totals import COUNT_FIELDS, sort

_KEY = ("file", "line", "function", "source", "target")
_REASON = ("why", "fix", "code")


def merged_rows(records: Iterable[ProcessRecord], order: str = "bytes") -> list[ConversionRow]:
    """Return rows with the sums of all processes, in one of the orders of `sort`.

    The reason and the fix are those of the first process that has a reason.
    """
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        for row in record["conversions"]:
            known = merged.setdefault(tuple(row[name] for name in _KEY), {})
            if known:
                _add(known, row)
            else:
                known.update(row)
    return sort((ConversionRow(**row) for row in merged.values()), order)


def _add(known: dict[str, Any], row: dict[str, Any]) -> None:
    """Add the counts of a row to those of an equal call site."""
    for name in COUNT_FIELDS:
        known[name] += row[name]
    if row["seconds"] is not None:
        known["seconds"] = (known["seconds"] or 0.0) + row["seconds"]
    if not known["why"]:
        known.update({name: row[name] for name in _REASON})
