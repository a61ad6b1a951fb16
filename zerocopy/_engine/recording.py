"""The hook for recorders: while one is set, all conversions take the slow path, which counts.

The routes are bypassed, not dropped (`zerocopy._engine.routes.record_to`), so that a conversion that is not
recorded runs no code of this module. Only the outermost conversion on a thread is recorded. Those that it
makes, of columns and leaves and in protocol methods, belong to it. The guards of `forbid_copies` see the plan
of a recorded conversion before it runs.
"""

from __future__ import annotations

import threading
import time
from ast import literal_eval
from collections.abc import Callable, Hashable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

from zerocopy import handover, registry
from zerocopy._engine.planner import Call, make_plan
from zerocopy._engine.target import is_named, resolve, text
from zerocopy.errors import CopyRequiredError, Fix, Reason, ZeroCopyError
from zerocopy.plan import STRIDED_ALIAS, Plan, item
from zerocopy.protocols.exporter_errors import ignored_errors

#: Names of the source's type and of the target.
Pair = tuple[str, str]
#: The kinds of recorded calls.
KINDS = ALIASED, COPIED, UNCHANGED, REFUSED, EMPTY = range(5)


class Counters(Protocol):
    """The part of `zerocopy.monitor.recorder.Counters` that counts conversions."""

    reasons: dict[Any, tuple[str, str, str]]

    def record_call(
        self, pair: Pair, kind: int, aliased: int, copied: int, unmeasured: bool, nanoseconds: int, /
    ) -> tuple[object, bool]: ...


class Guard(Protocol):
    """The part of `zerocopy.audit.forbid.CopyGuard` that conversions call."""

    over: int

    def report(self, error: CopyRequiredError, nbytes: int, /) -> None: ...


#: The blocks of a thread or task, the innermost last: lists of their guard, which are empty once the block
#: has ended, because a task can outlive it. While one is entered, conversions are recorded.
entries: ContextVar[tuple[list[Guard], ...]] = ContextVar("zerocopy_guards", default=())
#: How to avoid a write to an alias that a conversion makes; None: the write changes no memory of the program.
write_fix: ContextVar[str | None] = ContextVar("zerocopy_write_fix", default="")


def guards() -> list[Guard]:
    """Return the guards of this context, the innermost first, and once if it is entered twice."""
    return [*dict.fromkeys(guard for entry in reversed(entries.get()) for guard in entry)]


#: Set while conversions are recorded. Another thread can set it between two reads, so callers pass the value
#: that they have tested.
counters: Counters | None = None
#: ``explain`` and `fixes.resolve_fixes`, while conversions are recorded.
functions: tuple[Callable[..., Plan], ...] = ()


# -- calls -------------------------------------------------------------------------


class Observed:
    """A conversion while it runs: its call and plan, and the bytes of its leaves."""

    __slots__ = ("aliased", "call", "copied", "outer", "plan", "unchanged")

    def __init__(self, outer: Observed | None = None) -> None:
        self.outer = outer
        self.call: object = None
        self.plan: Plan | None = None  # None for a container, whose leaves have plans
        self.aliased = self.copied = 0
        self.unchanged = False  # whether the object, or a leaf of it, was returned itself

    def finish(self, is_same: bool) -> None:
        """Set the bytes of a call that has returned; `is_same`: the object itself."""
        plan = self.plan
        if is_same:
            self.aliased, self.copied, self.unchanged = 0, 0, True
        elif plan is not None:
            self.aliased, self.copied, self.unchanged = plan.aliased_bytes, plan.copied_bytes, False

    def add(self, inner: Observed) -> None:
        """Add the bytes of a conversion that belongs to this one."""
        self.aliased += inner.aliased
        self.copied += inner.copied
        self.unchanged |= inner.unchanged

    @property
    def kind(self) -> int:
        """The kind of a call that has returned."""
        return COPIED if self.copied else ALIASED if self.aliased else UNCHANGED if self.unchanged else EMPTY


class _Thread(threading.local):
    running: Observed | None = None  # the innermost conversion of this thread
    place = "x"  # an expression for the object, which fixes name


thread = _Thread()


class own_work:  # `contextlib.contextmanager` takes 0.5 us longer
    """Hide the conversions of a block from guards, and with `hides_all` from recorders: zerocopy makes them.

    `fix` is their `write_fix`.
    """

    def __init__(self, fix: str | None = None, hides_all: bool = False) -> None:
        self._fix, self._hides_all = fix, hides_all

    def __enter__(self) -> None:
        self._outer, self._tokens = thread.running, (entries.set(()), write_fix.set(self._fix))
        thread.running = Observed() if self._hides_all else self._outer

    def __exit__(self, *_: object) -> None:
        thread.running = self._outer
        entries.reset(self._tokens[0])
        write_fix.reset(self._tokens[1])


