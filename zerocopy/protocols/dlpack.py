"""DLPack (dlpack.h 1.2 and its Python specification): requests, reads and changes capsules.

Capsules are never created here: a deleter may run in any thread, and after the interpreter has
exited, so it must not be Python code (law 7). NumPy's exporter creates them, for dtypes that NumPy
lacks too (see `retype`). The package ``dlpack`` on PyPI is an empty placeholder.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from zerocopy.device import CUDA, CUDA_MANAGED, HOST, Device
from zerocopy.dtype import DType, by_dlpack, from_numpy
from zerocopy.errors import DeviceError, UnsupportedConversionError, ZeroCopyError
from zerocopy.protocols.array_interface import writable_alias
from zerocopy.protocols.exporter_errors import calling, check_layout, check_ndim, malformed
from zerocopy.source import Array
from zerocopy.strided_view import StridedView, contiguous_strides

LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"
FLAG_READ_ONLY, FLAG_IS_COPIED = 1, 2
#: The highest version whose structs are declared below.
MAX_VERSION = (1, 2)

NUMPY_TAKES_VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"

Capsule = Any  #: ``PyCapsule``, for which typeshed has no public name


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


#: The fields of `DLTensor`, in its order and without padding; pointers as integers.
_FIELDS = struct.Struct("@PiiiBBHPPQ")


class DLManagedTensor(ctypes.Structure):
    """``DLManagedTensor``, in capsules named ``dltensor``."""

    _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


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


# Private prototypes: ctypes.pythonapi shares one function object per name in the process, so setting
# argument types on it would break other users (MXNet's deleter passes a c_void_p, and raised).
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))


def device_of(producer: Any) -> Device:
    """Return the device that ``__dlpack_device__`` reports."""
    asked = f"{_name(producer)}.__dlpack_device__()"
    with calling(asked):
        is_complete = hasattr(producer, "__dlpack_device__")
    if not is_complete:
        why = f"{_name(producer)} has __dlpack__ and no __dlpack_device__, which DLPack requires"
        raise malformed(asked, why, "add the method; for host memory it returns (1, 0)")
    with calling(asked):
        answer = producer.__dlpack_device__()
    try:
        kind, index = answer
        # Paddle returns (kDLCPU, None) for host memory.
        return Device(int(kind), 0 if index is None else int(index))
    except (TypeError, ValueError) as error:
        remedy = "return (device_type, device_id) as the DLPack specification requires"
        raise malformed(asked, f"it returned {answer!r}, not a pair of ints", remedy) from error


def request(
    producer: Any, *, stream: int | None = None, max_version: tuple[int, int] | None = MAX_VERSION
) -> Capsule:
    """Request a capsule from a producer of any DLPack version.

    `stream` is the consumer's; None is not passed, since some versions' CPU exporters refuse it.
    `max_version` is the highest version that the consumer takes; None requests a legacy capsule.
    Producers older than DLPack 1.0 raise ``TypeError`` for `max_version`, and the request is then
    repeated without it (array API 2023.12, ``array.__dlpack__``, "max_version").
    """
    keywords: dict[str, Any] = {} if stream is None else {"stream": stream}
    with calling(f"{_name(producer)}.__dlpack__()"):
        if max_version is None:
            capsule = producer.__dlpack__(**keywords)
        else:
            try:
                capsule = producer.__dlpack__(max_version=max_version, **keywords)
            except ZeroCopyError:
                raise  # of a conversion inside the producer, which a second call would repeat
            except TypeError:
                capsule = producer.__dlpack__(**keywords)
    name_of(capsule, producer)
    return capsule


def request_on_device(producer: Any, stream: int | None) -> Capsule:
    """Request a legacy capsule of device memory, which each version of each framework imports.

    A producer that cannot mark its memory as read-only in one may refuse (``BufferError``), and is
    asked for a versioned capsule.
    """
    try:
        return request(producer, stream=stream, max_version=None)
    except UnsupportedConversionError as error:
        if not isinstance(error.__cause__, BufferError):
            raise
        return request(producer, stream=stream)


def name_of(capsule: Capsule, producer: Any = None) -> bytes:
    """Return the name of an unconsumed DLPack capsule; refuse other objects."""
    asked = f"{_name(producer)}.__dlpack__()" if producer is not None else "a DLPack capsule"
    if type(capsule).__name__ != "PyCapsule":
        raise malformed(asked, f"it returned {type(capsule).__name__}, not a capsule")
    name: bytes | None = _get_name(capsule)
    if name in (LEGACY, VERSIONED):
        return name
    if name in (b"used_dltensor", b"used_dltensor_versioned"):
        raise UnsupportedConversionError(
            asked,
            "the capsule was consumed already: a capsule can be imported once",
            "request a new capsule from the producer, or pass the producer itself",
            code="consumed",
        )
    raise UnsupportedConversionError(
        asked,
        f"the capsule is named {name!r}, so it is not DLPack's",
        "pass a DLPack capsule",
        code="no-protocol",
    )


def _address(capsule: Capsule) -> tuple[int, int]:
    """Return the address of the capsule's ``DLTensor`` and its flags (0 for legacy ones)."""
    name = name_of(capsule)
    address: int = _get_pointer(capsule, name)
    if name == LEGACY:
        return address, 0
    managed = DLManagedTensorVersioned.from_address(address)
    if managed.major > MAX_VERSION[0]:
        # In a newer major version, only the version, the context and the deleter have known offsets
        # (dlpack.h, DLManagedTensorVersioned).
        raise UnsupportedConversionError(
            "a DLPack capsule",
            f"it has DLPack version {managed.major}.{managed.minor}, whose layout zerocopy does not know",
            "upgrade zerocopy, or implement max_version in the exporter",
            code="protocol-version",
        )
    return address + DLManagedTensorVersioned.dl_tensor.offset, int(managed.flags)


