"""One row of the matrix: a source, converted to every target. Arrays and columns share this skeleton."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import zerocopy
from zerocopy.cli.matrix import checks
from zerocopy.cli.matrix.cell import Cell
from zerocopy.cli.matrix.checks import Sharing, first_line
from zerocopy.errors import CopyRequiredError, Reason, ZeroCopyError
from zerocopy.framework import FrameworkName
from zerocopy.protocols.exporter_errors import is_error

C = TypeVar("C", bound=Cell)

#: Called with the current step, the number of finished cells and the number of all cells.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row has no source: the outcome of all its cells."""

    outcome: str
    reasons: Sequence[Reason] = ()
    broken: Sequence[str] = ()


class Attempt(NamedTuple):
    """One call of ``convert``: its result or its refusal, and how it shares the source's memory."""

    result: Any
    sharing: Sharing
    measured: bool  # False for a query: `sharing` is then what the plan reports
    plan: zerocopy.Plan
    refusal: ZeroCopyError | None = None


class Row(ABC, Generic[C]):
    """A source of the framework `origin`, converted to every target."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.source: Any = None

    @abstractmethod
    def make_source(self) -> list[str]:
        """Set `source`; return how it differs from the data."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the data have no values, so that nothing can be shared or copied."""

    @abstractmethod
    def new_cell(self, target: str) -> C:
        """Return an empty cell."""

    @abstractmethod
    def check(self, cell: C) -> None:
        """Convert the source to the cell's target and check each promise."""

    @abstractmethod
    def differences(self, result: Any, plan: zerocopy.Plan, options: dict[str, Any]) -> list[str]:
        """Return how a result differs from the data."""

    def reason(self, error: ZeroCopyError) -> Reason:
        """Return the reason of a refusal."""
        return error.reason

    def give_up(self, cell: C, failure: Failure) -> None:
        """Record in a cell that the row has no source."""
        cell.outcome = failure.outcome
        cell.reasons, cell.broken = list(failure.reasons), list(failure.broken)

    def prepare(self) -> Failure | None:
        """Make the source; return why there is none."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # reported where the framework is the target
                differences = self.make_source()
        except ZeroCopyError as error:
            return Failure("no source", [self.reason(error)])
        except MemoryError:
            raise
        except BaseException as error:  # the matrix exists to report such exceptions
            if not is_error(error):
                raise
            differences = [checks.describe_exception(error)]
        if not differences:
            return None
        return Failure("broken", broken=[f"making the source: {text}" for text in differences])

    def fill(self, cell: C) -> None:
        """Fill a cell; every exception except ``MemoryError`` is a broken promise."""
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.check(cell)
            # A deprecation is the business of the framework's own developers.
            issued = (
                f"{w.category.__name__}: {first_line(str(w.message))}"
                for w in caught
                if not issubclass(w.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning))
            )
            cell.warnings = list(dict.fromkeys([*cell.warnings, *issued]))
        except MemoryError:
            raise
        except BaseException as error:  # the matrix exists to report such exceptions
            if not is_error(error):
                raise
            cell.broken.append(checks.describe_exception(error))
        cell.broken = list(dict.fromkeys(cell.broken))
        if cell.broken:
            cell.outcome = "broken"

    def check_options(self, cell: C, options: dict[str, Any]) -> Attempt:
        """Convert with some options, twice and with both values of ``copy``; record the outcome."""
        first = self._convert(cell, options)
        if first.refusal is None:
            whole, plan = first.sharing.whole, first.plan
            cell.outcome = "zero-copy" if whole else "empty" if self.is_empty else "copy"
            cell.zero_copy, cell.protocol, cell.copied_bytes = whole, plan.protocol, plan.copied_bytes
            cell.reasons = [] if whole else plan_reasons(plan)
            cell.warnings = list(plan.warnings)
            cell.proof = ["shares_memory"] if first.measured else []
            # Only the second call for a type takes the fast path.
            second = self._convert(cell, options)
            if second.sharing.whole != whole or second.refusal is not None:
                cell.broken.append("the second call differs from the first")
        else:
            cell.outcome = "refused"
        self._check_copy(cell, options, first)
        return first

    def _check_copy(self, cell: C, options: dict[str, Any], default: Attempt) -> None:
        """Check that ``copy=False`` aliases or raises, and that ``copy=True`` never aliases."""
        never = self._convert(cell, {**options, "copy": False})
        if never.refusal is None and not never.sharing.whole and not self.is_empty:
            cell.broken.append("copy=False copies")
        if default.refusal is None and never.refusal is not None:
            error = never.refusal
            if default.sharing.whole:
                cell.broken.append(f"copy=False refuses what the default aliases: {first_line(error.why)}")
            elif not isinstance(error, CopyRequiredError):
                cell.broken.append(f"copy=False raises {type(error).__name__} instead of CopyRequiredError")
        always = self._convert(cell, {**options, "copy": True})
        if always.sharing.some:
            cell.broken.append("copy=True aliases")
        if default.refusal is None and always.refusal is not None:
            why = first_line(always.refusal.why)
            cell.broken.append(f"copy=True refuses what the default converts: {why}")

    def _convert(self, cell: C, options: dict[str, Any]) -> Attempt:
        """Call ``explain`` and ``convert`` once; record where they disagree."""
        call = "".join(f" with {name}={value!r}" for name, value in options.items())
        target = FrameworkName(cell.target)
        plan = zerocopy.explain(self.source, target, **options)
        try:
            result = zerocopy.convert(self.source, target, **options)
        except ZeroCopyError as error:
            # The plan of a query does not know its values: nulls, dates out of range.
            if plan.possible and checks.block_bounds(self.source) is not None:
                cell.broken.append(
                    f"explain{call} reports no refusal, but convert refuses:   {first_line(error.why)}"
                )
            return Attempt(None, Sharing(False, False, False), False, plan, error)
        if not plan.possible:
            cell.broken.append(f"explain{call} reports a refusal, but convert succeeds")
        measured = checks.sharing(self.source, result)
        shares = measured or Sharing(plan.zero_copy, plan.zero_copy, False)
        if shares.whole != plan.zero_copy:
            extent = "is all" if shares.whole else "is not all"
            cell.broken.append(
                f"explain{call} reports zero_copy={plan.zero_copy}, "
                f"and the result {extent} in the source's memory"
            )
        for name in dict.fromkeys(checks.foreign_types(result, cell.target)):
            cell.broken.append(f"the result{call} is a {name}, which is not a type of {cell.target}")
        cell.broken += [f"the result{call}: {text}" for text in self.differences(result, plan, options)]
        return Attempt(result, shares, measured is not None, plan)


def fill_cells(rows: Sequence[Row[C]], targets: Sequence[str], progress: Progress) -> list[C]:
    """Return the cells of all rows, by row and target."""
    cells: list[C] = []
    for row in rows:
        failure = row.prepare()
        for target in targets:
            progress(f"{row.origin} -> {target}", len(cells), len(rows) * len(targets))
            cell = row.new_cell(target)
            if failure is None:
                row.fill(cell)
            else:
                row.give_up(cell, failure)
            cells.append(cell)
        row.source = None
    return cells


def plan_reasons(plan: zerocopy.Plan) -> list[Reason]:
    """Return why a plan copies or refuses, with those of its columns, each reason once."""
    of_leaves = (reason for leaf in plan.leaves.values() for reason in leaf.reasons)
    return list(dict.fromkeys([*plan.reasons, *of_leaves]))