def observe(
    active: Counters, convert: Callable[..., object], obj: object, to: object, passed: Mapping[str, object]
) -> object:
    """Return ``convert(obj, to, passed, observed)``, the slow path, and record it to `active`."""
    outer = thread.running
    observed = Observed(outer)
    thread.running, start = observed, time.perf_counter_ns()
    try:
        try:
            result = convert(obj, to, passed, observed)
        except BaseException as error:
            if outer is None:
                _record_refusal(active, obj, to, error, time.perf_counter_ns() - start)
            raise
        elapsed = time.perf_counter_ns() - start
        observed.finish(result is obj)
        if outer is not None:
            outer.add(observed)
        else:
            _record(active, obj, to, passed, observed, elapsed)
            for watcher in handover.watchers.copy():
                watcher.name(result)
    finally:
        thread.running = outer
    return result


def _record(
    active: Counters, obj: object, to: object, passed: Mapping[str, object], observed: Observed, elapsed: int
) -> None:
    """Record a call that has returned, and from time to time why it copies."""
    unread = observed.plan is not None and observed.plan.unread
    figures = observed.aliased, observed.copied, unread, elapsed
    key, takes_sample = active.record_call(_pair(obj, to), observed.kind, *figures)
    if takes_sample:
        _sample(active.reasons, key, obj, to, passed, observed)


def _record_refusal(active: Counters, obj: object, to: object, error: BaseException, elapsed: int) -> None:
    """Record a call that raised, with the reason in the error."""
    key, _ = active.record_call(_pair(obj, to), REFUSED, 0, 0, False, elapsed)
    if isinstance(error, ZeroCopyError):
        place = thread.place
        named = f"x = {place}; " if error.calls and place != "x" else ""
        reason = error.why, named + error.remedy, error.code
    else:
        message = _text_of(error)
        reason = f"{type(error).__name__}: {message}" if message else type(error).__name__, "", ""
    if key not in active.reasons or not getattr(error, "by_guard", False):  # the copy's own reason stays
        active.reasons[key] = reason


def _text_of(error: BaseException) -> str:
    with ignored_errors():
        return str(error)
    return ""


# -- guards ------------------------------------------------------------------------

_ALIAS = Fix(options={"copy": None}, effect="leaves copy=True out")
_REQUESTED = Reason("copy=True was passed", code="copy-requested", fixes=[_ALIAS])


def check_guards(plan: Plan | None, call: Call, observed: Observed) -> None:
    """Let the guards of this context report a call that copies more than they allow, before it runs.

    `plan` is None for a container or a compound array, whose parts have plans of their own.
    """
    if observed.outer is not None or not (active := guards()):
        return  # a part of what was checked whole
    if plan is None:
        plan = Plan("", "")
        with ignored_errors():  # the conversion raises them
            plan = functions[0](call.obj, call.to, **call.options)
    for guard in active:
        if plan.copied_bytes > guard.over:
            from zerocopy._engine.fixes import compose_calls  # here, because only errors need it
            from zerocopy._engine.trials import CHECKED

            call.refuse, call.is_small = partial(_refused, guard.over), plan.copied_bytes <= CHECKED
            with own_work(hides_all=True):  # expressions in fixes can convert
                error = _forbidden(plan, call)
                limit = f"it copies {plan.copied_bytes:,} bytes, and forbid_copies allows {guard.over:,}"
                compose_calls(error.with_context(why=f"{limit}: {error.why}"), call)
                if call.description is None and not (
                    error.calls and all(r.fixes for _, r in error.obstacles)
                ):
                    with ignored_errors():
                        _add_calls_of_leaf(error, plan, call)
            guard.report(error, plan.copied_bytes)
            call.refuse = None


def _add_calls_of_leaf(error: CopyRequiredError, plan: Plan, call: Call) -> None:
    """Add the calls that convert the leaf with the most copied bytes, as those of ``copy=False``."""
    from zerocopy._engine.call_text import relocate
    from zerocopy._engine.containers import leaf_calls
    from zerocopy._engine.fixes import compose_calls

    path = max(plan.leaves, key=lambda path: plan.leaves[path].copied_bytes)
    leaf, options = next(each[1:3] for each in leaf_calls(call.obj, call.options) if each[0] == path)
    own = Call(leaf, call.to, options, for_explain=True)
    own.refuse, own.is_small = call.refuse, call.is_small
    compose_calls(inner := _forbidden(make_plan(own), own), own)
    relocate(inner, "", path)
    if inner.calls and not any(code.startswith("zc.convert(x, ") for code in inner.calls):  # by options
        error.with_context(remedy="; or ".join([inner.remedy, *[error.remedy] * bool(error.calls)]))
        error.calls = (*inner.calls, *error.calls)


