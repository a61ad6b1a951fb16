"""DLPack's C exchange API of zerocopy's own types, so that consumers in C need no call of ``__dlpack__``.

The compiled core has the table of functions; without the core, the types have no such attribute. The public
name ``StridedView`` is imported from here, so that its type has the attribute.
"""

from __future__ import annotations

from typing import Any

from zerocopy._native import core
from zerocopy.device import Device
from zerocopy.dtype import by_dlpack
from zerocopy.strided_view import StridedView as StridedView, contiguous_strides


def make_view(
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: tuple[int, int, int],
    device: tuple[int, int],
    readonly: bool,
    owner: Any,
) -> StridedView:
    """Return a view of a tensor in C, whose strides count elements; `owner` releases the tensor."""
    known = by_dlpack(*dtype)
    if known is None:
        raise BufferError(f"zerocopy has no type with DLPack's code {dtype[0]} and {dtype[1]} bits")
    in_bytes = contiguous_strides(shape, known.itemsize)
    if strides is not None:
        in_bytes = tuple([stride * known.itemsize for stride in strides])
    return StridedView(address, shape, in_bytes, known, Device(*device), readonly, owner)


def add_to(cls: Any) -> None:
    """Give a type the C exchange API: `StridedView`, or a type with a method ``__zerocopy_view__``."""
    if _API is not None:
        cls.__dlpack_c_exchange_api__ = _API


_API = None if core is None else core.exchange_api(StridedView, make_view)
add_to(StridedView)
