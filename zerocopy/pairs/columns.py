"""Columns of every type, converted between frameworks.

A source is a table of one column, converted from an Arrow table; for a framework without tables it
is a dict of one tensor. A conversion that is refused by default is tried again with options.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import zerocopy
from zerocopy import registry
from zerocopy.describe import describe
from zerocopy.errors import Reason, ZeroCopyError
from zerocopy.framework import FrameworkName
from zerocopy.pairs.attempt import Progress, Row, block_bounds, fill_cells, plan_reasons
from zerocopy.pairs.cells import TYPE, Cell, Key
from zerocopy.tables.column import Table
from zerocopy.tables.result import to_pylist

#: The label of the only column of each table.
LABEL = "x"

_HUB = FrameworkName("pyarrow")
_MOST_ROWS = 10_000  # of each column: the outcome does not depend on the number of rows
#: The options that a refused conversion is tried with, in this order.
_OPTIONS: tuple[dict[str, Any], ...] = (
    {"encode": "bytes"},
    {"nulls": "mask"},
    {"encode": "bytes", "nulls": "mask"},
)


@dataclass(slots=True, kw_only=True)
class ColumnCell(Cell):
    """The outcome of converting a column, with the options that it needs."""

    column: str
    type: str  # the Arrow type in the source's framework
    options: dict[str, Any] = field(default_factory=dict)
    refusals: list[Reason] = field(default_factory=list)  # by default, and with options that do not help

    @property
    def item(self) -> str:
        return self.column

    def keys(self, general: bool = False) -> list[Key]:
        # A cell with options shows the fix; it needs no footnote for the refusal.
        refusals = [] if self.options else self.refusals
        keys = [("refused", reason.why, reason.remedy) for reason in refusals]
        # Not super(): `slots=True` makes another class of the same name.
        keys += Cell.keys(self)
        if not general:
            return keys
        return [
            (k, why if k == "broken" else why.replace(f"is {self.type}", f"is {TYPE}"), fix)
            for k, why, fix in keys
        ]


@dataclass(slots=True)
class ColumnMatrix:
    """The cells of columns, by source, column and target."""

    types: dict[str, str]  # the Arrow type of each column
    sources: list[str]
    targets: list[str]
    cells: list[ColumnCell]
    rows: dict[str, int]  # the number of rows of each column
    by_type: bool = True  # whether the columns are called after their types

    @property
    def broken(self) -> list[ColumnCell]:
        """The cells that break a promise."""
        return [cell for cell in self.cells if cell.broken]


def measure(
    columns: dict[str, Any],
    frameworks: Iterable[str],
    sources: Iterable[str],
    progress: Progress = lambda step, done, total: None,
) -> ColumnMatrix:
    """Convert each column, a chunked Arrow array, from each source to each framework; all must be usable.

    At most 10,000 rows of a column are converted.
    """
    targets, origins = list(frameworks), list(sources)
    columns = {name: column.slice(0, _MOST_ROWS) for name, column in columns.items()}
    rows = [ColumnRow(origin, name, column) for origin in origins for name, column in columns.items()]
    return ColumnMatrix(
        {name: str(column.type) for name, column in columns.items()},
        origins,
        targets,
        fill_cells(rows, targets, progress),
        {name: len(column) for name, column in columns.items()},
    )


class ColumnRow(Row[ColumnCell]):
    """A column in one framework, converted to every target."""

    def __init__(self, origin: str, name: str, column: Any) -> None:
        super().__init__(origin, is_empty=not len(column))
        self.name = name
        self.expected: Any = column
        self.type: str = str(column.type)

    def new_cell(self, target: str) -> ColumnCell:
        return ColumnCell(source=self.origin, target=target, column=self.name, type=self.type)

    def make_source(self) -> list[str]:
        table = table_of_column(self.expected)
        # With the default copy=None: some frameworks alias Arrow's own memory, and users' tables do.
        origin = FrameworkName(self.origin)
        source = zerocopy.convert(table, to=origin)
        plan = zerocopy.explain(table, origin)
        column = column_of(source)
        allow_type_change = bool(plan.warnings or plan_reasons(plan)) or changes_type(source)
        differences = column_differences(self.expected, column, allow_type_change)
        if not differences:
            table = describe(source)
            arrow_field = table.columns[0].field if isinstance(table, Table) else None
            self.source: Any = source
            self.expected = column
            self.type = str(column.type if arrow_field is None else arrow_field)
        return differences

    def reason(self, error: ZeroCopyError) -> Reason:
        # The only column's reason, without the column's label.
        return error.columns.get(LABEL, error.reason)

    def refuse(self, cell: ColumnCell, reason: Reason) -> None:
        cell.refusals.append(reason)

    def check(self, cell: ColumnCell) -> None:
        before = block_bounds(self.source)
        refusal = self.check_options(cell, {}).refusal
        if refusal is not None:
            self.refuse(cell, self.reason(refusal))
            self._check_with_options(cell)
        after = column_differences(self.expected, column_of(self.source), False)
        cell.broken += [f"the source afterwards: {text}" for text in after]
        if block_bounds(self.source) != before:
            cell.broken.append("the conversion moved the source in memory")

    def _check_with_options(self, cell: ColumnCell) -> None:
        """Try the options with which columns of types that tensors lack become tensors."""
        for options in () if registry.by_name(cell.target).tables else _OPTIONS:
            refusal = self.check_options(cell, options).refusal
            if refusal is None:
                cell.outcome, cell.options = "encoded" if "encode" in options else "masked", options
                del cell.refusals[1:]
                return
            self.refuse(cell, self.reason(refusal))
        cell.refusals = list(dict.fromkeys(cell.refusals))

    def differences(self, result: Any, plan: zerocopy.Plan, options: dict[str, Any]) -> list[str]:
        if options.keys() - {"copy"} and not registry.by_name(plan.target).tables:
            return row_differences(tensor_rows(self.expected), to_pylist(result[LABEL]))
        # A reason without a remedy is a requested copy, which keeps the type.
        changed = plan.warnings or any(reason.remedy for reason in plan_reasons(plan))
        allow_type_change = bool(changed) or changes_type(result)
        return column_differences(self.expected, column_of(result), allow_type_change)


# -- comparing Arrow columns ------------------------------------------------------------


def table_of_column(column: Any) -> Any:
    """Return a ``pyarrow.Table`` of one column, called `LABEL`."""
    return registry.by_name(_HUB).module().table({LABEL: column})


def column_of(obj: Any) -> Any:
    """Return the one column of any table, as ``pyarrow.ChunkedArray``; raise ValueError for other objects."""
    back = zerocopy.convert(obj, to=_HUB)
    labels = getattr(back, "column_names", None)
    if labels != [LABEL]:
        text = type(back).__name__ if labels is None else f"table with the columns {', '.join(labels)}"
        raise ValueError(f"converted back, it is a {text}")
    return back.column(0)


def changes_type(obj: Any) -> bool:
    """Whether the plan for converting an object to Arrow reports a change or a copy."""
    plan = zerocopy.explain(obj, _HUB)
    return bool(plan.warnings or plan_reasons(plan))


def column_differences(expected: Any, actual: Any, allow_type_change: bool) -> list[str]:
    """Return how two ``pyarrow.ChunkedArray`` differ; in type too, unless a plan reports the change."""
    if len(actual) != len(expected):
        return [f"it has {len(actual):,} rows, not {len(expected):,}"]
    differences = []
    if type_family(actual.type) != type_family(expected.type) and not allow_type_change:
        differences.append(f"the type is {actual.type}, not {expected.type}, and the plan does not report it")
    ours, theirs = _storage(expected), _storage(actual)
    if ours.type != theirs.type:
        theirs = _cast(theirs, ours.type)
    if ours.type == theirs.type and ours.equals(theirs):
        return differences
    return differences + row_differences(ours.to_pylist(), theirs.to_pylist())


def row_differences(ours: list[Any], theirs: list[Any]) -> list[str]:
    """Return the number of rows that differ, if any; NaN equals NaN."""
    if len(ours) != len(theirs):
        return [f"it has {len(theirs):,} rows, not {len(ours):,}"]
    count = sum(a != b and repr(a) != repr(b) for a, b in zip(ours, theirs, strict=True))
    return [f"{count:,} of {len(ours):,} values differ"] if count else []


def tensor_rows(column: Any) -> list[Any]:
    """Return a column's rows as tensors represent them: integers for dates and times."""
    pa = registry.by_name(_HUB).module()
    kind, types = column.type, pa.types
    if hasattr(kind, "storage_type"):
        column = _storage(column)
    elif types.is_temporal(kind) and not types.is_interval(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif types.is_fixed_size_binary(kind):
        return [None if row is None else list(row) for row in column.to_pylist()]
    return list(column.to_pylist())


def type_family(kind: Any) -> str:
    """Return a type's name without details that do not affect values: widths of offsets and codes."""
    name = str(kind)
    if hasattr(kind, "extension_name"):
        return "bool" if kind.extension_name == "arrow.bool8" else type_family(kind.storage_type)
    if name.startswith("dictionary"):
        return f"dictionary<{type_family(kind.value_type)}>"
    if name.startswith("struct"):
        return f"struct<{', '.join(f'{f.name}: {type_family(f.type)}' for f in kind)}>"
    if name.startswith("fixed_size_list"):
        return f"fixed_size_list<{type_family(kind.value_type)}>[{kind.list_size}]"
    if name.startswith(("list", "large_list")):
        return f"list<{type_family(kind.value_type)}>"
    return name.removeprefix("large_").removesuffix("_view")


def _storage(column: Any) -> Any:
    """Return a column's storage; floats as their bits, so that NaN equals NaN."""
    pa = registry.by_name(_HUB).module()
    kind, chunks = column.type, column.chunks
    if hasattr(kind, "extension_name"):
        is_bool = kind.extension_name == "arrow.bool8"
        kind, chunks = kind.storage_type, [chunk.storage for chunk in chunks]
        if is_bool:
            kind, chunks = pa.bool_(), [chunk.cast(pa.bool_()) for chunk in chunks]
    if pa.types.is_floating(kind):
        bits = getattr(pa, f"int{kind.bit_width}")()
        kind, chunks = bits, [chunk.view(bits) for chunk in chunks]
    return pa.chunked_array(chunks, type=kind)


def _cast(column: Any, kind: Any) -> Any:
    """Return a column in another type, or unchanged if Arrow cannot cast it."""
    pa = registry.by_name(_HUB).module()
    if pa.types.is_interval(column.type) and pa.types.is_duration(kind):
        rows = [None if row is None else _duration(row) for row in column.to_pylist()]
        return column if False in rows else pa.chunked_array([pa.array(rows, kind)])
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return column


def _duration(interval: Any) -> timedelta | bool:
    """Return an interval as a duration; False if it has months."""
    months, days, nanoseconds = interval
    return False if months else timedelta(days, microseconds=nanoseconds / 1000)
