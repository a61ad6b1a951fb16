"""Checks whether one call of a framework copied where ``convert`` would alias."""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy._engine.explain import explain
from zerocopy._engine.memory import blocks, shares_memory
from zerocopy._engine.recording import main_reason
from zerocopy.audit.hook import AuditHook, CopyCall
from zerocopy.framework import hook_of
from zerocopy.plan import Plan
from zerocopy.protocols.exporter_errors import ignored_errors
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
    """Whether one call copied: the kind and the reason as in `AuditRow`, and the bytes of the result.

    `options` are those of ``convert`` in the replacement, such as ``', layout="matrix"'``; `plan` is that of
    ``convert`` without options, if the call copied.
    """

    kind: str
    source: str
    nbytes: int
    options: str = ""
    why: str = ""
    plan: Plan | None = None


def check(call: CopyCall, source: Any, result: Any, options: dict[str, Any]) -> Verdict | None:
    """Return the verdict on a call; None if its argument is not memory of another framework."""
    if not _is_foreign(source, call.to):
        return None
    name, nbytes = type_name(source), sum(block.nbytes for block in blocks(result))
    if shares_memory(source, result):
        return Verdict(ALIAS, name, nbytes)
    needed = Verdict(NEEDED, name, nbytes, why="the reason is not known")
    with ignored_errors():  # the call has copied, whatever other calls do
        needed = replace(needed, plan=explain(source, call.to))  # type: ignore[arg-type]
        for keyword in _WANTED:
            if options.get(keyword) is True:
                return replace(needed, why=f"the call passes {keyword}=True")
        traits = hook_of(registry.by_name(call.to), AuditHook).traits
        theirs = traits(result)
        why = other_type = ""
        for choice in _OPTIONS:
            plan = explain(source, call.to, **choice)  # type: ignore[arg-type]
            if not plan.zero_copy:
                why = why or (main_reason(plan) or ("",))[0]
                continue
            ours = traits(convert(source, call.to, copy=False, **choice))
            if ours == theirs:
                return Verdict(AVOIDABLE, name, nbytes, "".join(f', {k}="{v}"' for k, v in choice.items()))
            if ours["type"] == theirs["type"]:
                why = why or _difference(ours, theirs)
            else:
                other_type = other_type or _difference(ours, theirs)
        return replace(needed, why=why or other_type)
    return needed


def _is_foreign(source: Any, to: str) -> bool:
    """Whether `source` is an array or table of another framework than `to`, or a dict of such columns."""
    if type(source) is dict:
        columns = source.values()
        return 0 < len(columns) <= _MOST_COLUMNS and all(_is_foreign(column, to) for column in columns)
    if source is None or isinstance(source, (str, bytes, int, float, complex, list, tuple)):
        return False
    owner = registry.by_type(type(source))
    return owner is not None and owner.name != to


def _difference(ours: dict[str, str], theirs: dict[str, str]) -> str:
    for name in [*theirs, *ours]:
        if ours.get(name) != theirs.get(name):
            values = (shorten(each.get(name, "none"), 60, placeholder=" ...") for each in (ours, theirs))
            return f"the result of convert has {name} " + ", not ".join(values)
    return ""
