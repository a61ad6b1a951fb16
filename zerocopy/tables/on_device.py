"""Columns on a CUDA device as sources, aliased or computed; and sources brought to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from zerocopy import registry
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.protocols import arrow_c, cuda_driver
from zerocopy.protocols.arrow_c import Memory
from zerocopy.source import Array, HostCopy, Source
from zerocopy.strided_view import StridedView


def alias(name: str, view: StridedView, chunk: Memory, reasons: Sequence[Reason]) -> Source:
    """Return a buffer on a device as a source that exports the CUDA Array Interface."""

    def to_host(stream: int | None) -> Array:
        # `stream` is not needed: the copy waits for the producer's work and is complete on return.
        return arrow_c.fetch(chunk, view.ptr, view.size, view.dtype).reshape(view.shape)

    lent = arrow_c.BufferProducer(view, chunk)
    return Source(
        name,
        view,
        lambda: to_host(None),
        "cuda-array-interface",
        reasons,
        obj=lent,
        to_host=HostCopy(to_host, lambda: check_driver(view)),
        producer=lent,
    )


def via_host(source: Source, compute: Callable[[], Any] | None = None) -> Source:
    """Return a source on a device whose values are computed: by `compute` there, else by ``source.host``."""
    view = source.view

    def put() -> Any:
        # Use any framework that can copy to the device, preferably an imported one.
        relay = registry.relay(view)
        return relay.from_host(source.host(), view.dtype, view.device, None)

    to_host = HostCopy(lambda stream: source.host(), source.check_copy)
    return replace(source, producer=None, to_host=to_host, contiguous=compute or put)


def check_driver(view: StridedView) -> None:
    """Refuse memory that the CUDA driver copies, before the conversion runs on a machine without one."""
    if view.size:
        cuda_driver.require(f"device={str(view.device)!r}")


def check(source: Source) -> None:
    """Refuse device memory that no framework can copy to the host, before the conversion runs."""
    source.check_copy()


def fetch(source: Source) -> Array:
    """Return a source's values in host memory: an alias if they are there."""
    if source.view.device.is_host:
        return source.host()
    if source.to_host is None:
        why = f"it is on {source.view.device}, and its framework cannot copy it to the host"
        raise UnsupportedConversionError("", why, "copy it to the host first", code="other-device")
    return source.to_host(None)