def _tensor(capsule: Capsule) -> tuple[DLTensor, int]:
    address, flags = _address(capsule)
    return DLTensor.from_address(address), flags


def tensor_of(capsule: Capsule) -> DLTensor:
    """Return the struct in an unconsumed capsule; it is valid as long as the capsule.

    The consumer reads this struct, so changes to it reach the consumer.
    """
    return _tensor(capsule)[0]


def read(
    capsule: Capsule, producer: Any = None, reported: Device | None = None, readonly: bool = False
) -> StridedView:
    """Describe a capsule's memory without consuming the capsule.

    The view holds the capsule, and so keeps the memory alive. The device that `producer` reports
    must be the capsule's; `reported` is that device, if the caller has asked for it. `readonly` is for
    producers that cannot mark immutable memory.
    """
    address, flags = _address(capsule)
    # One read of the struct: each field of a ctypes structure takes 150 ns.
    data, kind, index, ndim, code, bits, lanes, extents, steps, offset = _FIELDS.unpack(
        ctypes.string_at(address, _FIELDS.size)
    )
    asked = f"{_name(producer)}.__dlpack__()" if producer is not None else "a DLPack capsule"
    dtype = by_dlpack(code, bits, lanes)
    if dtype is None:
        raise UnsupportedConversionError(
            asked,
            f"its data type (code {code}, {bits} bits, {lanes} lanes) has no counterpart",
            "convert it to a standard data type in the producer first",
            code="missing-dtype",
        )
    device = Device(kind, index)
    if producer is not None and reported is None:
        reported = device_of(producer)
    if producer is not None and reported != device:
        raise DeviceError(
            asked,
            f"__dlpack_device__() reports {reported}, but the capsule has {device}",
            "fix the exporter: one of the two devices is wrong, and importing the wrong one could crash",
            code="invalid-producer",
        )
    check_ndim(asked, ndim)
    if ndim and not extents:
        raise malformed(asked, f"its shape is NULL for {ndim} dimensions")
    shape = _words(extents, ndim)
    if not steps:
        strides = contiguous_strides(shape, dtype.itemsize)
    else:
        strides = tuple([_signed(step * dtype.itemsize) for step in _words(steps, ndim)])
    # Only an empty array may have NULL, with or without an offset.
    ptr = data + offset if data else 0
    check_layout(asked, ptr, shape, strides, dtype.itemsize)
    readonly = readonly or bool(flags & FLAG_READ_ONLY)
    return StridedView(ptr, shape, strides, dtype, device, readonly, (capsule, producer))


def _words(address: int, count: int) -> tuple[int, ...]:
    """Return integers in memory; types of ctypes arrays would be reference cycles."""
    return struct.unpack(f"@{count}q", ctypes.string_at(address, 8 * count)) if count else ()


def _signed(stride: int) -> int:
    """Return a stride in bytes. CuPy 14.2 divides negative ones by the item size as unsigned integers."""
    return stride - (1 << 64) if 1 << 63 <= stride < 1 << 64 else stride


