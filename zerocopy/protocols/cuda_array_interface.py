"""The CUDA Array Interface, versions 2 and 3, as specified in Numba's documentation."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM, Device
from zerocopy.dtype import DType, from_numpy
from zerocopy.errors import LossyConversionError, UnsupportedConversionError
from zerocopy.protocols.exporter_errors import check_layout, is_error, malformed
from zerocopy.strided_view import StridedView, contiguous_strides


def of(obj: Any, asked: str) -> Any:
    """Return an object's interface, or None; refuse a torch tensor that requires gradients."""
    try:
        return getattr(obj, "__cuda_array_interface__", None)
    except RuntimeError as error:
        raise UnsupportedConversionError(
            asked, f"{type(obj).__name__}: {error}", "pass x.detach()", code="requires-grad"
        ) from error


def read(producer: Any, device_id: int = 0, interface: Any = None) -> tuple[StridedView, int | None]:
    """Return the memory of an object with ``__cuda_array_interface__``, and the stream to wait for.

    The stream is the producer's (version 3, "Synchronization"); None if there is nothing to wait
    for. The interface does not name the device, so the caller passes it; `interface` is its value, if
    the caller has read it. The pointer of zero-size arrays is 0 (version 2, "Pointer Attributes").
    """
    asked = f"{type(producer).__qualname__}.__cuda_array_interface__"
    try:
        entries = producer.__cuda_array_interface__ if interface is None else interface
        version = int(entries["version"])
        shape = tuple(int(n) for n in entries["shape"])
        address, readonly = entries["data"]
        ptr = int(address or 0)
        typestr = entries["typestr"]
        strides = entries.get("strides")
        strides = None if strides is None else tuple(int(s) for s in strides)
    except Exception as error:
        if not is_error(error):
            raise
        remedy = "expose shape, typestr, data and version, as version 3 of the interface requires"
        why = f"it could not be read ({type(error).__name__}: {error})"
        raise malformed(asked, why, remedy) from error
    if version < 2:
        raise UnsupportedConversionError(
            asked,
            f"version {version} is not supported",
            "upgrade the producer: versions 2 and 3 are supported",
            code="protocol-version",
        )
    if entries.get("mask") is not None:
        raise LossyConversionError(
            asked,
            "it has a mask, which would be lost",
            "fill or drop the masked elements first",
            code="masked",
        )
    dtype = _dtype(typestr, asked)
    if strides is None:
        strides = contiguous_strides(shape, dtype.itemsize)
    stream = entries.get("stream") if version >= 3 else LEGACY_DEFAULT_STREAM
    if stream == 0:
        remedy = "export 1 (legacy default), 2 (per-thread default) or None"
        raise malformed(asked, "its stream is 0, which version 3 disallows as ambiguous", remedy)
    check_layout(asked, ptr, shape, strides, dtype.itemsize)
    view = StridedView(ptr, shape, strides, dtype, Device(CUDA, device_id), bool(readonly), producer)
    return view, None if stream is None else int(stream)


class Handover:
    """A producer with ``__cuda_array_interface__`` over a view of memory that `owner` keeps alive.

    It corrects omissions and errors of producers: it always has strides, unsigned integers for a
    dtype that NumPy lacks, and the producer's stream (None if the memory is ready). It is never
    marked read-only, because consumers refuse read-only memory; the plan warns about it.
    """

    __slots__ = ("__cuda_array_interface__", "owner")

    def __init__(self, view: StridedView, stream: int | None, owner: Any) -> None:
        self.owner: Any = owner
        self.__cuda_array_interface__: dict[str, Any] = interface(view, stream)


def interface(view: StridedView, stream: int | None) -> dict[str, Any]:
    """Return the interface of a view, version 3."""
    return {
        "shape": view.shape,
        "strides": view.strides,
        "typestr": view.dtype.storage.str,
        "data": (view.ptr if view.size else 0, False),
        "stream": stream,
        "version": 3,
    }


def _dtype(typestr: str, asked: str) -> DType:
    try:
        dtype = from_numpy(np.dtype(typestr))
    except TypeError:
        dtype = None
    if dtype is None:
        raise UnsupportedConversionError(
            asked,
            f"its data type {typestr!r} has no counterpart",
            "cast it in the producer first",
            code="missing-dtype",
        )
    return dtype
