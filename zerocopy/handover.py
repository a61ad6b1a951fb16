"""Hand one array over to one framework: whether its memory is copied, why, and by which steps.

`plan` is the one place that decides about an array's memory. It adds the reasons of the source, of the target
and of the caller's options; without any, the target aliases the memory. Plans of tables call it for each of
their arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zerocopy import registry
from zerocopy.device import Device, same_memory_space
from zerocopy.dtype import DType
from zerocopy.errors import CopyRequiredError, Fix, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.plan import STRIDED_ALIAS, Plan
from zerocopy.protocols.array_interface import aligned_copy, host_view
from zerocopy.request import Request
from zerocopy.source import Array, HostCopy, Source
from zerocopy.strided_view import StridedView

#: Limits in bytes from docs/performance.md#strided-aliases: smaller arrays, and arrays with longer runs
#: between gaps, are read about as fast as row-major ones.
_LEAST_STRIDED, _SHORT_RUN = 4096, 256
#: Built once: a reason with a fix takes 2 us.
_COPY = Fix(options={"copy": None}, effect="copies")
_COPY_REQUESTED = Reason("copy=True was passed", code="copy-requested")
_WRITABLE_REQUESTED = Reason(
    "writable=True was passed and the source declares its memory immutable",
    code="writable-requested",
    fixes=[Fix(options={"writable": None}, effect="aliases: do not write to the result")],
)
#: The `zerocopy.monitor.writes.Watcher`s of recordings that look for writes to immutable memory.
watchers: list[Any] = []


def plan(source: Source, request: Request) -> Plan:
    """Return the plan for an array of another framework, or of a type known only by its protocols.

    Raises
    ------
    ZeroCopyError
        The target has no such arrays, or the memory would be copied and ``copy=False`` was passed.
    """
    if source.refusal is not None:
        refusal = source.refusal
        raise UnsupportedConversionError(
            "", refusal.why, refusal.remedy, code=refusal.code, fixes=refusal.fixes
        )
    device = _device_of(source.view, request)
    reasons = _copy_reasons(source.view, source.reasons, request, device)
    run: Callable[[], Any]
    if source.view.device.is_host:
        run, step = _from_host(source, request, device, reasons)
    elif device.is_host:
        run, step = _to_host(source, request, device)
    else:
        run, step = _on_device(source, request, device, reasons)
    return _plan_of(source, request.target, reasons, run, step, device)


def plan_native(source: Source, request: Request) -> Plan | None:
    """Return the plan for an array of the target that the target copies; None if it is returned unchanged."""
    target, device = request.target, _device_of(source.view, request)
    reasons: list[Reason] = []
    if not same_memory_space(source.view.device, device):
        reasons.append(_transfer(source.view.device, device))
    reasons += _readonly_reasons(source.view, request)
    if not reasons and request.copy is not True and (request.writable is not False or source.view.readonly):
        return None
    if not target.can_copy_to_device:
        return plan(source, request)
    reasons = _apply_copy_option(request.copy, reasons, source.view)

    def run() -> Any:
        return target.copy_to_device(source.obj, device, request.stream) if reasons else source.obj

    return _plan_of(source, target, reasons, run, f"{target.name} copies to {device}", device)


def _device_of(view: StridedView, request: Request) -> Device:
    """Return the device of the result, which the target has."""
    target, device = request.target, request.device
    chosen = target.default_device(view) if device is None else target.parse_device(device)
    target.check_device(chosen)
    return chosen


# -- reasons ------------------------------------------------------------------------------


def _copy_reasons(view: StridedView, own: Sequence[Reason], request: Request, device: Device) -> list[Reason]:
    """Return why an array is copied; `own` has its source's reasons."""
    target = request.target
    # Called for every device, because these methods raise if a copy does not help.
    try:
        of_target = target.copy_reasons(view) if device.is_host else target.device_copy_reasons(view)
    except ZeroCopyError as error:
        # An array that a fix makes of the memory has its byte order too.
        if swapped := [((), reason) for reason in own if reason.code == "byte-order"]:
            error.obstacles, error.fixes = [((), error.reason), *swapped], ()
        raise
    reasons = list(own)
    if same_memory_space(view.device, device):
        reasons += of_target
        if request.writable:
            reasons += _readonly_reasons(view, request)
    else:
        if not (view.device.is_host or device.is_host or target.can_copy_to_device):
            why = f"the memory is on {view.device}, and {target.name} copies no memory between devices"
            raise UnsupportedConversionError(
                "", why, code="other-device", fixes=[Fix(options={"device": str(view.device)})]
            )
        reasons.append(_transfer(view.device, device))
    return reasons if request.copy is None else _apply_copy_option(request.copy, reasons, view)


def _transfer(here: Device, there: Device) -> Reason:
    return Reason(
        f"the memory is on {here} and the result will be on {there}",
        f"keep it on {here}, in a framework that supports {here.kind}",
        code="other-device",
    )


def _readonly_reasons(view: StridedView, request: Request) -> list[Reason]:
    return [_WRITABLE_REQUESTED] if request.writable and view.readonly and request.target.mutable else []


def _apply_copy_option(copy: bool | None, reasons: list[Reason], view: StridedView) -> list[Reason]:
    """Apply the option ``copy`` to the reasons; a zero-size array copies nothing."""
    if view.size == 0:
        return reasons
    if copy is False and reasons:
        raise _copy_required(reasons)
    if copy is True and not reasons:
        return [_COPY_REQUESTED]
    return reasons


def _copy_required(reasons: list[Reason]) -> CopyRequiredError:
    """Return the error of ``copy=False``."""
    why = "copy=False, but a copy is needed: " + "; ".join(r.why for r in reasons)
    error = CopyRequiredError("", why, code=reasons[0].code, fixes=[_COPY])
    error.obstacles = [((), reason) for reason in reasons]
    return error


