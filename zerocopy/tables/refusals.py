"""Errors about columns: each column named, whichever of them cannot go."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from zerocopy.errors import (
    CopyRequiredError,
    LossyConversionError,
    Reason,
    UnsupportedConversionError,
    ZeroCopyError,
)
from zerocopy.tables.column import Column, Table
from zerocopy.tables.summary import paths

T = TypeVar("T")

#: How a reason begins that is said of a column, and not about something else.
_SAID_OF_IT = ("is", "has", "holds", "lies", "was", "cannot", "its")


def each(table: Table, ask: Callable[[Hashable, str, Column], T]) -> dict[str, T]:
    """Return ``ask(label, path, column)`` by path; one error for all columns that it raises for."""
    found: dict[str, T] = {}
    refused: dict[Hashable, ZeroCopyError] = {}
    for path, label, column in zip(paths(table), table.labels, table.columns, strict=True):
        try:
            found[path] = ask(label, path, column)
        except ZeroCopyError as error:
            if table.single:
                if _joined(error.why).startswith(" "):
                    error.why = f"it {error.why}"
                raise
            refused[label] = error
    if refused:
        raise together(refused)
    return found


def together(refused: dict[Hashable, ZeroCopyError]) -> ZeroCopyError:
    """Return one error for several columns: each named, each remedy once."""
    said = "; ".join(f"column {label!r}{_joined(error.why)}" for label, error in refused.items())
    remedies = dict.fromkeys(error.remedy for error in refused.values() if error.remedy)
    errors = list(refused.values())
    lossy = all(isinstance(error, LossyConversionError) for error in errors)
    if len({type(error) for error in errors}) == 1:
        kind: type[ZeroCopyError] = type(errors[0])
    else:
        kind = LossyConversionError if lossy else UnsupportedConversionError
    whole = kind("", said, "; or ".join(remedies))
    whole.columns = {label: error.reason for label, error in refused.items()}
    whole.__cause__ = errors[0].__cause__
    return whole


def _joined(why: str) -> str:
    return f" {why}" if why.partition(" ")[0] in _SAID_OF_IT else f": {why}"


def required(reasons: dict[str, list[Reason]]) -> CopyRequiredError:
    """Return the error of ``copy=False`` where columns, by their paths, have reasons to be copied."""
    why = {path: "; ".join(r.why for r in found) for path, found in reasons.items() if found}
    remedies = dict.fromkeys(r.remedy for found in reasons.values() for r in found if r.remedy)
    said = "; ".join(f"{path}: {text}" if path else text for path, text in why.items())
    return CopyRequiredError(
        "",
        f"copy=False, but a copy is needed: {said}",
        "; or ".join([*remedies, "allow the copy with copy=None"]),
    )
