"""``explain``: the plan of a conversion, without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, Unpack

from zerocopy import registry
from zerocopy._engine.call_text import relocate
from zerocopy._engine.container_types import is_plain_object
from zerocopy._engine.containers import container_calls, leaf_calls, locate
from zerocopy._engine.fixes import compose_calls, resolve_fixes
from zerocopy._engine.memory import has_bytes
from zerocopy._engine.open_files import read_error
from zerocopy._engine.options import SIGNATURE, Like, Target, check_options
from zerocopy._engine.planner import Call, classify, make_plan
from zerocopy._engine.target import is_named, of_object, text
from zerocopy.describe import translated_errors
from zerocopy.errors import DeviceOptionError, OptionError, Reason, ZeroCopyError
from zerocopy.errors.tracebacks import public, shorten
from zerocopy.framework import Framework
from zerocopy.plan import Plan, of_leaves
from zerocopy.protocols.array_interface import lost_unit
from zerocopy.protocols.python_numbers import NUMBERS
from zerocopy.request import ConvertOptions
from zerocopy.source import type_name


@public
def explain(obj: Any, to: Target | Like, **options: Unpack[ConvertOptions]) -> Plan:
    """Describe how :func:`zerocopy.convert` would convert an object; convert nothing.

    Parameters
    ----------
    obj : object
        The object to convert.
    to : str, module, type or object
        The target.
    device, copy, stream, writable, dtype, leaves, validate, out : optional
        The options of :func:`zerocopy.convert`. ``validate="full"`` reads the data here too.
    layout, order, columns, nulls, encode, lists, pad_value, max_length, names, index, connection : optional
        Its options for tables.

    Returns
    -------
    Plan
        It aliases nothing, and keeps `obj` alive. If ``convert`` would raise a
        :class:`zerocopy.errors.ZeroCopyError`, ``possible`` is False and ``error`` holds that error.

    Raises
    ------
    UnknownFrameworkError
        `to` is not a known framework.
    OptionError, TypeError
        An option has an invalid value, or does not exist.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> print(zc.explain(memoryview(b"abcd"), to="numpy"))
    memoryview uint8 (4,) -> numpy: zero-copy (buffer)
    >>> print(zc.explain("abcd", to="numpy"))
    str -> numpy: refused
      why: str is not an array and supports no array protocol
      fix: pass an array: an object with __dlpack__, __cuda_array_interface__, \
__array_interface__, __arrow_c_array__ or the buffer protocol
    """
    checked = check_options("explain", options) if options else {}
    if not is_named(to):
        to, checked = of_object(to, obj, checked)
    call = Call(obj, to, checked, for_explain=True)
    try:
        call.open(obj)
        classified = classify(call)
        if classified == "tree":
            return _explain_leaves(call, obj)
        if classified == "whole":
            plan = _explain(call)
        else:
            from zerocopy._engine import compounds

            plan = compounds.explain_compound(call, classified, explain)
        return resolve_fixes(plan, call) if plan.reasons or plan.leaves else plan
    except OptionError as error:
        if isinstance(error, DeviceOptionError):
            return _refused(error, call)
        compose_calls(error, call)
        raise  # an error in the call, like an unknown keyword argument
    except ZeroCopyError as error:
        shorten(error)  # the plan keeps it, and frames would hold both in a reference cycle
        return _refused(error, call)


explain.__signature__ = SIGNATURE.replace(return_annotation="Plan")  # type: ignore[attr-defined]


def _refused(error: ZeroCopyError, call: Call) -> Plan:
    """Return the plan of a call that `convert` refuses, with fixes for the call."""
    if not error.calls:
        compose_calls(error, call)
    return Plan(call.subject, _name(call.to), possible=False, reasons=(error.reason,), error=error)


_MISREAD = 'many readers of files take arrow.bool8 for int8, without an error (dtype="bool" packs bits)'


def _lost_labels(obj: object, target: Framework, options: Mapping[str, object]) -> tuple[str, ...]:
    """Return warnings about labels and units, also those of a dict's columns, that the result lacks."""
    if type(obj) is dict:
        lost = ((label, _lost_labels(value, target, options)) for label, value in obj.items())
        return tuple(f"{label!r}: {warning}" for label, warnings in lost for warning in warnings)
    owner = registry.by_type(type(obj))
    if owner is None:
        return lost_unit(obj, target.name)
    is_other = owner.name != target.name or not target.is_native(obj)
    return owner.label_warnings(obj, target, options) if is_other else ()


