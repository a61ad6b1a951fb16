"""Objects that have no file here, described by the protocols that they speak.

The ladder, first rung that fits: DLPack, the CUDA Array Interface, NumPy's array
interface, the Arrow C data interface, the buffer protocol. A class that exposes
one dunder and nothing else is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from zerocopy.device import CUDA, HOST, NO_SYNC_STREAM, Device, parse_device
from zerocopy.dtype import from_numpy
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.framework import Source
from zerocopy.protocols import array_interface, arrow_c, cuda_array_interface, cuda_driver, dlpack
from zerocopy.strided_view import StridedView

# NumPy takes versioned capsules from 2.1 on, and sends no stream for host memory.
_VERSIONED = tuple(int(n) for n in np.__version__.split(".")[:2]) >= (2, 1)

_REMEDY = (
    "pass an array: something with __dlpack__, __cuda_array_interface__, "
    "__array_interface__, __arrow_c_array__ or the buffer protocol"
)


def describe(obj: Any) -> Source:
    """Describe any object that speaks a protocol.

    Raises
    ------
    UnsupportedConversionError
        It speaks none, or what it says is wrong.
    """
    # Looked up on the type, as Python does for dunders: an instance's __getattr__
    # must not be able to pretend (mocks and proxies answer to every name).
    cls = type(obj)
    if hasattr(cls, "__dlpack__"):
        return _dlpack(obj)
    if _offers(obj, "__cuda_array_interface__"):
        return _cai(obj)
    if _offers(obj, "__array_interface__"):
        return _host(obj, lambda: np.asarray(obj), "array-interface")
    if hasattr(cls, "__arrow_c_device_array__"):
        return _arrow(obj, arrow_c.read_device_array)
    if hasattr(cls, "__arrow_c_array__"):
        return _arrow(obj, arrow_c.read_array)
    try:
        buffer = memoryview(obj)
    except TypeError:
        raise _no_protocol(obj) from None
    except ValueError as error:  # a closed mmap
        raise UnsupportedConversionError(
            f"convert({_name(obj)})", f"its buffer cannot be read: {error}", "keep it open"
        ) from error
    return _host(obj, lambda: np.asarray(buffer), "buffer")


def _arrow(obj: Any, read: Callable[[Any], arrow_c.Memory]) -> Source:
    from zerocopy.tables.arrow_column import ArrowColumn
    from zerocopy.tables.decode import as_tensor

    memory = read(obj)
    return as_tensor(
        ArrowColumn(_name(obj), memory.field, lambda: [memory], memory.length, device=memory.device)
    )


def _offers(obj: Any, name: str) -> bool:
    """Whether an instance has an interface; a property that raises is one, and its reader says so."""
    try:
        return hasattr(obj, name) and not isinstance(obj, type)
    except Exception:  # noqa: BLE001
        return True


def _name(obj: Any) -> str:
    cls = type(obj)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _no_protocol(obj: Any) -> UnsupportedConversionError:
    remedy = _REMEDY
    if hasattr(type(obj), "__next__"):
        remedy = "collect what it yields: list(x) of arrays is converted one by one"
    elif type(obj).__name__ == "PyCapsule":
        remedy = "pass the array that it came from: a capsule can be read once only"
    elif hasattr(type(obj), "to_numpy"):  # a data frame or a series
        remedy = "pass its values, x.to_numpy()"
    elif hasattr(type(obj), "toarray"):  # SciPy's sparse arrays
        remedy = "make it dense, x.toarray(), or convert its parts: x.data, x.indices, x.indptr"
    elif isinstance(obj, (int, float, complex)):
        remedy = "make an array of the numbers: numpy.asarray(x), of the whole list if they are in one"
    return UnsupportedConversionError(
        f"convert({_name(obj)})", f"{_name(obj)} is no array and speaks no protocol", remedy
    )


def _host(obj: Any, load: Any, protocol: str) -> Source:
    asked = f"convert({_name(obj)})"
    try:
        array: np.ndarray[Any, Any] = load()
    except Exception as error:
        raise UnsupportedConversionError(
            asked,
            f"its {protocol} could not be read ({type(error).__name__}: {error})",
            "mend the exporter, or pass an array",
        ) from error
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    dtype = from_numpy(native)
    if dtype is None:
        raise UnsupportedConversionError(
            asked, f"tensors have no counterpart of {array.dtype}", "pass its bytes, or numbers"
        )
    swapped = () if array.dtype.isnative else (_swapped(array.dtype),)
    view = StridedView(
        array_interface.address(array),
        array.shape,
        array.strides,
        dtype,
        HOST,
        not array.flags.writeable,
        array,
    )
    return Source(
        _name(obj),
        view,
        (lambda: array.astype(native)) if swapped else (lambda: array),
        protocol,
        swapped,
        obj=obj,
    )


def _swapped(dtype: np.dtype[Any]) -> Reason:
    return Reason(f"the bytes are in the other order ({dtype.str})", "x.astype(x.dtype.newbyteorder('='))")


def _dlpack(obj: Any) -> Source:
    device = dlpack.device_of(obj)
    if not device.is_host:
        return _device_dlpack(obj)
    capsule = dlpack.request(obj, max_version=dlpack.MAX_VERSION if _VERSIONED else None)
    view = dlpack.read(capsule, obj)
    reasons: tuple[Reason, ...] = ()
    if dlpack.is_copy(capsule):
        # The specification's flag for exactly this: what we hold is not the
        # producer's memory, and to call it an alias would be a lie.
        reasons = (Reason("the exporter hands out a copy", "ask the producer for a view"),)
    return Source(_name(obj), view, lambda: dlpack.as_ndarray(capsule, view), "dlpack", reasons, obj=obj)


def _device_dlpack(obj: Any) -> Source:
    # -1: describing needs no synchronisation; the conversion asks again with the
    # consumer's stream. A stream's number would have that stream wait for the producer,
    # and end the capture of a graph (cudaErrorStreamCaptureImplicit).
    view = dlpack.read(dlpack.request(obj, stream=NO_SYNC_STREAM), obj)
    return Source(_name(obj), view, _not_on_host, "dlpack", obj=obj, producer=obj)


def _cai(obj: Any) -> Source:
    view, _ = cuda_array_interface.read(obj)
    index = cuda_driver.ordinal(view.ptr)  # the interface names no device
    if index is None:
        device = parse_device(getattr(obj, "device", None))
        index = device.id if device is not None else 0
    view = replace(view, device=Device(CUDA, index))
    return Source(_name(obj), view, _not_on_host, "cuda-array-interface", obj=obj, producer=obj)


def _not_on_host() -> np.ndarray[Any, Any]:
    raise AssertionError("device memory has no host alias")
