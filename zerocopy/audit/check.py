"""Checks whether one call of a framework copied where ``convert`` would alias."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy._engine.explain import explain
from zerocopy._engine.memory import blocks, shares_memory
from zerocopy.audit.hook import AuditHook, CopyCall
from zerocopy.framework import hook_of
from zerocopy.plan import Plan
from zerocopy.source import type_name

#: Keywords whose value True means that the caller wants a copy.
_WANTED = ("copy", "writable", "pin_memory")
#: The options of ``convert`` that are compared, in this order.
_OPTIONS: tuple[dict[str, Any], ...] = ({}, {"layout": "matrix"})
#: Dicts with more columns are not checked.
_MOST_COLUMNS = 1000

AVOIDABLE, NEEDED, ALIAS = "avoidable", "needed", "alias"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of the check of one call.

    Attributes
    ----------
    kind : str
        ``"avoidable"``: it copied, and ``convert`` aliases. ``"needed"``: it copied, and ``convert`` would
        copy too, or its result differs. ``"alias"``: it did not copy.
    source : str
        Type of the argument.
    nbytes : int
        Bytes of the result.
    options : str
        Options of ``convert`` in the replacement, such as ``', layout="matrix"'``.
    why : str
        Why a copy is needed.
    """

    kind: str
    source: str
    nbytes: int
    options: str = ""
    why: str = ""


def check(call: CopyCall, source: Any, result: Any, options: dict[str, Any]) -> Verdict | None:
    """Return the verdict on a call; None if its argument is not memory of another framework."""
    if not _is_foreign(source, call.to):
        return None
    name, nbytes = type_name(source), sum(block.nbytes for block in blocks(result))
    if shares_memory(source, result):
        return Verdict(ALIAS, name, nbytes)
    for keyword in _WANTED:
        if options.get(keyword) is True:
            return Verdict(NEEDED, name, nbytes, why=f"the call passes {keyword}=True")
    traits = hook_of(registry.by_name(call.to), AuditHook).traits
    theirs = traits(result)
    why = other_type = ""
    for choice in _OPTIONS:
        plan = explain(source, call.to, **choice)  # type: ignore[arg-type]
        if not plan.zero_copy:
            why = why or _reason(plan)
            continue
        ours = traits(convert(source, call.to, copy=False, **choice))
        if ours == theirs:
            return Verdict(AVOIDABLE, name, nbytes, "".join(f', {k}="{v}"' for k, v in choice.items()))
        if ours["type"] == theirs["type"]:
            why = why or _difference(ours, theirs)
        else:
            other_type = other_type or _difference(ours, theirs)
    return Verdict(NEEDED, name, nbytes, why=why or other_type)


def _is_foreign(source: Any, to: str) -> bool:
    """Whether `source` is an array or table of another framework than `to`, or a dict of such columns."""
    if type(source) is dict:
        columns = source.values()
        return 0 < len(columns) <= _MOST_COLUMNS and all(_is_foreign(column, to) for column in columns)
    if source is None or isinstance(source, (str, bytes, int, float, complex, list, tuple)):
        return False
    owner = registry.by_type(type(source))
    return owner is not None and owner.name != to


def _reason(plan: Plan) -> str:
    """Return why a conversion copies: the first reason of the plan or of its leaves."""
    plans = [plan, *plan.leaves.values()]
    return next((reason.why for each in plans for reason in each.reasons), "")


def _difference(ours: dict[str, str], theirs: dict[str, str]) -> str:
    for name in [*theirs, *ours]:
        if ours.get(name) != theirs.get(name):
            values = (shorten(each.get(name, "none"), 60, placeholder=" ...") for each in (ours, theirs))
            return f"the result of convert has {name} " + ", not ".join(values)
    return ""
