"""One source, converted to every framework: each promise is checked without relying on the plan.

`Row` is the part that arrays and columns share.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Generic, NamedTuple, TypeVar

import zerocopy
from zerocopy import registry
from zerocopy._engine.memory import blocks
from zerocopy.errors import CopyRequiredError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import FrameworkName
from zerocopy.pairs.cells import Cell
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.strided_view import overlap
from zerocopy.tables.result import result_leaves

C = TypeVar("C", bound=Cell)

#: Called with the current step, the number of finished cells and the number of all cells.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Sharing:
    """How much of a result is in its source's memory."""

    some: bool  # at least one byte
    whole: bool  # at least one byte of each block; False without blocks
    same_start: bool  # both begin at the same address


class Attempt(NamedTuple):
    """One call of ``convert``: its result or its refusal, and how it shares the source's memory."""

    result: Any
    sharing: Sharing
    measured: bool  # False for a query: `sharing` is then that of the plan
    plan: zerocopy.Plan
    refusal: ZeroCopyError | None = None


def sharing(source: Any, result: Any) -> Sharing | None:
    """Compare the memory of two objects; return None for a query, which has none before it runs.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(4)
    >>> sharing(x, x[1:])
    Sharing(some=True, whole=True, same_start=False)
    """
    leaves = [leaf for _, leaf in result_leaves(source)]
    if list(map(id, leaves)) == [id(leaf) for _, leaf in result_leaves(result)]:
        itself = any(zerocopy.shares_memory(leaf, leaf) for leaf in leaves)
        return Sharing(itself, itself, True)
    try:
        ours, theirs = ([view for view in blocks(obj) if view.size] for obj in (source, result))
    except UnsupportedConversionError:
        return None
    hits = [any(zerocopy.shares_memory(a, b) for a in ours) for b in theirs]
    starts = [min((view.bounds[0] for view in views), default=0) for views in (ours, theirs)]
    return Sharing(any(hits), bool(hits) and all(hits), starts[0] == starts[1])


def shared_copies(source: Any, *results: Any) -> bool:
    """Return whether several results have memory in common that is not the source's.

    A framework may keep a copy and return it again: a write to one result then changes the other.

    Examples
    --------
    >>> import numpy as np
    >>> x, kept = np.arange(4), np.arange(4)
    >>> shared_copies(x, kept, kept[1:]), shared_copies(x, x, x[1:]), shared_copies(x, kept, x)
    (True, False, False)
    """
    try:
        ours, *parts = ([view for view in blocks(obj) if view.size] for obj in (source, *results))
    except UnsupportedConversionError:
        return False  # a query
    new = [[view for view in views if not any(map(partial(overlap, view), ours))] for views in parts]
    pairs = combinations(new, 2)
    return any(overlap(one, other) for first, second in pairs for one in first for other in second)


def block_bounds(obj: Any) -> list[tuple[int, int]] | None:
    """Return the bounds of an object's blocks of memory; None for a query."""
    try:
        return [view.bounds for view in blocks(obj) if view.size]
    except UnsupportedConversionError:
        return None


def plan_reasons(plan: zerocopy.Plan) -> list[Reason]:
    """Return why a plan copies or refuses, with those of its columns, each reason once."""
    of_leaves = (reason for leaf in plan.leaves.values() for reason in leaf.reasons)
    return list(dict.fromkeys([*plan.reasons, *of_leaves]))


def first_line(text: str) -> str:
    """Return the first line of a message."""
    return (text.strip().splitlines() or ["no message"])[0]


def _foreign_types(result: Any, target: str) -> Iterator[str]:
    """Yield the types in a result that are not the target's."""
    expected = registry.by_name(target).name
    for _, leaf in result_leaves(result):
        owner = registry.by_type(type(leaf))
        if owner is None or owner.name != expected:
            yield type(leaf).__name__


def _describe_exception(error: BaseException) -> str:
    """Return one line about an exception that a conversion must not raise."""
    expected = "" if isinstance(error, ZeroCopyError) else " instead of a ZeroCopyError"
    return f"raises {type(error).__name__}{expected}: {first_line(str(error))}"


