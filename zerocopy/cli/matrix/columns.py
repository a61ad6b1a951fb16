"""Every pair of frameworks, tried on a column of each type: what aliases, copies, is refused.

A source is a table of one column, made by :func:`zerocopy.convert` of an Arrow one; of
a framework without tables it is a dict of one tensor. What tensors lack is tried again
with the options that its remedies name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import zerocopy
from zerocopy import registry
from zerocopy.cli.matrix.arrays import NOTHING, Progress, plan_reasons
from zerocopy.cli.matrix.checks import Sharing, blocks_of, first_line, foreign, sharing, strangers
from zerocopy.cli.matrix.samples import LABEL, column_of, compare, decoded, made_of, stored, told, unlike
from zerocopy.describe import describe
from zerocopy.errors import CopyRequiredError, Reason, ZeroCopyError
from zerocopy.tables.column import Table

#: What a refusal is tried again with, in that order.
_ASKED: tuple[dict[str, Any], ...] = (
    {"encode": True},
    {"nulls": "mask"},
    {"encode": True, "nulls": "mask"},
)


@dataclass(slots=True)
class ColumnCell:
    """What came of converting a column of one type from one framework to another.

    Attributes
    ----------
    source, target, column : str
        The frameworks and the column's name.
    type : str
        Its Arrow type, as the source's framework has it and messages call it.
    outcome : str
        ``"zero-copy"`` or ``"copy"``; ``"encoded"`` or ``"masked"`` where the conversion is
        refused as it is and works with the `options`; ``"refused"``; ``"no source"``: the
        source's framework cannot hold the column; ``"broken"``.
    options : dict
        With which it works: ``{"encode": True}``, ``{"nulls": "mask"}``, both, or none needed.
    zero_copy : bool
        Whether all of the result lies in the source's memory; of a result with `options` too.
    proof : list of str
        ``"shares_memory"``, or nothing for a query, whose memory nobody sees.
    protocol, copied_bytes, warnings
        From the plan; `warnings` has those that Python issued too.
    refusals : list of Reason
        Why it is refused as it is, with each of the options that do not help either.
    reasons : list of Reason
        Why it copies.
    broken : list of str
        The promises that do not hold, in words.
    """

    source: str
    target: str
    column: str
    type: str
    outcome: str = "broken"
    options: dict[str, Any] = field(default_factory=dict)
    zero_copy: bool = False
    proof: list[str] = field(default_factory=list)
    protocol: str = ""
    copied_bytes: int = 0
    refusals: list[Reason] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ColumnMatrix:
    """The cells of columns.

    Attributes
    ----------
    types : dict of str to str
        The Arrow type of each column.
    sources, targets : list of str
    cells : list of ColumnCell
        By source, by column, by target.
    rows : dict of str to int
        How many rows of each column were tried.
    named : bool
        Whether the columns' names are those of their types.
    """

    types: dict[str, str]
    sources: list[str]
    targets: list[str]
    cells: list[ColumnCell]
    rows: dict[str, int]
    named: bool = True

    @property
    def broken(self) -> list[ColumnCell]:
        """The cells that break a promise."""
        return [cell for cell in self.cells if cell.broken]


def measure(
    columns: dict[str, Any],
    frameworks: Iterable[str],
    sources: Iterable[str],
    progress: Progress = lambda what, done, total: None,
) -> ColumnMatrix:
    """Convert each column from each source to each framework.

    Parameters
    ----------
    columns : dict of str to chunked Arrow arrays
    frameworks, sources : iterable of str
        The targets and the sources, all of them usable: see :class:`zerocopy.cli.matrix.arrays.Matrix`.
    progress : callable, optional
        Told what is being tried, how many cells are done and how many there are.
    """
    targets, origins = list(frameworks), list(sources)
    cells: list[ColumnCell] = []
    total = len(columns) * len(targets) * len(origins)
    for origin in origins:
        for name, column in columns.items():
            source, expected, spoiled = _source(column, origin)
            kind = str(expected.type) if spoiled is not None else _type(source, expected)
            for target in targets:
                progress(f"{origin} -> {target}", len(cells), total)
                cell = ColumnCell(origin, target, name, kind)
                if spoiled is None:
                    _fill(cell, expected, source)
                else:
                    cell.outcome, cell.refusals, cell.broken = spoiled
                cells.append(cell)
    types = {name: str(column.type) for name, column in columns.items()}
    return ColumnMatrix(types, origins, targets, cells, {name: len(c) for name, c in columns.items()})


def _source(column: Any, origin: str) -> tuple[Any, Any, tuple[str, list[Reason], list[str]] | None]:
    """Return a framework's table of a column, the column that it gives back; or what the row says."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again where the framework is the target
            table = made_of(column)
            # As it comes, in Arrow's own memory where that can be: a copy need not lie as well.
            source = zerocopy.convert(table, to=origin)
            plan = zerocopy.explain(table, origin)
            found = column_of(source)
            broken = compare(column, found, bool(plan.warnings or plan_reasons(plan)) or told(source))
    except ZeroCopyError as error:
        return None, column, ("no source", [_reason(error)], [])
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - to find and report such exceptions is what this is for
        return None, column, ("broken", [], [f"making the source: {foreign(error)}"])
    if broken:
        return None, column, ("broken", [], [f"making the source: {what}" for what in broken])
    return source, found, None


def _type(source: Any, expected: Any) -> str:
    """Return the type of a source's column; of a tensor the one that it becomes."""
    table = describe(source)
    of = table.columns[0].field if isinstance(table, Table) else None
    return str(expected.type if of is None else of)


