"""Sums of conversion rows, and rows as JSON types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.errors import MonitorOptionError
from zerocopy.monitor.sample import ProcessRecord

NAMES = tuple(field.name for field in fields(ConversionRow))
#: The orders of rows.
ORDERS = ("bytes", "time")
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


def check_order(order: str) -> str:
    """Return an order of rows; raise `MonitorOptionError` for other values."""
    if order in ORDERS:
        return order
    fix = f"pass order={' or order='.join(map(repr, ORDERS))}"
    raise MonitorOptionError(f"order={order!r}", "it is not an order of rows", fix)


def sort(rows: Iterable[ConversionRow], order: str = "bytes") -> list[ConversionRow]:
    """Return the rows with most copied bytes first, then those with most refusals and calls.

    With the order "time", the rows with the longest time come first.
    """

    def key(row: ConversionRow) -> tuple[float, ...]:
        seconds = (row.seconds or 0.0) if order == "time" else 0.0
        return -seconds, -row.copied_bytes, -row.refused_calls, -row.aliased_bytes, -row.calls

    return sorted(rows, key=key)


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


def limited(rows: Iterable[ConversionRow], most: int) -> tuple[list[ConversionRow], int]:
    """Return `most` rows and one row with the sums of the others, and the number of others.

    Half of the rows are those that took longest, the rest those with most copied bytes.
    """
    by_bytes = sort(rows)
    if len(by_bytes) <= most:
        return by_bytes, 0
    slow = set(map(id, sort(by_bytes, "time")[: most // 2]))
    by_bytes.sort(key=lambda row: id(row) not in slow)
    others = by_bytes[most:]
    return [*sort(by_bytes[:most]), without_place(sum_rows(others))], len(others)


def summarized(record: ProcessRecord) -> ProcessRecord:
    """Return a record whose conversions are one row: the size of a history is independent of call sites."""
    row = as_dict(without_place(sum_record(record)))
    return {**record, "conversions": [row], "other_sites": record["other_sites"] + len(record["conversions"])}
