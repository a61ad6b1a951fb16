"""``out=``: the plan that copies an array into an existing one of the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zerocopy import registry
from zerocopy.describe import describe_array, translated_errors
from zerocopy.device import same_memory_space
from zerocopy.errors import Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.plan import Plan
from zerocopy.source import Source, type_name
from zerocopy.strided_view import StridedView, overlap

_OPTIONS = frozenset(("out", "copy", "dtype", "device"))
_NEW = Fix(options={"out": None}, effect="gives a new array")
_REQUESTED = Reason("out= was passed", code="out-requested", fixes=[_NEW])


def refuse(why: str, *fixes: Fix, code: str = "option-value") -> UnsupportedConversionError:
    """Return the error for a call with ``out=``; leaving it out is its last fix."""
    return UnsupportedConversionError("", why, code=code, fixes=[*fixes, _NEW])


def plan(call: Any, make_plan: Callable[[Any], Plan]) -> Plan:
    """Return the plan that fills the array of ``out=``; refuse it before a byte is written.

    Raises
    ------
    UnsupportedConversionError
        The array cannot be written, or is not one of the target's; its shape, dtype or device is another
        one; it shares memory with the source; the source is not an array; or another option contradicts it.
    """
    options, target, out = call.options, call.target, call.options["out"]
    with translated_errors(call.__str__):
        owner = registry.by_type(type(call.obj))
        table = owner.table(call.obj) if owner is not None else None
    if table is not None and not table.single:
        matrix = f'out[...] = zc.convert({{x}}, "{target.name}", layout="matrix")'
        fix = Fix(matrix, "copies the columns as one matrix", alone=True)
        raise refuse("out= is one array, and a table has columns", fix, code="not-an-array")
    for name in options.keys() - _OPTIONS:
        raise refuse(f"{name}= does not apply to a result in out=", Fix(options={name: None}))
    if options.get("copy") is False:
        raise refuse("copy=False forbids a copy, and out= receives one", Fix(options={"copy": None}))
    there = _writable_view(call, target, out)
    try:
        write = target.fill(out)
    except ZeroCopyError as error:
        raise refuse(f"out= cannot be written: {error.why}") from error
    with translated_errors(call.__str__):
        source = describe_array(call.obj)
    call.description = source
    given = target.parse_device(options["device"]) if "device" in options else there.device
    if not same_memory_space(given, there.device):
        raise refuse(f"out= is on {there.device}, and device= is {given}", Fix(options={"device": None}))
    _check(call, source, there)
    rest = {"dtype": options["dtype"]} if "dtype" in options else {}
    if not there.device.is_host:
        rest["device"] = tuple(there.device)
    if source.reasons and source.framework is target:
        rest["copy"] = True  # without it the plan is the object itself, whose memory holds other values
    made = make_plan(_without_out(call, rest))
    assert made.run is not None
    run = made.run

    def fill() -> object:
        values = run()
        # The source's exporter has run Python code, which may have resized out or freed its storage.
        if not _same_memory(_writable_view(call, target, out), there):
            raise refuse("the memory of out= changed while the values were read")
        write(values)
        return out

    steps = (*made.steps, f"{target.name} copies the values into out=")
    return replace(
        made, zero_copy=False, copied_bytes=made.copied_bytes + there.nbytes, aliased_bytes=0, steps=steps,
        reasons=(*made.reasons, _REQUESTED), warnings=(), run=fill,
    )  # fmt: skip


def _without_out(call: Any, options: dict[str, Any]) -> object:
    """Return the call whose result ``out=`` receives, for the same object, which has been described."""
    other = type(call)(call.obj, call.to, options, call.request.for_explain)
    other.description = call.description
    call.request.cast = other.request.cast  # explain runs its checks
    return other


def _writable_view(call: Any, target: Framework, out: object) -> StridedView:
    """Return the memory of an array of the target that can be written."""
    owner = registry.by_type(type(out))
    if owner is None or owner.name != target.name or not target.is_native(out):
        named = owner is not None and owner.name != target.name and owner.kind == "tensor" and owner.mutable
        fixes = [Fix(to=owner.name)] if owner is not None and named else []
        raise refuse(f"out= is a {type_name(out)}, which is not an array of {target.name}", *fixes)
    if not target.mutable:
        raise refuse(f"the arrays of {target.name} are immutable")
    try:
        with translated_errors(call.__str__):
            source = None if target.table(out) is not None else target.source(out)
    except ZeroCopyError as error:
        raise refuse(f"out= cannot be written: {error.why}") from error
    if source is None and target.kind == "table":
        raise refuse(f"convert fills arrays of tensor frameworks, and not columns or tables of {target.name}")
    if source is None:
        raise refuse("out= has dates, text or fields, and not numbers")
    for reason in (source.refusal, *source.reasons):
        if reason is not None:
            raise refuse(f"out= cannot be written: {reason.why}")
    view = source.view
    if view.readonly:
        raise refuse("out= is read-only")
    if _overlaps_itself(view):
        raise refuse("several elements of out= have the same address")
    if not view.device.is_host and type(target).fill is Framework.fill:
        raise refuse(f"{target.name} has no copy into an array on {view.device}", code="other-device")
    return view


def _check(call: Any, source: Source, there: StridedView) -> None:
    """Refuse values of another shape or dtype, and those in the memory that they would be written to."""
    here = source.view
    if here.shape != there.shape:
        raise refuse(f"out= has shape {there.shape}, and the values have {here.shape}")
    cast = call.request.cast
    new = here.dtype if cast is None else cast.new_type(here.dtype) or here.dtype
    if new is not there.dtype:
        cast = Fix(options={"dtype": there.dtype.name}, effect="casts the values")
        raise refuse(f"out= is {there.dtype}, and the values are {new}", cast)
    if here.ptr and overlap(here, there):
        raise refuse("out= and the values share memory, which the copy would overwrite while it reads")


def _same_memory(now: StridedView, before: StridedView) -> bool:
    return (now.ptr, now.shape, now.strides, now.dtype, now.device) == (
        before.ptr, before.shape, before.strides, before.dtype, before.device,
    )  # fmt: skip


def _overlaps_itself(view: StridedView) -> bool:
    """Whether elements have the same address; True also for strides that are not nested."""
    reach = view.dtype.itemsize
    for step, count in sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1):
        if step < reach:
            return view.size > 0
        reach += step * (count - 1)
    return False
