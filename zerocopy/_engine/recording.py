"""The hook for recorders: while one is set, the slow path and the core's routes count conversions and bytes.

Setting and removing a recorder drops all routes (`zerocopy._engine.routes.record_to`), so that a conversion
that is not recorded runs no code of this module. Only the outermost conversion on a thread is recorded. Those
that it makes, of columns and leaves and in protocol methods, belong to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from zerocopy import registry
from zerocopy._engine.target import resolve, text
from zerocopy.describe import describe
from zerocopy.errors import Reason, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.plan import STRIDED_ALIAS, Plan, item
from zerocopy.protocols.exporter_errors import ignored_errors
from zerocopy.source import Source

Route = Callable[[Any], Any]
#: Names of the source's type and of the target.
Pair = tuple[str, str]

#: The counters, while conversions are recorded: the compiled core, or `zerocopy.monitor.recorder.Counters`.
#: Another thread can set it between two reads, so callers pass the value that they have tested.
counters: Any = None
#: ``explain``, while conversions are recorded.
explain: Any = None

#: The newest reason by call site and pair: why, fix, code. A site is an instruction and the `id` of its
#: code, which the counters keep alive: codes of equal text in different files are equal.
reasons: dict[tuple[int, int, Pair], tuple[str, str, str]] = {}

#: Each pair once: the core compares their addresses. A program that creates types in a loop would fill it.
_pairs: dict[Pair, Pair] = {}
MAX_PAIRS = 2048
OTHERS: Pair = ("", "")


def set_counters(new: Any, explain_function: Any) -> None:
    """Set what counts conversions, or None. The caller drops all routes afterwards."""
    global counters, explain, reasons, _pairs
    counters, explain = new, explain_function
    # At the start too: a call that began before the end of the last recording can add a reason after it.
    # New ones, because the monitor calls this in forked children (zerocopy.forks).
    reasons, _pairs = {}, {}


# -- compiled routes, while a recorder is set: without the core, only the slow path counts ----

#: Forms that are DLPack capsules. ``cuda`` has a function that returns one; the others have ``nbytes``.
_CAPSULES = ("capsule", "versioned", "aligned")


def recorded(active: Any, route: Any, cls: type, to: Any, options: Mapping[str, Any]) -> Any:
    """Return a route that records the outermost calls of `route`, a compiled route."""
    pair = _pair(_type_name(cls), _target_name(to))
    return active.RecordedRoute(route, pair, partial(_sample, pair, to, dict(options)))


def measured(active: Any, form: str, export: Route, copies: bool = False) -> Route:
    """Return an exporter that counts the bytes that it exports; with `copies`, the importer copies them."""
    add_bytes, capsule_bytes = active.add_bytes, active.capsule_bytes

    def add(nbytes: int) -> None:
        add_bytes(0 if copies else nbytes, nbytes if copies else 0)

    def export_array(obj: Any) -> Any:
        memory = export(obj)
        add(memory.nbytes)
        return memory

    def export_capsule(obj: Any) -> Any:
        capsule = export(obj)
        add(capsule_bytes(capsule))
        return capsule

    def export_device_memory(obj: Any) -> Any:
        index, export_on = export(obj)

        def capsule_of(stream: Any) -> Any:
            capsule = export_on(stream)
            add(capsule_bytes(capsule))
            return capsule

        return index, capsule_of

    return export_device_memory if form == "cuda" else export_capsule if form in _CAPSULES else export_array


def measured_table(active: Any, source: Framework, target: Framework, route: Route) -> Route:
    """Return a route between table frameworks that counts the bytes of the columns, as a plan does."""
    from zerocopy.tables.to_tables import sizes

    add_bytes = active.add_bytes

    def measured(obj: Any) -> Any:
        result = route(obj)
        table = source.table(obj)
        assert table is not None
        reasons = zip(map(target.column_reasons, table.columns), target.table_reasons(table), strict=True)
        for column, (own, others) in zip(table.columns, reasons, strict=True):
            aliased, copied, _ = sizes(column, target, bool(own or others))
            add_bytes(aliased, copied)
        return result

    return measured


def measured_opening(active: Any, route: Route) -> Route:
    """Return the route of a handle that counts the bytes of an opened object that is the result itself."""

    def measured(handle: Any) -> Any:
        result = route(handle)
        _, aliased, copied, unchanged = active.outcome()
        if unchanged and not aliased and not copied:
            active.add_bytes(_nbytes(result), 0)
        return result

    return measured


def _nbytes(obj: Any) -> int:
    description = describe(obj)
    if isinstance(description, Source):
        return description.view.nbytes
    return sum(column.nbytes for column in description.columns if column.length)


# -- the slow path -----------------------------------------------------------------


class Observed:
    """The call of a slow conversion and its plan; None if routes converted the object."""

    __slots__ = ("call", "plan")

    def __init__(self) -> None:
        self.call: Any = None
        self.plan: Plan | None = None


def observe(convert: Any, obj: Any, to: Any, passed: Mapping[str, Any]) -> Any:
    """Return ``convert(obj, to, passed, observed)``, the slow path, and record it."""
    active = counters
    if active is None:
        return convert(obj, to, passed, None)
    depth, *before = active.outcome()
    active.set_outcome(depth + 1, 0, 0, False)
    observed, start = Observed(), time.perf_counter_ns()
    try:
        result = convert(obj, to, passed, observed)
    except BaseException as error:
        if not depth:
            _record_refusal(active, obj, to, error, time.perf_counter_ns() - start)
        active.set_outcome(depth, *before)
        raise
    elapsed = time.perf_counter_ns() - start
    same, plan = result is obj, observed.plan
    _, aliased, copied, unchanged = active.outcome()
    if same:
        aliased, copied, unchanged = 0, 0, True
    elif plan is not None:
        aliased, copied, unchanged = plan.aliased_bytes, plan.copied_bytes, False
    if depth:
        sums = before[0] + aliased, before[1] + copied, before[2] or unchanged
        active.set_outcome(depth, *sums)
        return result
    active.set_outcome(1, aliased, copied, unchanged)
    try:
        pair = _pair(_type_name(type(obj)), _target_name(to))
        unread = plan is not None and plan.unread
        code, instruction, takes_sample = active.record_call(pair, same, False, unread, elapsed)
        if takes_sample:
            _sample(pair, to, passed, obj, code, instruction, observed)
    finally:
        active.set_outcome(0, 0, 0, False)
    return result


def _record_refusal(active: Any, obj: Any, to: Any, error: BaseException, elapsed: int) -> None:
    """Record a call that raised, with the reason in the error."""
    pair = _pair(_type_name(type(obj)), _target_name(to))
    code, instruction, _ = active.record_call(pair, False, True, False, elapsed)
    if isinstance(error, ZeroCopyError):
        reason = error.why, error.remedy, error.code
    else:
        message = _text_of(error)
        reason = f"{type(error).__name__}: {message}" if message else type(error).__name__, "", ""
    reasons[id(code), instruction, pair] = reason


def _text_of(error: BaseException) -> str:
    with ignored_errors():
        return str(error)
    return ""


# -- reasons -----------------------------------------------------------------------


def _sample(
    pair: Pair,
    to: Any,
    options: Mapping[str, Any],
    obj: Any,
    code: Any,
    instruction: int,
    observed: Observed | None = None,
) -> None:
    """Store why a call copied, or that its alias is slow to read; errors of `explain` are ignored."""
    key, known = (id(code), instruction, pair), reasons
    with ignored_errors():
        if observed is not None and observed.plan is not None:
            # Not explained again, because a stream is already consumed.
            from zerocopy._engine.fixes import resolve  # here, because only recordings need it

            plan = resolve(observed.plan, observed.call)
        else:
            plan = explain(obj, to, **options)
        reason = _main_reason(plan)
        if reason is not None:
            known[key] = reason
        elif (slow := _slow_alias(plan)) is not None:
            known.setdefault(key, (slow.why, slow.remedy, slow.code))


def _main_reason(plan: Plan, place: str = "x") -> tuple[str, str, str] | None:
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
    reason = _main_reason(copied[path], item(place, path))
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


def _pair(source: str, target: str) -> Pair:
    """Return the pair of these names that the counters compare."""
    pair = (source, target)
    pairs = _pairs
    known = pairs.get(pair)
    if known is None:
        known = pairs.setdefault(pair, pair) if len(pairs) < MAX_PAIRS else OTHERS
    return known


def _type_name(cls: type) -> str:
    """Return a type's name with its package: ``polars.DataFrame``."""
    package, name = str(getattr(cls, "__module__", "builtins")).partition(".")[0], cls.__qualname__
    return name if package == "builtins" else f"{package}.{name}"


def _target_name(to: Any) -> str:
    with ignored_errors():  # the call's own error reports it
        return (registry.find(to) or resolve(to)).name
    return to if isinstance(to, str) else text(to)
