"""DLPack, from the standard itself (dlpack.h 1.2 and its Python specification).

The package called ``dlpack`` on PyPI is an empty placeholder. What is here: the
structs as ctypes, the capsule names, versions and flags; asking a producer for
a capsule; reading a capsule without consuming it; and lending NumPy's exporter
to data types that NumPy does not export.

No capsule is built here: a capsule's deleter may run in any thread, at any
time, also after the interpreter is gone, so it must not be Python code (law 7).
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from zerocopy.device import CUDA, CUDA_MANAGED, HOST, Device
from zerocopy.dtype import DType, by_dlpack, from_numpy
from zerocopy.errors import DeviceError, UnsupportedConversionError
from zerocopy.protocols.array_interface import writable_alias
from zerocopy.strided_view import StridedView, contiguous_strides

LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"
FLAG_READ_ONLY, FLAG_IS_COPIED, FLAG_SUBBYTE_PADDED = 1, 2, 4
#: The highest version whose structs are declared below.
MAX_VERSION = (1, 2)

#: Whether the deleter of NumPy's capsules takes the GIL, without which it may not run
#: in a consumer's own threads (numpy/numpy#22507, mended in 1.24).
NUMPY_DELETER_IS_SAFE = tuple(int(n) for n in np.__version__.split(".")[:2]) >= (1, 24)

#: A capsule is a ``PyCapsule``; typeshed has no public name for it.
Capsule = Any


class DLTensor(ctypes.Structure):
    """``DLTensor``: `strides` count elements, and NULL means row-major (before 1.2)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    """``DLManagedTensor``, in capsules named ``dltensor``."""

    _fields_ = (
        ("dl_tensor", DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class DLManagedTensorVersioned(ctypes.Structure):
    """``DLManagedTensorVersioned``, in capsules named ``dltensor_versioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", DLTensor),
    )


# Prototypes of our own: ctypes.pythonapi has one function object a name for the whole
# process, and argument types set on it break others that use it (MXNet's deleter
# passes a c_void_p, and raised), as theirs would break us.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))


class Producer(Protocol):
    """What speaks DLPack: the two dunders of its Python specification."""

    def __dlpack__(self, *, stream: Any = None) -> Capsule: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


def device_of(producer: Any) -> Device:
    """Return what ``__dlpack_device__`` says."""
    asked = f"{_name(producer)}.__dlpack_device__()"
    try:
        answer = producer.__dlpack_device__()
    except Exception as error:
        raise UnsupportedConversionError(
            asked, f"the exporter raised {type(error).__name__}: {error}", "mend the exporter"
        ) from error
    try:
        kind, index = answer
        # Paddle says (kDLCPU, None) of host memory, where there is but one device.
        return Device(int(kind), 0 if index is None else int(index))
    except (TypeError, ValueError) as error:
        raise UnsupportedConversionError(
            asked,
            f"it returned {answer!r}, not a pair of ints",
            "return (device_type, device_id) as the DLPack specification says",
        ) from error


def request(
    producer: Any, *, stream: int | None = None, max_version: tuple[int, int] | None = MAX_VERSION
) -> Capsule:
    """Ask a producer for a capsule, the way old and new ones understand.

    Parameters
    ----------
    producer : object
        Has ``__dlpack__``.
    stream : int, optional
        The consumer's stream (see :func:`zerocopy.device.parse_stream`); not
        passed at all when None, since CPU exporters of some versions refuse it.
    max_version : tuple of int, optional
        The highest DLPack version that the consumer takes; None asks for a
        legacy capsule.

    Returns
    -------
    PyCapsule
        Named ``dltensor_versioned``, or ``dltensor`` from a legacy exporter.

    Raises
    ------
    UnsupportedConversionError
        The exporter raised, or returned no unconsumed DLPack capsule.

    Notes
    -----
    Producers from before DLPack 1.0 do not know ``max_version`` and raise
    ``TypeError``; the specification tells consumers to ask again without it
    (array API 2023.12, ``array.__dlpack__``, "max_version").
    """
    keywords: dict[str, Any] = {} if stream is None else {"stream": stream}
    try:
        if max_version is None:
            capsule = producer.__dlpack__(**keywords)
        else:
            try:
                capsule = producer.__dlpack__(max_version=max_version, **keywords)
            except TypeError:
                capsule = producer.__dlpack__(**keywords)
    except Exception as error:
        raise UnsupportedConversionError(
            f"{_name(producer)}.__dlpack__()",
            f"the exporter raised {type(error).__name__}: {error}",
            "see the exporter's own message, above",
        ) from error
    name_of(capsule, producer)
    return capsule


def name_of(capsule: Capsule, producer: Any = None) -> bytes:
    """Return a capsule's name, if it is a DLPack capsule that nobody has consumed.

    Raises
    ------
    UnsupportedConversionError
        It is no capsule, another protocol's, or consumed already.
    """
    asked = f"{_name(producer)}.__dlpack__()" if producer is not None else "a DLPack capsule"
    if type(capsule).__name__ != "PyCapsule":
        raise UnsupportedConversionError(
            asked, f"it returned {type(capsule).__name__}, not a capsule", "mend the exporter"
        )
    name: bytes | None = _get_name(capsule)
    if name in (LEGACY, VERSIONED):
        return name
    if name in (b"used_dltensor", b"used_dltensor_versioned"):
        raise UnsupportedConversionError(
            asked,
            "the capsule is consumed already: each one can be imported once",
            "ask the producer for a fresh capsule, or pass the producer itself",
        )
    raise UnsupportedConversionError(
        asked, f"the capsule is named {name!r}: it is not DLPack's", "pass a DLPack capsule"
    )


def _tensor(capsule: Capsule) -> tuple[DLTensor, int]:
    """Return the capsule's ``DLTensor`` and its flags (0 for legacy ones)."""
    name = name_of(capsule)
    address = _get_pointer(capsule, name)
    if name == LEGACY:
        return DLManagedTensor.from_address(address).dl_tensor, 0
    managed = DLManagedTensorVersioned.from_address(address)
    if managed.major > MAX_VERSION[0]:
        # Of a newer major version only the version, the context and the deleter
        # may be read (dlpack.h, DLManagedTensorVersioned).
        raise UnsupportedConversionError(
            "a DLPack capsule",
            f"it has DLPack version {managed.major}.{managed.minor}, and its layout is not known",
            "upgrade zerocopy, or honour max_version in the exporter",
        )
    return managed.dl_tensor, int(managed.flags)


def tensor_of(capsule: Capsule) -> DLTensor:
    """Return the struct in an unconsumed capsule; to change it changes what the consumer reads.

    It is valid for as long as the capsule is.
    """
    return _tensor(capsule)[0]


def read(capsule: Capsule, producer: Any = None) -> StridedView:
    """Describe a capsule's memory without consuming the capsule.

    Parameters
    ----------
    capsule : PyCapsule
        Unconsumed; the view holds it, and with it the memory.
    producer : object, optional
        Where it came from, for messages and to check what it claims.

    Raises
    ------
    UnsupportedConversionError
        A data type that has no name here, or a NULL pointer with elements.
    DeviceError
        The capsule is on another device than ``__dlpack_device__`` said.
    """
    tensor, flags = _tensor(capsule)
    asked = f"{_name(producer)}.__dlpack__()" if producer is not None else "a DLPack capsule"
    dtype = by_dlpack(tensor.code, tensor.bits, tensor.lanes)
    if dtype is None:
        raise UnsupportedConversionError(
            asked,
            f"its data type (code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes) has no "
            "counterpart",
            "convert it to a standard data type in the producer first",
        )
    device = Device(tensor.device_type, tensor.device_id)
    if producer is not None and device_of(producer) != device:
        raise DeviceError(
            asked,
            f"__dlpack_device__() says {device_of(producer)} and the capsule says {device}",
            "mend the exporter: one of the two is wrong, and a guess could crash the process",
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    else:
        strides = contiguous_strides(shape, dtype.itemsize)
    ptr = (tensor.data or 0) + tensor.byte_offset
    if not tensor.data and 0 not in shape:
        raise UnsupportedConversionError(
            asked, f"its data pointer is NULL for shape {shape}", "mend the exporter"
        )
    return StridedView(ptr, shape, strides, dtype, device, bool(flags & FLAG_READ_ONLY), (capsule, producer))


def is_copy(capsule: Capsule) -> bool:
    """Whether the producer set ``DLPACK_FLAG_BITMASK_IS_COPIED``: the capsule has memory of its own."""
    return bool(_tensor(capsule)[1] & FLAG_IS_COPIED)


class Handover:
    """A capsule with the two dunders, for consumers that want an object and not a capsule."""

    __slots__ = ("_capsule", "_device")

    def __init__(self, capsule: Capsule, device: Device = HOST) -> None:
        self._capsule = capsule
        self._device = device

    def __dlpack__(self, **_options: Any) -> Capsule:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def retype(capsule: Capsule, dtype: DType) -> Capsule:
    """Change the data type that an unconsumed capsule names; same width only.

    NumPy's exporter refuses the types of ``ml_dtypes``, and no capsule of our own
    may be built (law 7): so NumPy exports the bytes as unsigned integers, and the
    struct, which is the consumer's to read until it is consumed, gets its true
    ``DLDataType``. The deleter stays NumPy's own.
    """
    tensor, _ = _tensor(capsule)
    if tensor.bits * tensor.lanes != dtype.itemsize * 8:
        raise ValueError(f"{dtype} has not the width of the capsule's type ({tensor.bits} bits)")
    tensor.code, tensor.bits, tensor.lanes = dtype.code, dtype.bits, dtype.lanes
    return capsule


def as_cuda(capsule: Capsule) -> Capsule:
    """Have an unconsumed capsule of managed memory say that it is on its device, where it is too.

    For importers that know no ``kDLCUDAManaged``: torch's and JAX's refuse it.
    """
    tensor, _ = _tensor(capsule)
    if tensor.device_type == CUDA_MANAGED:
        tensor.device_type = CUDA
    return capsule


def export(array: np.ndarray[Any, Any], dtype: DType) -> Capsule:
    """Return a legacy capsule that aliases host memory, of any data type.

    Parameters
    ----------
    array : numpy.ndarray
        Writable (see :func:`zerocopy.protocols.array_interface.writable_alias`).
    dtype : DType
        What the elements are.

    Returns
    -------
    PyCapsule
        Named ``dltensor``; it keeps `array` alive.
    """
    if dtype.in_numpy and dtype.name != "bool":
        return array.__dlpack__()
    # Booleans too: NumPy exports them from 1.25 on, and MXNet's environment has 1.23.
    return retype(array.view(dtype.storage if not dtype.in_numpy else np.uint8).__dlpack__(), dtype)


def as_ndarray(capsule: Capsule, view: StridedView) -> np.ndarray[Any, Any]:
    """Consume a host capsule into an ndarray in ``view.dtype.storage`` that owns it.

    NumPy runs the capsule's deleter when the last ndarray on it goes.
    """
    storage = view.dtype.storage
    if view.dtype.name == "bool":
        storage = np.dtype(np.uint8)
    unsigned = from_numpy(storage)
    assert unsigned is not None
    if unsigned is not view.dtype:
        retype(capsule, unsigned)
    array = np.from_dlpack(Handover(capsule))
    if not view.readonly:
        array = writable_alias(array)  # NumPy marks what comes in a legacy capsule as read-only
    return array if view.dtype.name != "bool" else array.view(np.bool_)


def _name(producer: Any) -> str:
    return type(producer).__qualname__
