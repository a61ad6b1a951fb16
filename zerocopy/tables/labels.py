"""Labels and paths of a table's columns; the combination of their results, plans and errors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import TYPE_CHECKING, TypeVar

from zerocopy.errors import (
    CopyRequiredError,
    Fix,
    LossyConversionError,
    Reason,
    UnsupportedConversionError,
    ZeroCopyError,
)
from zerocopy.plan import Plan, of_leaves
from zerocopy.tables.column import Column, Table

if TYPE_CHECKING:
    from zerocopy.framework import Framework

#: The fix of columns that share a name.
RENAME = Fix(action="rename-columns")
_NAN = object()
#: At most this many labels are listed in a message.
_LISTED = 5


def key(label: Hashable) -> Hashable:
    """Return a value that is equal for equal labels: NaN is one label, as in data frames."""
    return _NAN if isinstance(label, float) and isnan(label) else label


def duplicates(labels: Iterable[Hashable]) -> list[Hashable]:
    """Return each label that occurs several times, once.

    Examples
    --------
    >>> duplicates(["a", "b", "a", 1, True])
    ['a', 1]
    """
    kept = list(labels)
    if {*map(type, kept)} == {str} and len({*kept}) == len(kept):
        return []  # in a fifth of the time
    places = positions(kept)
    return [kept[group[0]] for group in places.values() if len(group) > 1]


def positions(labels: Iterable[Hashable]) -> dict[Hashable, list[int]]:
    """Return the positions of each label, by its `key`."""
    places: dict[Hashable, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(key(label), []).append(place)
    return places


def listed(labels: Sequence[object]) -> str:
    """Return labels for a message: the first ones, and how many more there are."""
    more = len(labels) - _LISTED
    return ", ".join(map(repr, labels[:_LISTED])) + (f" and {more:,} more" if more > 0 else "")


def text_warnings(name: str, labels: Sequence[Hashable]) -> tuple[str, ...]:
    """Return the warning of a target whose names are strings, if there are other labels."""
    others = [label for label in labels if not isinstance(label, str)]
    verb = "become strings" if len(others) > 1 else "becomes a string"
    return (f"{name}: names are strings, and {listed(others)} {verb}",) if others else ()


# -- plans and errors of all columns -------------------------------------------------------

T = TypeVar("T")


def paths(table: Table) -> list[str]:
    """Return each column's path in a plan; paths are unique, labels need not be."""
    if table.single:
        return [""]
    counts: dict[str, int] = {}
    unique = []
    for label in table.labels:
        path = f"[{label!r}]"
        counts[path] = counts.get(path, 0) + 1
        unique.append(path if counts[path] == 1 else f"{path}#{counts[path]}")
    return unique


def combine_plans(
    table: Table,
    target: Framework,
    leaves: dict[str, Plan],
    run: Callable[[], object],
    warnings: tuple[str, ...],
) -> Plan:
    """Return the plan of a table from the plans of its leaves."""
    texts = [*warnings, *table.warnings, *table.missing_warnings]
    texts += [warning for plan in leaves.values() for warning in plan.warnings]
    made = of_leaves(
        f"{table.name} {table.shape}",
        target.name,
        leaves,
        protocol=next((plan.protocol for plan in leaves.values()), ""),
        steps=("convert each column",),
        warnings=tuple(dict.fromkeys(texts)),
        reasons=next(iter(leaves.values())).reasons if table.single and len(leaves) == 1 else (),
        partial=table.single and any(plan.partial for plan in leaves.values()),
        run=run,
    )
    return replace(made, leaves={}) if table.single and len(leaves) == 1 else made


def run(plan: Plan) -> object:
    """Run a plan that is possible."""
    assert plan.run is not None
    return plan.run()


def map_columns(table: Table, function: Callable[[Hashable, str, Column], T]) -> dict[str, T]:
    """Return ``function(label, path, column)`` by path; raise one error for all columns that it refuses."""
    results: dict[str, T] = {}
    refused: dict[Hashable, ZeroCopyError] = {}
    for path, label, column in zip(paths(table), table.labels, table.columns, strict=True):
        try:
            results[path] = function(label, path, column)
        except ZeroCopyError as error:
            if table.single:
                raise
            refused[label] = error
    if refused:
        raise combine_errors(refused)
    return results


def combine_errors(refused: dict[Hashable, ZeroCopyError]) -> ZeroCopyError:
    """Return one error for several columns, with all labels and obstacles, and empty `refused`."""
    why = "; ".join(_about(f"column {label!r}", error.why) for label, error in refused.items())
    remedies = dict.fromkeys(error.remedy for error in refused.values() if error.remedy)
    errors = list(refused.values())
    lossy = all(isinstance(error, LossyConversionError) for error in errors)
    if len({type(error) for error in errors}) == 1:
        kind: type[ZeroCopyError] = type(errors[0])
    else:
        kind = LossyConversionError if lossy else UnsupportedConversionError
    whole = kind("", why, "; and ".join(remedies), code=errors[0].code)
    whole.columns = {label: error.reason for label, error in refused.items()}
    whole.obstacles = [((label,), _one_reason(error)) for label, error in refused.items()]
    whole.__cause__ = errors[0].__cause__
    refused.clear()  # a local variable of the caller, whose frame the errors' tracebacks hold
    return whole


def _one_reason(error: ZeroCopyError) -> Reason:
    """Return a column's error as one obstacle, whose fixes each remove all of its own obstacles."""
    own = [reason for _, reason in error.obstacles]
    if not own:
        return error.reason
    fixes = [*(own[0].fixes if len(own) == 1 else ()), *error.fixes]
    prose = "; and ".join(dict.fromkeys(reason.remedy for reason in own if not reason.fixes))
    return Reason(error.why, prose, code=error.code, fixes=fixes)


def copy_required(reasons: Mapping[str, Sequence[Reason]], table: Table | None = None) -> CopyRequiredError:
    """Return the error of ``copy=False``; `reasons` holds the reasons for a copy, by path.

    The paths are those of a table's columns, or one for the whole object.
    """
    labels: list[tuple[Hashable, ...]] = [()] * len(reasons)
    if table is not None and not table.single:
        labels = [(label,) for label in table.labels]
    obstacles = [
        (label, reason) for label, part in zip(labels, reasons.values(), strict=True) for reason in part
    ]
    listed = "; ".join(
        _about(f"column {path[1:-1]}" if path else "", "; ".join(r.why for r in part))
        for path, part in reasons.items()
        if part
    )
    fix = Fix(options={"copy": None}, effect="copies")
    remedies = dict.fromkeys(reason.remedy for _, reason in obstacles if reason.remedy)
    error = CopyRequiredError(
        "",
        f"copy=False, but a copy is needed: {listed}",
        "; or ".join([*remedies, str(fix)]),
        code=obstacles[0][1].code,
        fixes=[fix],
    )
    error.obstacles = obstacles
    return error


def _about(subject: str, why: str) -> str:
    """Return a sentence about "it" as one about a subject, which may be empty."""
    if not subject:
        return why
    return f"{subject} {why.removeprefix('it ')}" if why.startswith("it ") else f"{subject}: {why}"
