"""Steps of plans for device memory: a copy to the host, on a device or between devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy import registry
from zerocopy.describe import describe_array
from zerocopy.device import Device, same_memory_space
from zerocopy.errors import Reason
from zerocopy.framework import Framework
from zerocopy.protocols.array_interface import aligned_copy, host_view
from zerocopy.source import HostCopy, Source


def to_host(
    source: Source, target: Framework, device: Device, stream: int | None, writable: bool | None
) -> tuple[Callable[[], Any], str]:
    dtype = source.view.dtype
    fetch = source.to_host or registry.RelayedCopy(source)
    if isinstance(fetch, (HostCopy, registry.RelayedCopy)):
        fetch.check()

    def run() -> Any:
        array = fetch(stream)
        if target.copy_reasons(host_view(array, source.view.dtype)):
            array = aligned_copy(array)
        if writable is False:
            array.flags.writeable = False
        return target.from_host(array, dtype, device, stream)

    return run, f"copy from {source.view.device} to the host; {target.name} aliases the copy"


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