def is_copy(capsule: Capsule) -> bool:
    """Whether the producer set ``DLPACK_FLAG_BITMASK_IS_COPIED``: the capsule does not alias it."""
    return bool(_address(capsule)[1] & FLAG_IS_COPIED)


class Handover:
    """A producer of one capsule, for consumers that do not take capsules."""

    __slots__ = ("_capsule", "_device")

    def __init__(self, capsule: Capsule, device: Device = HOST) -> None:
        self._capsule = capsule
        self._device = device

    def __dlpack__(self, **_options: Any) -> Capsule:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class Producer:
    """A producer whose capsules ``export(**options)`` returns, for arrays whose own methods do not work."""

    __slots__ = ("_device", "_export")

    def __init__(self, export: Callable[..., Capsule], device: tuple[int, int]) -> None:
        self._export, self._device = export, device

    def __dlpack__(self, **options: Any) -> Capsule:
        return self._export(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def retype(capsule: Capsule, dtype: DType) -> Capsule:
    """Change the data type of an unconsumed capsule to one of the same width.

    NumPy's exporter refuses the dtypes of ``ml_dtypes``, and law 7 forbids capsules with a Python
    deleter. So NumPy exports unsigned integers, and this function writes the true ``DLDataType``.
    """
    tensor, _ = _tensor(capsule)
    if tensor.bits * tensor.lanes != dtype.itemsize * 8:
        raise ValueError(f"{dtype} does not have the width of the capsule's type ({tensor.bits} bits)")
    tensor.code, tensor.bits, tensor.lanes = dtype.code, dtype.bits, dtype.lanes
    return capsule


def as_cuda(capsule: Capsule) -> Capsule:
    """Change the device type of an unconsumed capsule from managed memory to plain CUDA memory.

    torch's and JAX's importers refuse ``kDLCUDAManaged``.
    """
    tensor, _ = _tensor(capsule)
    if tensor.device_type == CUDA_MANAGED:
        tensor.device_type = CUDA
    return capsule


def export(array: Array, dtype: DType) -> Capsule:
    """Return a legacy capsule of any dtype that aliases `array` and keeps it alive.

    `array` must be writable (see :func:`zerocopy.protocols.array_interface.writable_alias`).
    """
    if dtype.in_numpy and dtype.name != "bool":
        capsule = array.__dlpack__()
    else:  # booleans too: NumPy exports them since 1.25, and MXNet's environment has 1.23
        storage = dtype.storage if not dtype.in_numpy else np.uint8
        capsule = retype(array.view(storage).__dlpack__(), dtype)
    # NumPy exports the device of the capsule that it imported, and TensorFlow refuses page-locked memory.
    tensor, _ = _tensor(capsule)
    tensor.device_type, tensor.device_id = HOST.type, HOST.id
    return capsule


def as_ndarray(capsule: Capsule, view: StridedView) -> Array:
    """Consume a host capsule: return an ndarray in ``view.dtype.storage``.

    NumPy runs the capsule's deleter when the last ndarray over its memory is freed.
    """
    if not NUMPY_TAKES_VERSIONED and name_of(capsule) == VERSIONED:
        # The capsule is not consumed: the view keeps it, and its destructor frees the memory.
        return view.numpy()
    storage = view.dtype.storage
    if view.dtype.name == "bool":
        storage = np.dtype(np.uint8)
    unsigned = from_numpy(storage)
    assert unsigned is not None
    if unsigned is not view.dtype:
        retype(capsule, unsigned)
    array = np.from_dlpack(Handover(capsule))
    if not view.readonly:
        array = writable_alias(array)  # NumPy marks all imports of legacy capsules as read-only
    return array if view.dtype.name != "bool" else array.view(np.bool_)


class HostImport:
    """``Source.host`` of a host capsule, which is imported once: later calls return the same array."""

    __slots__ = ("_array", "_capsule", "_view")

    def __init__(self, capsule: Capsule, view: StridedView) -> None:
        self._capsule, self._view = capsule, view
        self._array: Array | None = None

    def __call__(self) -> Array:
        if self._array is None:
            array = as_ndarray(self._capsule, self._view)
            if self._view.readonly:
                array.flags.writeable = False
            self._array = array
        return self._array


def _name(producer: Any) -> str:
    return type(producer).__qualname__
