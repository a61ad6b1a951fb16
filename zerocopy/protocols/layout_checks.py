"""Checks of the addresses, shapes and strides that producers report, before memory is read."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from zerocopy.errors import UnsupportedConversionError
from zerocopy.protocols.exporter_errors import malformed

#: NumPy's limit (``NPY_MAXDIMS`` since 2.0). DLPack has none, so a wrong count would be read as
#: billions of dimensions.
MAX_NDIM = 64
#: On x86-64, the addresses of a process have at most 56 bits (five-level paging). On arm64, the highest
#: byte can be a tag.
_ADDRESSES = 1 << (57 if platform.machine() in ("x86_64", "AMD64") else 64)
_SIZES = 1 << 63  # sizes and strides in bytes are int64 in every framework


def check_ndim(asked: str, ndim: int) -> None:
    """Refuse a number of dimensions that is negative or above `MAX_NDIM`."""
    if ndim < 0:
        raise malformed(asked, f"its number of dimensions is {ndim}")
    if ndim > MAX_NDIM:
        raise UnsupportedConversionError(
            asked,
            f"it has {ndim} dimensions and zerocopy reads at most {MAX_NDIM}",
            "reshape it, or squeeze dimensions of size 1",
            code="too-many-dimensions",
        )


def check_layout(asked: str, ptr: int, shape: Sequence[int], strides: Sequence[int], itemsize: int) -> None:
    """Refuse a layout that no memory can have; the bytes themselves cannot be checked.

    Raises
    ------
    UnsupportedConversionError
        An extent is negative, the sizes do not match, a size or an address is too large,
        or elements lie at or below address 0.
    """
    check_ndim(asked, len(shape))
    if len(strides) != len(shape):
        raise malformed(asked, f"it has {len(shape)} dimensions and {len(strides)} strides")
    if shape and min(shape) < 0:
        raise malformed(asked, f"its shape {tuple(shape)} has a negative extent")
    size, low, high = itemsize, ptr, ptr + itemsize
    for extent, stride in zip(shape, strides, strict=True):
        # Empty dimensions are left out, as in NumPy: a slice of the array could have the other ones.
        size *= extent or 1
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    if size >= _SIZES:
        raise malformed(asked, f"its shape {tuple(shape)} has more than 2^63 bytes")
    if 0 in shape:
        return
    if low <= 0 or high > _ADDRESSES or high - low >= _SIZES:
        where = "NULL" if not ptr else f"{ptr:#x}"
        why = f"its data pointer is {where} for shape {tuple(shape)} and strides of {tuple(strides)} bytes"
        raise malformed(asked, why)
