"""Steps of plans: a handover on the host, a copy to it, on a device or between devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy import registry
from zerocopy.describe import describe_array
from zerocopy.device import Device, same_memory_space
from zerocopy.dtype import DType
from zerocopy.errors import Reason
from zerocopy.framework import Framework
from zerocopy.protocols.array_interface import aligned_copy, host_view
from zerocopy.source import Array, HostCopy, Source


def from_host(
    source: Source,
    target: Framework,
    device: Device,
    stream: int | None,
    reasons: list[Reason],
    writable: bool | None,
) -> tuple[Callable[[], Any], str]:
    """Plan the handover of host memory, or its copy; `device` is where the result shall be."""
    dtype = source.view.dtype
    packs = target.packs_booleans and dtype.name == "bool"

    def run() -> Any:
        array = source.host()
        if packs:
            pass  # the target reads any strides
        elif source.reasons:
            # The copy of host() can be one that the target cannot alias, or read-only, as Pillow's bytes.
            if device.is_host and (
                _requires_copy(target, array, dtype) or (writable and not array.flags.writeable)
            ):
                array = aligned_copy(array)
        elif reasons and target.aliases_host and (device.is_host or not source.view.c_contiguous):
            array = aligned_copy(array)
        if writable is False and array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        return target.from_host(array, dtype, device, stream)

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


def to_host(
    source: Source, target: Framework, device: Device, stream: int | None, writable: bool | None
) -> tuple[Callable[[], Any], str]:
    dtype = source.view.dtype
    fetch = source.to_host or registry.RelayedCopy(source)
    if isinstance(fetch, (HostCopy, registry.RelayedCopy)):
        fetch.check()

    def run() -> Any:
        array = fetch(stream)
        if _requires_copy(target, array, dtype):
            array = aligned_copy(array)
        if writable is False:
            array.flags.writeable = False
        return target.from_host(array, dtype, device, stream)

    delivery = "aliases" if target.aliases_host else "copies"
    return run, f"copy from {source.view.device} to the host; {target.name} {delivery} the copy"


def _requires_copy(target: Framework, array: Array, dtype: DType) -> bool:
    """Whether `from_host` needs a copy of an ndarray; a target that itself copies host memory needs none."""
    return target.aliases_host and bool(target.copy_reasons(host_view(array, dtype)))


def on_device(
    source: Source, target: Framework, device: Device, stream: int | None, reasons: list[Reason]
) -> tuple[Callable[[], Any], str]:
    stays = same_memory_space(source.view.device, device)

    def run() -> Any:
        exported = source
        if reasons if stays else [*source.reasons, *target.device_copy_reasons(source.view)]:
            copier = source if source.contiguous is not None else _relayed(source)
            assert copier.contiguous is not None
            exported = describe_array(copier.contiguous())
        # The relay can be the target itself. The stream is one of the result's device.
        if exported.framework is target:
            result = exported.obj
        else:
            result = target.from_device(exported, stream if stays else None)
        return result if stays else target.copy_to_device(result, device, stream)

    if not reasons:
        return run, f"{target.name} aliases the memory on {source.view.device}"
    if stays:
        return run, f"copy on {device}; {target.name} aliases the copy"
    return run, f"copy from {source.view.device} to {device}"


def _relayed(source: Source) -> Source:
    """Describe device memory through a framework that can copy it; the protocols can only alias."""
    return describe_array(registry.relay(source.view).from_device(source, None))