# -- steps --------------------------------------------------------------------------------


def _from_host(
    source: Source, request: Request, device: Device, reasons: list[Reason]
) -> tuple[Callable[[], Any], str]:
    """Return the step for host memory, or a copy of it; `device` is where the result shall be."""
    target, dtype = request.target, source.view.dtype
    packs = target.packs_booleans and dtype.name == "bool"

    def run() -> Any:
        array = source.host()
        if packs:
            pass  # the target reads any strides
        elif source.reasons:
            # The copy of host() can be one that the target cannot alias, or read-only, as Pillow's bytes.
            if device.is_host and (
                _requires_copy(target, array, dtype) or (request.writable and not array.flags.writeable)
            ):
                array = aligned_copy(array)
        elif reasons and target.aliases_host and (device.is_host or not source.view.c_contiguous):
            array = aligned_copy(array)
        if request.writable is False and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        if watchers and not reasons and source.view.readonly and target.mutable:
            for watcher in watchers.copy():
                array = watcher.alias(array, source, target.name)
        return target.from_host(array, dtype, device, request.stream)

    if not reasons:
        return run, f"{target.name} aliases the memory"
    if not device.is_host:
        return run, f"{target.name} copies from the host to {device}"
    if packs or not target.aliases_host:
        return run, f"{target.name} copies the memory"
    if source.writer is not None:
        return run, f"cast to {dtype}; {target.name} aliases the copy"
    step = "copy to row-major, 64-byte aligned memory"
    if source.reasons:
        step = f"{source.name} copies its values"
    return run, f"{step}; {target.name} aliases the copy"


def _to_host(source: Source, request: Request, device: Device) -> tuple[Callable[[], Any], str]:
    target, dtype = request.target, source.view.dtype
    fetch = source.to_host or registry.RelayedCopy(source)
    if isinstance(fetch, (HostCopy, registry.RelayedCopy)):
        fetch.check()

    def run() -> Any:
        array = fetch(request.stream)
        if _requires_copy(target, array, dtype):
            array = aligned_copy(array)
        if request.writable is False:
            array.flags.writeable = False
        return target.from_host(array, dtype, device, request.stream)

    delivery = "aliases" if target.aliases_host else "copies"
    return run, f"copy from {source.view.device} to the host; {target.name} {delivery} the copy"


def _requires_copy(target: Framework, array: Array, dtype: DType) -> bool:
    """Whether `from_host` needs a copy of an ndarray; a target that itself copies host memory needs none."""
    return target.aliases_host and bool(target.copy_reasons(host_view(array, dtype)))


def _on_device(
    source: Source, request: Request, device: Device, reasons: list[Reason]
) -> tuple[Callable[[], Any], str]:
    target = request.target
    stays = same_memory_space(source.view.device, device)

    def run() -> Any:
        exported = source
        if reasons if stays else [*source.reasons, *target.device_copy_reasons(source.view)]:
            copier = source if source.contiguous is not None else _relayed(source)
            assert copier.contiguous is not None
            exported = _described(copier.contiguous())
        # The relay can be the target itself. The stream is one of the result's device.
        if exported.framework is target:
            result = exported.obj
        else:
            result = target.from_device(exported, request.stream if stays else None)
        return result if stays else target.copy_to_device(result, device, request.stream)

    if not reasons:
        return run, f"{target.name} aliases the memory on {source.view.device}"
    if stays:
        return run, f"copy on {device}; {target.name} aliases the copy"
    return run, f"copy from {source.view.device} to {device}"


def _relayed(source: Source) -> Source:
    """Describe device memory through a framework that can copy it; the protocols can only alias."""
    return _described(registry.relay(source.view).from_device(source, None))


def _described(obj: Any) -> Source:
    framework = registry.by_type(type(obj))
    assert framework is not None
    return registry.source_of(framework, obj)


def _plan_of(
    source: Source,
    target: Framework,
    reasons: list[Reason],
    run: Callable[[], Any],
    step: str,
    device: Device,
) -> Plan:
    view, copies, nbytes = source.view, bool(reasons), source.view.nbytes
    return Plan(
        source.summary,
        target.name if device.is_host else f"{target.name} on {device}",
        zero_copy=not copies and nbytes != 0,
        copied_bytes=nbytes if copies else 0,
        protocol=source.protocol,
        steps=(step,),
        reasons=tuple(reasons),
        warnings=() if copies or not nbytes else _warnings(view, nbytes, target),
        run=run,
        aliased_bytes=0 if copies else nbytes,
    )


def _warnings(view: StridedView, nbytes: int, target: Framework) -> tuple[str, ...]:
    """Return the warnings about an alias, which is not empty."""
    warnings, layout = [], target.slow_reads
    is_strided = layout and nbytes >= _LEAST_STRIDED and view.device.is_host and not view.c_contiguous
    if is_strided and (layout != "gaps" or view.run_bytes < _SHORT_RUN):
        warnings.append(
            f"{STRIDED_ALIAS}{target.name} reads it more slowly than row-major memory; "
            "pass copy=True if it is read more than once"
        )
    if view.readonly and target.mutable and not target.marks_readonly:
        warnings.append(
            f"the source is immutable and {target.name} cannot mark its alias read-only: writing to "
            "the result changes the source, or ends the process if its pages are read-only (writable=True "
            "copies instead)"
        )
    if not view.readonly and not target.mutable:
        warnings.append(
            f"{target.name} assumes that its arrays are immutable: writing to the source would change "
            "the result (copy=True takes a snapshot)"
        )
    return tuple(warnings)