def _refused(over: int, call: Call, plan: Plan | None) -> ZeroCopyError | None:
    """Return the error of a call that a fix would make: it may not copy as much."""
    plan = plan or functions[0](call.obj, call.to, **call.options)
    return _forbidden(plan, call) if plan.copied_bytes > over else plan.error


def _forbidden(plan: Plan, call: Call) -> CopyRequiredError:
    """Return the error for a plan, with the obstacles to an alias."""
    if call.options.get("copy") is True:  # the plan can have other reasons too
        plan = Plan("", "", copied_bytes=plan.copied_bytes, reasons=(_REQUESTED,))
    why, remedy, code = main_reason(plan) or ("no reason is known", "", "copy-required")
    error = CopyRequiredError(str(call), why, remedy, code=code)
    error.by_guard = True
    for path, part in ({"()": plan} if plan.reasons else plan.leaves).items():
        first, inner, _ = path.partition("][")
        label: tuple[Hashable, ...] | None = None
        with ignored_errors():  # an attribute, or a label without a literal
            label = tuple(literal_eval(first + inner[:1]))
        for reason in part.reasons if part.copied_bytes else ():
            if inner or label is None:  # an expression would be that of a leaf
                fixes = [fix for fix in reason.fixes if fix.source == "{x}"]
                reason = Reason(reason.why, code=reason.code, fixes=fixes)
            error.obstacles.append((label or (), reason))
            if any(fix.source == "{x}" for fix in reason.fixes):
                error.remedy = ""  # options, which `compose_calls` plans
    return error


# -- reasons -----------------------------------------------------------------------


def _sample(
    reasons: dict[object, tuple[str, str, str]],
    key: object,
    obj: object,
    to: object,
    options: Mapping[str, object],
    observed: Observed,
) -> None:
    """Store why a call copied, or that its alias is slow to read; errors of `explain` are ignored."""
    with ignored_errors():
        explain, resolve_fixes = functions
        if observed.plan is not None:
            # Not explained again, because a stream is already consumed.
            plan = resolve_fixes(observed.plan, observed.call)
        else:
            plan = explain(obj, to, **options)
        reason = main_reason(plan, thread.place)
        if reason is not None:
            reasons[key] = reason
        elif (slow := _slow_alias(plan)) is not None:
            reasons.setdefault(key, (slow.why, slow.remedy, slow.code))


def main_reason(plan: Plan, place: str = "x") -> tuple[str, str, str] | None:
    """Return the reason of a plan, or that of the leaf with the most copied bytes, after its path.

    `place` is an expression for the object, which the fix names.
    """
    if plan.reasons:
        first: Reason = plan.reasons[0]
        return first.why, first.remedy_at(place), first.code
    copied = {path: leaf for path, leaf in plan.leaves.items() if leaf.copied_bytes}
    if not copied:
        return None
    path = max(copied, key=lambda path: copied[path].copied_bytes)
    reason = main_reason(copied[path], item(place, path))
    if reason is None or not path:
        return reason
    others = f" and {len(copied) - 1} more" if len(copied) > 1 else ""
    return f"at {path}{others}: {reason[0]}", *reason[1:]


def _slow_alias(plan: Plan, path: str = "") -> Reason | None:
    """Return the warning about a strided alias, of the plan or of a leaf after its path, as a reason."""
    for warning in plan.warnings:
        if warning.startswith(STRIDED_ALIAS):
            why, _, fix = warning.partition("; ")
            return Reason(f"at {path}: {why}" if path else why, fix, code="strided-alias")
    return next(filter(None, (_slow_alias(leaf, path + own) for own, leaf in plan.leaves.items())), None)


# -- names -------------------------------------------------------------------------


def _pair(obj: object, to: object) -> Pair:
    return _type_name(type(obj)), _target_name(to)


def _type_name(cls: type) -> str:
    """Return a type's name with its package: ``polars.DataFrame``."""
    package, name = str(getattr(cls, "__module__", "builtins")).partition(".")[0], cls.__qualname__
    return name if package == "builtins" else f"{package}.{name}"


def _target_name(to: object) -> str:
    with ignored_errors():  # the call's own error reports it
        return (registry.find(to) or resolve(to)).name
    return to if type(to) is str else text(to) if is_named(to) else _type_name(type(to))
