"""Sums of conversion rows, and rows as JSON types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.sample import ProcessRecord

NAMES = tuple(field.name for field in fields(ConversionRow))
#: The fields that are counts or bytes.
COUNT_FIELDS = tuple(name for name in NAMES if name.endswith(("calls", "_bytes")))

_values = attrgetter(*NAMES)
_counts = attrgetter(*COUNT_FIELDS)


class Totals(NamedTuple):
    """Sums over all rows; `seconds` is None if no row has it."""

    calls: int = 0
    aliased_calls: int = 0
    copied_calls: int = 0
    unchanged_calls: int = 0
    refused_calls: int = 0
    empty_calls: int = 0
    aliased_bytes: int = 0
    copied_bytes: int = 0
    unmeasured_calls: int = 0
    seconds: float | None = None


def as_dict(row: ConversionRow) -> dict[str, Any]:
    """Return a row as JSON types; `dataclasses.asdict` takes 10 times as long, since it copies values."""
    return dict(zip(NAMES, _values(row), strict=True))


def sort(rows: Iterable[ConversionRow]) -> list[ConversionRow]:
    """Return the rows with most copied bytes first, then those with most refusals and calls."""
    return sorted(
        rows, key=lambda row: (-row.copied_bytes, -row.refused_calls, -row.aliased_bytes, -row.calls)
    )


def sum_rows(rows: Sequence[ConversionRow]) -> Totals:
    """Return the sums of rows."""
    sums = [sum(column) for column in zip(*map(_counts, rows), strict=True)] or [0] * len(COUNT_FIELDS)
    seconds = [row.seconds for row in rows if row.seconds is not None]
    return Totals(**dict(zip(COUNT_FIELDS, sums, strict=True)), seconds=sum(seconds) if seconds else None)


def sum_record(record: ProcessRecord) -> Totals:
    """Return the sums of a record's conversions, including those of call sites beyond the limit."""
    rows = record["conversions"]
    seconds = [row["seconds"] for row in rows if row["seconds"] is not None]
    counts: Mapping[str, int] = {name: sum(row[name] for row in rows) for name in COUNT_FIELDS}
    return Totals(**counts, seconds=sum(seconds) if seconds else None)


def without_place(totals: Totals) -> ConversionRow:
    """Return sums as a row that has neither a place nor types."""
    return ConversionRow(file="", line=0, function="", source="", target="", **totals._asdict())


def limited(rows: Sequence[ConversionRow], most: int) -> tuple[list[ConversionRow], int]:
    """Return the first `most` rows and one row with the sums of the others, and the number of others."""
    others = rows[most:]
    return [*rows[:most], *([without_place(sum_rows(others))] if others else [])], len(others)


def summarized(record: ProcessRecord) -> ProcessRecord:
    """Return a record whose conversions are one row: the size of a history is independent of call sites."""
    row = as_dict(without_place(sum_record(record)))
    return {**record, "conversions": [row], "other_sites": record["other_sites"] + len(record["conversions"])}