def _fill(cell: ColumnCell, expected: Any, source: Any) -> None:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _check(cell, expected, source)
        said = (f"{w.category.__name__}: {first_line(str(w.message))}" for w in caught)
        cell.warnings = list(dict.fromkeys([*cell.warnings, *said]))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - to find and report such exceptions is what this is for
        cell.broken.append(foreign(error))
    cell.broken = list(dict.fromkeys(cell.broken))
    if cell.broken:
        cell.outcome = "broken"


def _check(cell: ColumnCell, expected: Any, source: Any) -> None:
    """Try a pair in every way that the promises speak of."""
    before = blocks_of(source)
    refusal = _convert(cell, expected, source, {})
    if refusal is None:
        cell.outcome = "zero-copy" if cell.zero_copy else "copy"
    else:
        cell.outcome, cell.refusals = "refused", [_reason(refusal)]
        for options in () if registry.by_name(cell.target).tables else _ASKED:
            refusal = _convert(cell, expected, source, options)
            if refusal is None:
                cell.outcome, cell.options = "encoded" if "encode" in options else "masked", options
                break
            cell.refusals.append(_reason(refusal))
        cell.refusals = list(dict.fromkeys(cell.refusals[: 1 if cell.options else None]))
    cell.broken += [f"the source afterwards: {what}" for what in compare(expected, column_of(source), False)]
    if blocks_of(source) != before:
        cell.broken.append("the source lies elsewhere afterwards")


def _convert(cell: ColumnCell, expected: Any, source: Any, options: dict[str, Any]) -> ZeroCopyError | None:
    """Try one set of options; note what came of it, unless it is refused."""
    plan = zerocopy.explain(source, cell.target, **options)
    shares, refusal = _try(cell, expected, source, options)
    if refusal is None:
        cell.zero_copy, cell.protocol, cell.copied_bytes = shares.whole, plan.protocol, plan.copied_bytes
        cell.reasons = [] if shares.whole else [_reason(r) for r in plan_reasons(plan)]
        cell.warnings = [_bare(text) for text in plan.warnings]
        # Once more: only the second call for a type takes the fast way.
        again = _try(cell, expected, source, options)
        if again[0].whole != shares.whole or again[1] is not None:
            cell.broken.append("the second call did something else than the first")
    kept, error = _try(cell, expected, source, options | {"copy": False})
    if error is None and not kept.whole:
        cell.broken.append("copy=False copies")
    if refusal is None and error is not None:
        if shares.whole:
            cell.broken.append(f"copy=False refuses what the default aliases: {first_line(error.why)}")
        elif not isinstance(error, CopyRequiredError):
            cell.broken.append(f"copy=False raised {type(error).__name__}, no CopyRequiredError")
    kept, error = _try(cell, expected, source, options | {"copy": True})
    if kept.some:
        cell.broken.append("copy=True aliases")
    if refusal is None and error is not None:
        cell.broken.append(f"copy=True refuses what the default converts: {first_line(error.why)}")
    return refusal


def _try(
    cell: ColumnCell, expected: Any, source: Any, options: dict[str, Any]
) -> tuple[Sharing, ZeroCopyError | None]:
    """Convert once; return how the result shares the source's memory, and the refusal."""
    said = "".join(f" with {k}={v!r}" for k, v in options.items())
    plan = zerocopy.explain(source, cell.target, **options)
    try:
        result = zerocopy.convert(source, cell.target, **options)
    except ZeroCopyError as error:
        # What is in a query, its plan cannot know: nulls, dates that are none.
        if plan.possible and blocks_of(source) is not None:
            cell.broken.append(
                f"explain{said} says that it works, and convert refuses: {first_line(error.why)}"
            )
        return NOTHING, error
    if not plan.possible:
        cell.broken.append(f"explain{said} says that it is refused, and convert returns")
    shares = sharing(source, result)
    if shares is None:  # a query: what its plan says stands, and the cell has no proof
        shares = Sharing(plan.zero_copy, plan.zero_copy, False)
    else:
        cell.proof = ["shares_memory"]
        if shares.whole != plan.zero_copy:
            what = ("is not all in the source's memory", "is all in the source's memory")[shares.whole]
            cell.broken.append(f"explain{said} says zero_copy={plan.zero_copy}, and the result {what}")
    for name in dict.fromkeys(strangers(result, cell.target)):
        cell.broken.append(f"the result{said} is a {name}, nothing of {cell.target}")
    asked = {name for name in options if name != "copy"}
    if asked and not registry.by_name(cell.target).tables:
        wrong = unlike(stored(expected), decoded(result[LABEL]))
    else:
        changes = bool(plan.warnings) or bool(_lasting(plan)) or told(result)
        wrong = compare(expected, column_of(result), changes)
    cell.broken += [f"the result{said}: {what}" for what in wrong]
    return shares, None


def _lasting(plan: zerocopy.Plan) -> list[Reason]:
    """Return the reasons of a plan that may tell of another type: not that a copy was asked for."""
    return [reason for reason in plan_reasons(plan) if reason.remedy]


def _reason(of: ZeroCopyError | Reason) -> Reason:
    return Reason(_bare(of.why), of.remedy)


def _bare(text: str) -> str:
    """Return a reason without the column that it is about: all of them are called the same."""
    return text.replace(f"column {LABEL!r}: ", "").replace(f"column {LABEL!r} ", "")
