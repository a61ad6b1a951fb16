"""The counts of conversions by call site and pair of types: rows, their order and their sums."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from zerocopy.errors import OptionError
from zerocopy.monitor.sample import ProcessRecord


@dataclass(frozen=True, slots=True)
class ConversionRow:
    """Counts of the conversions from one type to one target, at one line of code.

    Only outermost calls count: the columns of a table and the leaves of a container add to the
    bytes of the call that converts the whole.

    Attributes
    ----------
    file : str
        Path of the source file, or a name such as ``"<stdin>"``; ``""`` if call sites are not recorded.
    line : int
        Line number of the call; 0 if call sites are not recorded.
    function : str
        Qualified name of the calling function, ``"<module>"`` at the top level.
    source : str
        Type of the converted objects, such as ``"numpy.ndarray"``.
    target : str
        Framework of the results, such as ``"torch"``.
    calls : int
        Number of calls: the sum of the next five.
    aliased_calls : int
        Calls whose result shares all of its memory with the source.
    copied_calls : int
        Calls that copied any bytes, although other bytes of the result may be aliased.
    unchanged_calls : int
        Calls that returned the object itself, or a container of its own leaves. Their bytes are not counted.
    refused_calls : int
        Calls that raised an exception.
    empty_calls : int
        Calls that are not known to share or copy bytes: those of arrays of size zero, and on streams.
    aliased_bytes : int
        Bytes of the results that are the memory of the sources.
    copied_bytes : int
        Bytes that were copied, transfers between devices included.
    unmeasured_calls : int
        Calls, counted above too, whose bytes are unknown, such as those on streams.
    seconds : float or None
        Duration of all calls; None if call sites are not recorded.
    why : str
        Why the most recent sampled call copied or was refused, or that its alias is read slowly; else ``""``.
    fix : str
        The change by which the call aliases or is not refused; ``""`` if there is none.
    code : str
        Stable name of the reason, such as ``"not-contiguous"``; see docs/errors.md.

    Examples
    --------
    >>> row = ConversionRow("train.py", 12, "main", "pandas.DataFrame", "torch", 3, copied_calls=3,
    ...                     copied_bytes=96)
    >>> row.place
    'train.py:12'
    """

    file: str
    line: int
    function: str
    source: str
    target: str
    calls: int
    aliased_calls: int = 0
    copied_calls: int = 0
    unchanged_calls: int = 0
    refused_calls: int = 0
    empty_calls: int = 0
    aliased_bytes: int = 0
    copied_bytes: int = 0
    unmeasured_calls: int = 0
    seconds: float | None = None
    why: str = ""
    fix: str = ""
    code: str = ""

    @property
    def not_measured(self) -> str:
        """Which figures of the calls are unknown, as text; ``""`` if all are known.

        Examples
        --------
        >>> ConversionRow("a.py", 1, "f", "torch.Tensor", "cupy", 3, unmeasured_calls=2).not_measured
        'the bytes of 2 of 3 calls, the time'
        """
        calls = "call" if self.calls == 1 else "calls"
        parts = [f"the bytes of {self.unmeasured_calls:,} of {self.calls:,} {calls}"] * bool(
            self.unmeasured_calls
        )
        return ", ".join(parts + ["the time"] * (self.seconds is None and bool(self.file)))

    @property
    def place(self) -> str:
        """The file and the line in the form ``file:line``; ``""`` if call sites are not recorded."""
        return f"{self.file}:{self.line}" if self.file else ""


NAMES = tuple(field.name for field in fields(ConversionRow))
#: The fields that are counts or bytes.
COUNT_FIELDS = tuple(name for name in NAMES if name.endswith(("calls", "_bytes")))
SUMMED = (*COUNT_FIELDS, "seconds")
#: The orders of rows.
ORDERS = ("bytes", "time")

_TEXTS = ("file", "line", "function", "source", "target", "why", "fix", "code")
_subject = attrgetter(*_TEXTS[:5])
_values = attrgetter(*NAMES)


def as_dict(row: ConversionRow) -> dict[str, Any]:
    """Return a row as JSON types; `dataclasses.asdict` takes 10 times as long, since it copies values."""
    return dict(zip(NAMES, _values(row), strict=True))


def rows_of(records: Iterable[ProcessRecord]) -> list[ConversionRow]:
    """Return the rows of all processes."""
    return [ConversionRow(**row) for record in records for row in record["conversions"]]


def short_path(file: str) -> str:
    """Return the last two parts of a path, or the path from the working directory if that is shorter."""
    parts = file.replace(os.sep, "/").split("/")
    return file if len(parts) <= 2 else "/".join(parts[-2:])


# -- order ---------------------------------------------------------------------------


def check_order(order: str) -> str:
    """Return an order of rows; raise `OptionError` for other values."""
    if order in ORDERS:
        return order
    fix = f"pass order={' or order='.join(map(repr, ORDERS))}"
    raise OptionError(f"order={order!r}", "it is not an order of rows", fix)


def sort(rows: Iterable[ConversionRow], order: str = "bytes") -> list[ConversionRow]:
    """Return the rows with most copied bytes first, then those with most refusals and calls.

    With the order "time", the rows with the longest time come first.
    """

    def key(row: ConversionRow) -> tuple[float, ...]:
        seconds = (row.seconds or 0.0) if order == "time" else 0.0
        return -seconds, -row.copied_bytes, -row.refused_calls, -row.aliased_bytes, -row.calls

    return sorted(rows, key=key)


# -- sums ----------------------------------------------------------------------------


def sum_rows(rows: Iterable[ConversionRow]) -> ConversionRow:
    """Return the sums as a row without a place and types; `seconds` is None if no row has it."""
    rows = list(rows)
    return _sums({name: list(map(attrgetter(name), rows)) for name in SUMMED})


def sum_record(record: ProcessRecord) -> ConversionRow:
    """Return the sums of a record's conversions; making a `ConversionRow` of each takes 7 times as long."""
    return _sums({name: [row[name] for row in record["conversions"]] for name in SUMMED})


def _sums(columns: dict[str, list[Any]]) -> ConversionRow:
    seconds = [each for each in columns.pop("seconds") if each is not None]
    counts = {name: sum(values) for name, values in columns.items()}
    return ConversionRow("", 0, "", "", "", **counts, seconds=sum(seconds) if seconds else None)


def merged_rows(records: Iterable[ProcessRecord], order: str = "bytes") -> list[ConversionRow]:
    """Return rows with the sums of all processes, in one of the orders of `sort`.

    The reason and the fix are those of the first process that has a reason.
    """
    groups: dict[tuple[Any, ...], list[ConversionRow]] = {}
    for row in rows_of(records):
        groups.setdefault(_subject(row), []).append(row)
    merged = []
    for rows in groups.values():
        explained = next((row for row in rows if row.why), rows[0])
        merged.append(replace(sum_rows(rows), **{name: getattr(explained, name) for name in _TEXTS}))
    return sort(merged, order)


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
    return [*sort(by_bytes[:most]), sum_rows(others)], len(others)


def summarized(record: ProcessRecord) -> ProcessRecord:
    """Return a record whose conversions are one row: the size of a history is independent of call sites."""
    row = as_dict(sum_record(record))
    return {**record, "conversions": [row], "other_sites": record["other_sites"] + len(record["conversions"])}
