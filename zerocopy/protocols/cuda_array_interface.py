"""The CUDA Array Interface, versions 2 and 3, as Numba's documentation specifies it."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.device import CUDA, LEGACY_DEFAULT_STREAM, Device
from zerocopy.dtype import DType, from_numpy
from zerocopy.errors import LossyConversionError, UnsupportedConversionError
from zerocopy.strided_view import StridedView, contiguous_strides


def of(obj: Any, asked: str) -> Any:
    """Return an object's interface, or None where it has none.

    Raises
    ------
    UnsupportedConversionError
        It has one and refuses it: torch of tensors that want gradients.
    """
    try:
        return getattr(obj, "__cuda_array_interface__", None)
    except RuntimeError as error:
        raise UnsupportedConversionError(
            asked, f"{type(obj).__name__}: {error}", "pass x.detach()"
        ) from error


def read(producer: Any, device_id: int = 0) -> tuple[StridedView, int | None]:
    """Describe the memory of an object with ``__cuda_array_interface__``.

    Parameters
    ----------
    producer : object
        Has ``__cuda_array_interface__``, version 2 or later.
    device_id : int
        The interface names no device: the caller must know it.

    Returns
    -------
    view : StridedView
        Its memory; the pointer is the device's and is not read.
    stream : int or None
        The producer's stream (version 3), which the consumer must wait for; None
        when there is nothing to wait for.

    Raises
    ------
    LossyConversionError
        It has a mask, which no consumer keeps.
    UnsupportedConversionError
        A version before 2, a stream of 0, a data type with no counterpart, or a
        malformed interface.

    Notes
    -----
    Of zero-size arrays the pointer is 0 (version 2, "Pointer Attributes"); the
    stream 0 is refused as ambiguous (version 3, "Synchronization").
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
            "expose shape, typestr, data and version, as version 3 of the interface says",
        ) from error
    if version < 2:
        raise UnsupportedConversionError(
            asked, f"version {version} is not supported", "upgrade the producer: 2 and 3 are"
        )
    if interface.get("mask") is not None:
        raise LossyConversionError(
            asked, "it has a mask, which would be lost", "fill or drop the masked elements first"
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
        )
    if not ptr and 0 not in shape:
        raise UnsupportedConversionError(asked, f"its pointer is 0 for shape {shape}", "mend the exporter")
    view = StridedView(
        int(ptr or 0), shape, strides, dtype, Device(CUDA, device_id), bool(readonly), producer
    )
    return view, None if stream is None else int(stream)


class Handover:
    """A view with the interface's dunder, for consumers that want an object and not a description.

    It says what producers leave out or say wrongly: the strides in any case, the type as
    unsigned integers where NumPy lacks it, and the stream to wait for. It never says
    "read-only": consumers refuse that rather than mark their arrays, and the plan has
    told the caller already.

    Parameters
    ----------
    view : StridedView
        Memory on a CUDA device.
    stream : int or None
        The producer's stream, None if there is nothing to wait for.
    owner : object
        Keeps the memory alive for as long as this object lives.
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
            asked, f"its data type {typestr!r} has no counterpart", "cast it in the producer first"
        )
    return dtype
