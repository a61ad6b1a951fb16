"""Where the memory of columns is: on a CUDA device or the host, and in which allocation.

Equal distances of columns prove nothing: malloc puts separate blocks at equal distances, with its own
headers between. Columns are one array only if one known allocation holds all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from zerocopy import registry
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.protocols import arrow_c, cuda_driver
from zerocopy.protocols.array_interface import allocation_of
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


def via_host(source: Source, compute: Callable[[], object] | None = None) -> Source:
    """Return a source on a device whose values are computed: by `compute` there, else by ``source.host``."""
    view = source.view

    def put() -> object:
        # Use any framework that can copy to the device, preferably an imported one.
        relay = registry.relay(view)
        return relay.from_host(source.host(), view.dtype, view.device, None)

    to_host = HostCopy(lambda stream: source.host(), source.check_copy)
    return replace(source, producer=None, to_host=to_host, contiguous=compute or put)


def check_driver(view: StridedView) -> None:
    """Refuse memory that the CUDA driver copies, before the conversion runs on a machine without one."""
    if view.size:
        cuda_driver.require(f"device={str(view.device)!r}")


def fetch(source: Source) -> Array:
    """Return a source's values in host memory: an alias if they are there."""
    if source.view.device.is_host:
        return source.host()
    if source.to_host is None:
        why = f"it is on {source.view.device}, and its framework cannot copy it to the host"
        raise UnsupportedConversionError("", why, "copy it to the host first", code="other-device")
    return source.to_host(None)


def in_one_allocation(whole: StridedView, column: StridedView) -> bool:
    """Whether the allocation of a column is known, and holds all bytes that `whole` spans."""
    if not whole.size:
        return True
    bounds = _allocation(column)
    if bounds is None:
        return False
    low, high = whole.bounds
    return bounds[0] <= low and high <= bounds[1]


def _allocation(view: StridedView) -> tuple[int, int] | None:
    """Return the bounds of the allocation that holds a view, if they are known."""
    owner = view.owner
    if isinstance(owner, StridedView):  # the array that this is a column of
        return _allocation(owner) or owner.bounds
    if isinstance(owner, np.ndarray):
        return allocation_of(owner)
    framework = registry.by_type(type(owner))
    return None if framework is None else framework.allocation(owner, view.ptr)