class Row(ABC, Generic[C]):
    """A source of the framework `origin`, converted to every target; empty data share and copy nothing."""

    def __init__(self, origin: str, is_empty: bool) -> None:
        self.origin = origin
        self.is_empty = is_empty
        self.source: Any = None

    @abstractmethod
    def make_source(self) -> list[str]:
        """Set `source`; return how it differs from the data."""

    @abstractmethod
    def new_cell(self, target: str) -> C:
        """Return an empty cell."""

    @abstractmethod
    def check(self, cell: C) -> None:
        """Convert the source to the cell's target and check each promise."""

    @abstractmethod
    def differences(self, result: Any, plan: zerocopy.Plan, options: dict[str, Any]) -> list[str]:
        """Return how a result differs from the data."""

    @abstractmethod
    def refuse(self, cell: C, reason: Reason) -> None:
        """Record in a cell why its conversion, or the source, is refused."""

    def reason(self, error: ZeroCopyError) -> Reason:
        """Return the reason of a refusal."""
        return error.reason

    def fill(self, targets: Sequence[str]) -> Iterator[C]:
        """Make the source, and yield the cell of each target."""
        refusal, differences = self._prepare()
        for target in targets:
            cell = self.new_cell(target)
            if refusal is not None:
                cell.outcome = "no source"
                self.refuse(cell, refusal)
            elif differences:
                cell.broken = [f"making the source: {text}" for text in differences]
            else:
                self._fill_cell(cell)
            yield cell
        self.source = None

    def _prepare(self) -> tuple[Reason | None, list[str]]:
        """Make the source; return why it is refused, or how it differs from the data."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # reported where the framework is the target
                return None, self.make_source()
        except ZeroCopyError as error:
            return self.reason(error), []
        except MemoryError:
            raise
        except BaseException as error:  # the matrix exists to report such exceptions
            if not is_error(error):
                raise
            return None, [_describe_exception(error)]

    def _fill_cell(self, cell: C) -> None:
        """Fill a cell; every exception except ``MemoryError`` is a broken promise."""
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.check(cell)
            # A deprecation is the business of the framework's own developers.
            ignored = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
            issued = [w for w in caught if not issubclass(w.category, ignored)]
            texts = [f"{w.category.__name__}: {first_line(str(w.message))}" for w in issued]
            cell.warnings = list(dict.fromkeys([*cell.warnings, *texts]))
        except MemoryError:
            raise
        except BaseException as error:  # the matrix exists to report such exceptions
            if not is_error(error):
                raise
            cell.broken.append(_describe_exception(error))
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
            elif not whole and shared_copies(self.source, first.result, second.result):
                cell.broken.append("two calls copy, and return the same memory")
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
        if always.refusal is None:
            again = zerocopy.convert(self.source, FrameworkName(cell.target), **options, copy=True)
            if shared_copies(self.source, default.result, always.result, again):
                cell.broken.append("calls with copy=True return the same memory")

    def _convert(self, cell: C, options: dict[str, Any]) -> Attempt:
        """Call ``explain`` and ``convert`` once; record where they disagree."""
        call = "".join(f" with {name}={value!r}" for name, value in options.items())
        target = FrameworkName(cell.target)
        plan = zerocopy.explain(self.source, target, **options)
        try:
            result = zerocopy.convert(self.source, target, **options)
        except ZeroCopyError as error:
            # The plan of a query does not know its values: nulls, dates out of range.
            if plan.possible and block_bounds(self.source) is not None:
                why = first_line(error.why)
                cell.broken.append(f"explain{call} reports no refusal, but convert refuses:   {why}")
            return Attempt(None, Sharing(False, False, False), False, plan, error)
        if not plan.possible:
            cell.broken.append(f"explain{call} reports a refusal, but convert succeeds")
        measured = sharing(self.source, result)
        shares = measured or Sharing(plan.zero_copy, plan.zero_copy, False)
        if shares.whole != plan.zero_copy:
            extent = "is all" if shares.whole else "is not all"
            text = f"explain{call} reports zero_copy={plan.zero_copy}"
            cell.broken.append(f"{text}, and the result {extent} in the source's memory")
        for name in dict.fromkeys(_foreign_types(result, cell.target)):
            cell.broken.append(f"the result{call} is a {name}, which is not a type of {cell.target}")
        cell.broken += [f"the result{call}: {text}" for text in self.differences(result, plan, options)]
        return Attempt(result, shares, measured is not None, plan)


def fill_cells(rows: Sequence[Row[C]], targets: Sequence[str], progress: Progress) -> list[C]:
    """Return the cells of all rows, by row and target."""
    cells: list[C] = []
    for row in rows:
        for cell in row.fill(targets):
            progress(f"{row.origin} -> {cell.target}", len(cells), len(rows) * len(targets))
            cells.append(cell)
    return cells
