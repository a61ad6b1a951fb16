"""Columns of every type, converted between frameworks.

A source is a table of one column, converted from an Arrow table; for a framework without tables it
is a dict of one tensor. A conversion that is refused by default is tried again with options.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import zerocopy
from zerocopy import registry
from zerocopy.describe import describe
from zerocopy.errors import Reason, ZeroCopyError
from zerocopy.framework import FrameworkName
from zerocopy.pairs import comparison
from zerocopy.pairs.cells import TYPE, Cell, Key
from zerocopy.pairs.conversion import Progress, Row, block_bounds, fill_cells, plan_reasons
from zerocopy.tables.column import Table
from zerocopy.tables.result import to_pylist

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
    named: bool = True  # whether the columns are called after their types

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
    """Convert each column, a chunked Arrow array, from each source to each framework; all must be usable."""
    targets, origins = list(frameworks), list(sources)
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
        super().__init__(origin)
        self.name, self.expected, self.type = name, column, str(column.type)

    @property
    def is_empty(self) -> bool:
        return not len(self.expected)

    def new_cell(self, target: str) -> ColumnCell:
        return ColumnCell(source=self.origin, target=target, column=self.name, type=self.type)

    def make_source(self) -> list[str]:
        table = comparison.table_of_column(self.expected)
        # With the default copy=None: some frameworks alias Arrow's own memory, and users' tables do.
        origin = FrameworkName(self.origin)
        source = zerocopy.convert(table, to=origin)
        plan = zerocopy.explain(table, origin)
        column = comparison.column_of(source)
        allow_type_change = bool(plan.warnings or plan_reasons(plan)) or comparison.changes_type(source)
        differences = comparison.column_differences(self.expected, column, allow_type_change)
        if not differences:
            table = describe(source)
            arrow_field = table.columns[0].field if isinstance(table, Table) else None
            self.source, self.expected = source, column
            self.type = str(column.type if arrow_field is None else arrow_field)
        return differences

    def reason(self, error: ZeroCopyError) -> Reason:
        # The only column's reason, without the column's label.
        return error.columns.get(comparison.LABEL, error.reason)

    def refuse(self, cell: ColumnCell, reason: Reason) -> None:
        cell.refusals.append(reason)

    def check(self, cell: ColumnCell) -> None:
        before = block_bounds(self.source)
        refusal = self.check_options(cell, {}).refusal
        if refusal is not None:
            self.refuse(cell, self.reason(refusal))
            self._check_with_options(cell)
        after = comparison.column_differences(self.expected, comparison.column_of(self.source), False)
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
            return comparison.row_differences(
                comparison.tensor_rows(self.expected), to_pylist(result[comparison.LABEL])
            )
        # A reason without a remedy is a requested copy, which keeps the type.
        changed = plan.warnings or any(reason.remedy for reason in plan_reasons(plan))
        allow_type_change = bool(changed) or comparison.changes_type(result)
        return comparison.column_differences(self.expected, comparison.column_of(result), allow_type_change)
