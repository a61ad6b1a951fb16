"""Plans the calls that a message may name, before it names them."""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zerocopy._engine.call_text import as_code, renamed, with_imports
from zerocopy._engine.containers import leaf_calls
from zerocopy._engine.planner import Call, classify, make_plan
from zerocopy.errors import Fix, Reason, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Source

#: The maximum number of bytes of an object whose cast is checked, or of a copy that is made, before a
#: message names a call.
CHECKED = 1 << 24


@dataclass(frozen=True, slots=True)
class Candidate:
    """A call that may work: its code, its effect, its target, and its options if it only changes these."""

    code: str
    effect: str
    to: str = ""
    options: dict[str, object] | None = field(default=None, hash=False)
    has_statement: bool = False  # it runs a statement first, and so is not planned
    source: str = "x"
    sample: str = ""  # an expression of a small object like `source`, with which the call is planned
    given: dict[str, object] | None = field(default=None, hash=False)  # the options, whatever else it changes
    complete: bool = False  # it removes what follows the error too

    def after(self, first: Candidate) -> Candidate:
        """Return a candidate of the object that a first one makes, in terms of the caller's."""
        code = renamed(re.sub(r"^(import [\w.]+; )+", "", self.code), first.source)
        return replace(self, code=with_imports(code), options=None)


def refusal_of_sample(failed: Call, each: Candidate) -> tuple[Call, Exception] | None:
    """Return the call with a sample of the object and its error; None if it has none or is unknown."""
    names = re.findall(r"(?<![\w.])[a-z]\w*(?=\.)", each.sample)
    aliases = {"zc": __name__.removesuffix("._engine.trials")}
    modules = {name: sys.modules.get(aliases.get(name, name)) for name in names}  # imports nothing
    try:
        sample = eval(each.sample, modules | {"x": failed.obj})
        trial = Call(sample, each.to, each.given or {}, for_explain=failed.is_small)
    except BaseException as error:  # of any framework
        if not is_error(error):
            raise
        return None
    trial.refuse, trial.is_small = failed.refuse if failed.is_small else None, failed.is_small
    refused = refusal(trial)
    if failed.is_small or refused is None or not isinstance(refused[1], ZeroCopyError):
        return refused
    # The whole object has another address and the length of the columns that remain.
    codes = {refused[1].code, *(reason.code for _, reason in refused[1].obstacles)}
    return None if codes & {"misaligned", "different-lengths"} else refused


def are_plain(labels: Iterable[tuple[Hashable, ...]]) -> bool:
    """Whether labels are literals: the text of others can be code, which a message must not run."""
    return all(type(part) in (str, int) for label in labels for part in label)


def refusal(trial: Call) -> tuple[Call, Exception] | None:
    """Return a call, or that of a leaf, and the error of its plan; None if it has none."""
    trial.request.is_trial = trial.refuse is None  # whose plans have no bytes
    try:
        plan = None
        if trial.description is None and (classified := classify(trial)) != "whole":
            if trial.refuse is None:  # parts are converted without a plan
                return _refusal_of_leaf(trial) if classified == "tree" else None
        else:
            plan = make_plan(trial)
        if trial.refuse is not None and (error := trial.refuse(trial, plan)) is not None:
            return trial, error
        if trial.request.cast is not None and _nbytes(trial.description) <= CHECKED:
            for check in trial.request.cast.checks:
                check()
    except BaseException as error:
        if not is_error(error):
            raise
        return trial, without_cycles(error)
    return None


def _refusal_of_leaf(trial: Call) -> tuple[Call, Exception] | None:
    """Return the first call of a container's leaves that is refused, with the fixes for the container."""
    for _, leaf, options, _ in leaf_calls(trial.obj, trial.options, trial.to):
        if (refused := refusal(Call(leaf, trial.to, options))) is not None:
            error = refused[1]
            if isinstance(error, ZeroCopyError):  # an expression of the leaf does not apply to the container
                error.fixes = _by_options(error.fixes)
                error.obstacles = [
                    (label, Reason(reason.why, code=reason.code, fixes=_by_options(reason.fixes)))
                    for label, reason in error.obstacles
                ]
            return refused
    return None


def _by_options(fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    return tuple(fix for fix in fixes if fix.source == "{x}" and not fix.action)


def without_cycles(error: Exception) -> Exception:
    """Return an error without references to frames."""
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def same(a: object, b: object) -> bool:
    """Whether two options are one; compared as code, because a comparison of arrays is not a bool."""
    return a is b or (type(a) is type(b) and as_code("", a) == as_code("", b) != "")


def includes(options: dict[str, object], others: dict[str, object]) -> bool:
    """Whether options have all of the others."""
    return all(same(options.get(name), value) for name, value in others.items())


def is_part(fix: Fix, other: Fix) -> bool:
    """Whether a fix is another one, perhaps with fewer of its options."""
    own, others = ((each.source, each.before, each.to, bool(each.options)) for each in (fix, other))
    return own == others and includes(other.options, fix.options)


def for_framework(fix: Fix, framework: Framework | None, general: bool) -> Fix | None:
    """Return a fix with the expression of a framework for its action; None if it has none.

    With `general`, the fix's own expression is used then, which applies to arrays but not to columns.
    """
    if not fix.action:
        return fix
    name, _, kind = fix.action.partition(":")
    actions = framework.actions if framework is not None else {}
    own = actions.get(fix.action) or actions.get(name)
    if own is not None:
        effect, options = fix.effect or own.effect, own.options | fix.options
        own = replace(fix, source=own.source, sample=own.sample, before=own.before, action="")
        source, sample = (text.replace("{type}", kind) for text in (own.source, own.sample))
        return replace(own, source=source, sample=sample, effect=effect, options=options)
    return replace(fix, action="") if general and fix.source != "{x}" else None


def has_attributes(obj: object, fix: Fix) -> bool:
    """Whether an object, None if it is not known, has the attributes that a fix reads from it."""
    return obj is None or all(_has_path(obj, path) for path in re.findall(r"\{x\}\.([\w.]+)", fix.source))


def _has_path(obj: object, path: str) -> bool:
    """Whether an attribute, and that of its value, exist."""
    for name in path.split("."):
        if not hasattr(obj, name):
            return False
        obj = getattr(obj, name)
    return True


def _nbytes(description: Any) -> int:
    parts = [description.view] if isinstance(description, Source) else description.columns
    return sum(part.nbytes for part in parts)