def _name(to: object) -> str:
    return to if isinstance(to, str) else text(to)


def _explain(call: Call) -> Plan:
    plan = make_plan(call)
    if call.description is None and plan.zero_copy:
        with translated_errors(call.__str__):  # an array of several buffers, which can all be empty
            plan = replace(plan, zero_copy=has_bytes(call.obj))
    options = {**call.options, "index": call.own_index} if "index" in call.options else call.options
    with translated_errors(call.__str__):
        warnings = _lost_labels(call.obj, call.target, options)
    if call.request.cast is not None:
        if call.request.cast.has_bool8 and call.target.keeps_metadata:
            warnings += (_MISREAD,)
        try:
            for check in call.request.cast.checks:
                check()
        except ZeroCopyError as error:
            raise error.with_context(asked=str(call)) from error.__cause__
    return replace(plan, warnings=plan.warnings + warnings) if warnings else plan


def _explain_leaves(call: Call, obj: object) -> Plan:
    """Return the plan of `obj`, a container or an open file: the sum of its leaves' plans."""
    calls = leaf_calls(call.obj, call.options, call.to)
    given = {name: value for name, value in call.options.items() if name != "leaves"}
    # Once for all leaves: they read the whole container.
    of_container = cache(partial(container_calls, call.obj, call.to, given))
    leaves = {}
    errors: list[ZeroCopyError] = []  # `convert` refuses copies of a file before it converts leaves
    for path, leaf, own, read in calls:
        given_copy = own if read is None else {name: own[name] for name in own if name != "copy"}
        plan = _explain_leaf(leaf, path, call.to, given_copy, of_container, call.unwrap)
        if read is not None and plan.possible and (plan.aliased_bytes or plan.copied_bytes):
            plan = _with_reading(plan, path, read, call)
            errors += [plan.error] if plan.error is not None else []
        leaves[path] = plan
    annotate = getattr(type(obj), "__zerocopy_annotate__", None) if call.obj is not obj else None
    name = ""
    if annotate is not None:
        name, leaves = annotate(obj, leaves, call.options)
    errors += [plan.error for plan in leaves.values() if plan.error is not None]
    count = sum(not plan.kept for plan in leaves.values())
    made = of_leaves(
        name or f"{type(call.obj).__qualname__} with {count} array{'s' if count != 1 else ''}",
        _name(call.to),
        leaves,
        steps=("convert each leaf",),
        kept=count == 0 and bool(leaves),
    )
    if not errors:
        return made
    refused = replace(made, possible=False, error=errors[0])
    return replace(refused, zero_copy=False, copied_bytes=0, new_bytes=0, aliased_bytes=0)


def _with_reading(plan: Plan, path: str, reason: Reason, call: Call) -> Plan:
    """Return the plan of an array with the copy that reads it from a file."""
    nbytes = plan.copied_bytes + plan.aliased_bytes
    plan = replace(plan, zero_copy=False, aliased_bytes=0, warnings=())
    if call.options.get("copy") is False:
        error = read_error(path, reason).with_context(asked=str(call))
        compose_calls(error, call)
        return replace(plan, possible=False, copied_bytes=0, error=error, reasons=(error.reason,), steps=())
    return replace(
        plan,
        copied_bytes=nbytes,
        steps=("read it from the file", *plan.steps),
        reasons=(reason, *plan.reasons),
    )


def _explain_leaf(
    leaf: Any,
    path: str,
    to: Any,
    options: dict[str, Any],
    of_container: Callable[[], dict[str, str]],
    unwrap: str,
) -> Plan:
    options = dict(options)
    keeps = options.pop("leaves", None) is not None
    if type(leaf) in NUMBERS or (keeps and is_plain_object(leaf)):
        return Plan(type_name(leaf), str(to), steps=("keep the object unchanged",), kept=True)
    try:
        plan = explain(leaf, to, **options)
    except MemoryError as error:
        error.add_note(f"at {path}")
        raise
    if plan.error is not None:
        locate(plan.error, leaf, path, of_container)
        if unwrap:
            relocate(plan.error, *unwrap.split("{x}"))
        plan = replace(plan, reasons=(plan.error.reason,))
    return plan
