"""Columns on a CUDA device as sources: aliased where they lie, made by way of the host where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from zerocopy import registry
from zerocopy.errors import Reason
from zerocopy.protocols import arrow_device
from zerocopy.protocols.arrow_c import Memory
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView


def alias(name: str, view: StridedView, chunk: Memory, reasons: Sequence[Reason]) -> Source:
    """Return a buffer on a device as a source that lends it through the CUDA Array Interface."""

    def to_host(stream: int | None) -> Array:
        # Whatever the stream: the copy is made after the producer's work, and is done.
        return arrow_device.fetch(chunk, view.ptr, view.size, view.dtype).reshape(view.shape)

    lent = arrow_device.BufferProducer(view, chunk)
    return Source(
        name,
        view,
        lambda: to_host(None),
        "cuda-array-interface",
        reasons,
        obj=lent,
        to_host=to_host,
        producer=lent,
    )


def made(source: Source, there: Callable[[], Any] | None = None) -> Source:
    """Return a source on a device whose values are made: where they are wanted, from `host`.

    Parameters
    ----------
    source : Source
        Its view says the device; ``host()`` makes the values on the host.
    there : callable, optional
        Returns an object with the values on the device, without a way by the host.
    """
    view = source.view

    def put() -> Any:
        # Framework-neutral: whoever is here and moves memory brings it to the device.
        relay = registry.relay(view)
        return relay.from_host(source.host(), view.dtype, view.device, None)

    return replace(
        source,
        producer=None,
        to_host=lambda stream: source.host(),
        contiguous=there if there is not None else put,
    )
