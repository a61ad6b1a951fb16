"""Why an array is copied for a target and its options: what ``explain`` reports and ``convert`` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy.device import Device, same_memory_space
from zerocopy.errors import CopyRequiredError, Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.strided_view import StridedView

#: Built once: a reason with a fix takes 2 us.
_COPY = Fix(options={"copy": None}, effect="copies")
_COPY_REQUESTED = Reason("copy=True was passed", code="copy-requested")
_WRITABLE_REQUESTED = Reason(
    "writable=True was passed and the source declares its memory immutable",
    code="writable-requested",
    fixes=[Fix(options={"writable": None}, effect="aliases: do not write to the result")],
)


def device_of(view: StridedView, target: Framework, device: Any) -> Device:
    """Return the device of the result, which the target has."""
    chosen = target.default_device(view) if device is None else target.parse_device(device)
    target.check_device(chosen)
    return chosen


def copy_reasons(
    view: StridedView,
    own: Sequence[Reason],
    target: Framework,
    device: Device,
    copy: bool | None,
    writable: bool | None,
) -> list[Reason]:
    """Return why an array is copied; `own` has its source's reasons."""
    # Called for every device, because these methods raise if a copy does not help.
    of_target = target.copy_reasons(view) if device.is_host else target.device_copy_reasons(view)
    reasons = list(own)
    if same_memory_space(view.device, device):
        reasons += of_target
        if writable:
            reasons += readonly_reasons(view, target, writable)
    else:
        if not (view.device.is_host or device.is_host or target.can_copy_to_device):
            why = f"the memory is on {view.device}, and {target.name} copies no memory between devices"
            raise UnsupportedConversionError(
                "", why, code="other-device", fixes=[Fix(options={"device": str(view.device)})]
            )
        reasons.append(transfer(view.device, device))
    return reasons if copy is None else apply_copy_option(copy, reasons, view)


def array_copies(
    view: StridedView, target: Framework, copy: bool | None, device: Any = None, writable: bool | None = None
) -> bool:
    """Whether the plan of an array that its memory holds copies it; raise if it is refused."""
    return bool(copy_reasons(view, (), target, device_of(view, target, device), copy, writable))


def transfer(here: Device, there: Device) -> Reason:
    return Reason(
        f"the memory is on {here} and the result will be on {there}",
        f"keep it on {here}, in a framework that supports {here.kind}",
        code="other-device",
    )


def readonly_reasons(view: StridedView, target: Framework, writable: bool | None) -> list[Reason]:
    return [_WRITABLE_REQUESTED] if writable and view.readonly and target.mutable else []


def apply_copy_option(copy: bool | None, reasons: list[Reason], view: StridedView) -> list[Reason]:
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
