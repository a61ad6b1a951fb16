"""The CUDA Array Interface, versions 2 and 3, as specified in Numba's documentation."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM, Device
from zerocopy.dtype import DType, from_numpy
from zerocopy.errors import LossyConversionError, UnsupportedConversionError
from zerocopy.strided_view import StridedView, contiguous_strides


def of(obj: Any, asked: str) -> Any:
    """Return an object's interface, or None if it has none.

    Raises
    ------
    UnsupportedConversionError
        The object refuses to export it: a torch tensor that requires gradients.
    """
    try:
        return getattr(obj, "__cuda_array_interface__", None)
    except RuntimeError as error:
        raise UnsupportedConversionError(
            asked, f"{type(obj).__name__}: {error}", "pass x.detach()", code="requires-grad"
        ) from error


def read(producer: Any, device_id: int = 0) -> tuple[StridedView, int | None]:
    """Describe the memory of an object with ``__cuda_array_interface__``.

    Parameters
    ----------
    producer : object
        Has ``__cuda_array_interface__``, version 2 or later.
    device_id : int
        The interface does not name the device.

    Returns
    -------
    view : StridedView
        Its device memory.
    stream : int or None
        The producer's stream (version 3), for which the consumer must wait; None if there is
        nothing to wait for.

    Raises
    ------
    LossyConversionError
        It has a mask, which consumers ignore.
    UnsupportedConversionError
        A version before 2, a stream of 0, a data type with no counterpart, or a malformed interface.

    Notes
    -----
    The pointer of zero-size arrays is 0 (version 2, "Pointer Attributes"). Stream 0 is disallowed
    as ambiguous (version 3, "Synchronization").
    """
    asked = f"{type(producer).__qualname__}.__cuda_array_interface__"
    try:
        interface = producer.__cuda_array_interface__
        version = int(interface["version"])
        shape = tuple(int(n) for n in interface["shape"])
        ptr, readonly = interface["data"]
        typestr = interface["typestr"]
    except Exception as error:
        raise UnsupportedConversionError(
            asked,
            f"it could not be read ({type(error).__name__}: {error})",
            "expose shape, typestr, data and version, as version 3 of the interface requires",
            code="exporter-error",
        ) from error
    if version < 2:
        raise UnsupportedConversionError(
            asked,
            f"version {version} is not supported",
            "upgrade the producer: versions 2 and 3 are supported",
            code="protocol-version",
        )
    if interface.get("mask") is not None:
        raise LossyConversionError(
            asked,
            "it has a mask, which would be lost",
            "fill or drop the masked elements first",
            code="masked",
        )
    dtype = _dtype(typestr, asked)
    strides = interface.get("strides")
    strides = contiguous_strides(shape, dtype.itemsize) if strides is None else tuple(int(s) for s in strides)
    stream = interface.get("stream") if version >= 3 else LEGACY_DEFAULT_STREAM
    if stream == 0:
        raise UnsupportedConversionError(
            asked,
            "its stream is 0, which version 3 disallows as ambiguous",
            "export 1 (legacy default), 2 (per-thread default) or None",
            code="exporter-error",
        )
    if not ptr and 0 not in shape:
        raise UnsupportedConversionError(
            asked, f"its pointer is 0 for shape {shape}", "fix the exporter", code="exporter-error"
        )
    view = StridedView(
        int(ptr or 0), shape, strides, dtype, Device(CUDA, device_id), bool(readonly), producer
    )
    return view, None if stream is None else int(stream)


class Handover:
    """A producer with ``__cuda_array_interface__`` over a view of memory that `owner` keeps alive.

    It corrects what producers omit or get wrong: it always has the strides, has unsigned integers
    for a dtype that NumPy lacks, and the producer's stream (None if the memory is ready). It is never
    marked read-only, because consumers refuse read-only memory; the plan warns about it.
    """

    __slots__ = ("__cuda_array_interface__", "owner")

    def __init__(self, view: StridedView, stream: int | None, owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
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
