"""Objects without a framework file, described by the protocols of their type.

The first protocol that the type implements is used: DLPack, the CUDA Array Interface, NumPy's
array interface, the buffer protocol, ``__array__``. Before the buffer protocol, ``zerocopy.describe``
tries the Arrow C data interface, unless the type is that of an array of any number of dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import getattr_static
from pathlib import PurePath
from types import GetSetDescriptorType, NoneType
from typing import Any

import numpy as np

from zerocopy._native import core
from zerocopy.device import CUDA, HOST, NO_SYNC_STREAM, Device, parse_device
from zerocopy.dtype import SUBBYTE_NAMES, from_numpy
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.protocols import array_interface, dlpack
from zerocopy.protocols.exporter_errors import calling, check_layout, is_error
from zerocopy.source import Array, Source, type_name
from zerocopy.strided_view import MAX_NDIM, StridedView

_COPIES = Reason("the exporter returns a copy", "export a view from the producer", code="exporter-copies")
_BOOLEANS = {
    read: Reason(
        "its booleans have bytes other than 0 and 1",
        code="invalid-booleans",
        fixes=[Fix(f"numpy.{read}({{x}}).view('uint8') != 0", "gives bytes of 0 and 1")],
    )
    for read in ("asarray", "from_dlpack")
}
#: Methods of the protocols, looked up on the type, and attributes, which an instance can have.
_METHODS = (
    "__dlpack__",
    "__arrow_c_array__",
    "__arrow_c_device_array__",
    "__arrow_c_stream__",
    "__array__",
)
_INTERFACES = ("__cuda_array_interface__", "__array_interface__")
_BYTE_BOUNDS: Callable[[Array], tuple[int, int]] = getattr(
    np.lib, "array_utils", np
).byte_bounds  # moved in 2.0

#: Fixes of objects by a method of their type, of which the first applies.
_BY_METHOD = {
    "__next__": Fix("list({x})", "is converted item by item"),
    "to_pylist": Fix("{x}.to_pylist()", "gives Python objects", alone=True),  # zerocopy.Encoded
    "to_tensor": Fix("{x}.to_tensor()", "makes it dense"),  # pyarrow.SparseCOOTensor
    "to_numpy": Fix("{x}.to_numpy()"),  # a data frame or a series
    "npartitions": Fix("{x}.compute()", "computes it"),  # a frame of Dask
    "ngroups": Fix("{x}.obj", "is the frame that was grouped"),  # groups of pandas
    "read_row_groups": Fix("{x}.read()", "reads the file"),  # pyarrow.parquet.ParquetFile
    "named_parameters": Fix("{x}.state_dict()", "converts its parameters as a dict"),  # torch.nn.Module
    "pickle_storage_type": Fix(  # torch.TypedStorage
        "torch.empty(0, dtype={x}.dtype, device={x}.device).set_({x})", "aliases its elements"
    ),
    "untyped": Fix(  # torch.UntypedStorage
        "torch.empty(0, dtype=torch.uint8, device={x}.device).set_({x})", "aliases its bytes"
    ),
    "isSubmatrix": Fix("{x}.get()", "copies it to a numpy.ndarray"),  # cv2.UMat, on a device of OpenCL
}
_REMEDY = (
    "pass an array: an object with __dlpack__, __cuda_array_interface__, "
    "__array_interface__, __arrow_c_array__ or the buffer protocol"
)


def describe(obj: Any) -> Source | None:
    """Describe an object with DLPack or an array interface; None for other objects.

    Raises
    ------
    UnsupportedConversionError
        The producer raised, or its structs are invalid.
    """
    # Looked up on the type, as Python does for special methods: mocks and proxies answer
    # to every name through __getattr__.
    is_host_view = isinstance(obj, StridedView) and obj.device.is_host  # its __dlpack__ refuses some
    if hasattr(type(obj), "__dlpack__") and not is_host_view:
        return _dlpack(obj)
    # Read once: an interface may be computed, or come from another producer.
    interface = _interface(obj, "__cuda_array_interface__")
    if interface is not None:
        return _cuda_array_interface(obj, interface)
    interface = _interface(obj, "__array_interface__")
    return None if interface is None else _array_interface(obj, interface)


def compiled_exporter(obj: Any) -> Any:
    """Return the compiled exporter of an object's type without a framework file; None if there is none.

    It serves all objects of the type: it refuses what only :func:`describe` can judge, such as other devices,
    copies and booleans. The object was converted before, so it is not a container.
    """
    cls = type(obj)
    if core is None or hasattr(cls, "__zerocopy_open__"):
        return None
    if hasattr(cls, "__dlpack__"):
        exporter = core.ProducerExporter(_exchange_api(cls), dlpack.MAX_VERSION)
    else:
        # Statically: a property may convert another producer.
        on_device, on_host = (getattr_static(obj, name, None) is not None for name in _INTERFACES)
        # Other instances could have an interface, which comes before the buffer.
        has_attributes = cls.__dictoffset__ != 0 or hasattr(cls, "__getattr__")
        if any(hasattr(cls, name) for name in _METHODS):
            return None
        if on_device:
            from zerocopy.protocols import cuda_driver  # here, because most memory is on the host

            one_device = cuda_driver.count() == 1
            exporter = core.DeviceInterfaceExporter(0 if one_device else _index_of, cuda_driver.order)
        elif not on_host and (has_attributes or not exports_arrays(obj)):
            return None
        else:
            exporter = core.InterfaceExporter() if on_host else core.BufferExporter(False)
    return core.TypeExporter(exporter, cls)  # programs add methods to classes that were converted before


def _index_of(obj: Any) -> int | None:
    """Return the index of the device that owns the memory of an object's CUDA Array Interface."""
    from zerocopy.protocols import cuda_driver

    return cuda_driver.ordinal(obj.__cuda_array_interface__["data"][0])


def _exchange_api(cls: type) -> Any:
    """Return the capsule of a type's C exchange API (DLPack 1.3); None if a subclass overrides the method."""
    for base in cls.__mro__:
        if "__dlpack__" in vars(base):
            return vars(base).get("__dlpack_c_exchange_api__")
    return None


def is_array_too(cls: type) -> bool:
    """Whether a type that exports Arrow data is an array of any number of dimensions."""
    from zerocopy.protocols import array_method  # here, because most objects have another protocol

    return array_method.is_array(cls)


def is_arrow(obj: Any) -> bool:
    """Whether Arrow is the first protocol of an object's type, which then describes columns."""
    cls = type(obj)
    if hasattr(cls, "__dlpack__") or hasattr(cls, "__array_interface__") or is_array_too(cls):
        return False
    return hasattr(cls, "__arrow_c_stream__") or is_arrow_array(obj)


def is_arrow_array(obj: Any) -> bool:
    """Whether an object's type exports single Arrow arrays."""
    cls = type(obj)
    return hasattr(cls, "__arrow_c_device_array__") or hasattr(cls, "__arrow_c_array__")


def exports_arrays(obj: Any) -> bool:
    """Whether an object supports a protocol of arrays or tables, or the buffer protocol."""
    cls = type(obj)
    if any(hasattr(cls, name) for name in _METHODS) or any(_has_interface(obj, name) for name in _INTERFACES):
        return True
    try:
        memoryview(obj).release()
    except (TypeError, ValueError, BufferError) as error:
        return not isinstance(error, TypeError)  # a closed mmap has a buffer, which cannot be read
    return True


def describe_buffer(obj: Any) -> Source:
    """Describe an object with the buffer protocol or, the last one to try, with ``__array__``.

    Raises
    ------
    UnsupportedConversionError
        The object has none of them, or cannot be read.
    """
    try:
        buffer = memoryview(obj)
    except (TypeError, ValueError) as error:
        if isinstance(error, TypeError):
            from zerocopy.protocols import array_method

            if array_method.is_exporter(type(obj)):
                return array_method.describe(obj)
            raise _no_protocol(obj) from None
        # The object has a buffer, but cannot export it: a closed mmap, for example.
        raise UnsupportedConversionError(
            f"convert({type_name(obj)})",
            f"its buffer cannot be read: {error}",
            "keep it open",
            code="no-memory",
        ) from error
    return _host(obj, lambda: np.asarray(buffer), "buffer")


def records_of(obj: Any) -> Array | None:
    """Return NumPy's alias of memory that holds records; None for other objects, also for invalid ones."""
    if hasattr(type(obj), "__dlpack__") or is_arrow(obj):
        return None
    # An interface that Python code computes may convert another producer: only `describe` reads it, once.
    on_device, interface = (getattr_static(obj, name, None) for name in _INTERFACES)
    if on_device is not None or not isinstance(interface, (dict, NoneType, GetSetDescriptorType)):
        return None
    try:
        if interface is None:
            buffer = memoryview(obj)
            array = np.asarray(buffer) if "T{" in buffer.format else None
        else:
            interface = _interface(obj, "__array_interface__")
            is_record = interface["typestr"][1] == "V" and not _has_mask(interface)
            array = _of_interface(obj, interface) if is_record else None
        if array is None or array.dtype.names is None or array.dtype.hasobject:
            return None
        check_layout("", array_interface.address(array), array.shape, array.strides, array.itemsize)
    except Exception as error:
        if not is_error(error):
            raise
        return None  # describe() raises the error again if the object has a buffer
    return array


def _interface(obj: Any, name: str) -> Any:
    """Return an instance's interface, None if it has none."""
    if isinstance(obj, type):
        return None
    with calling(f"{type(obj).__qualname__}.{name}"):
        return getattr(obj, name, None)


class _Interface:
    """A producer of an interface that was read once; it keeps the object alive, as its base."""

    def __init__(self, interface: Any, owner: Any) -> None:
        shape = interface.get("shape") if type(interface) is dict else None
        if type(shape) is tuple and len(shape) > MAX_NDIM:
            # NumPy before 2.2.4 writes the extents past the end of an array on its stack (numpy/numpy#27949).
            raise ValueError(f"number of dimensions must be within [0, {MAX_NDIM}], got {len(shape)}")
        self.__array_interface__, self.owner = interface, owner


def _array_interface(obj: Any, interface: Any) -> Source:
    if _has_mask(interface):
        raise LossyConversionError(
            f"convert({type_name(obj)})",
            "its __array_interface__ has a mask, which would be lost",
            "fill or drop the masked elements first",
            code="masked",
        )
    data = interface.get("data") if type(interface) is dict else ()
    source = _host(obj, lambda: _of_interface(obj, interface), "array-interface")
    if data is not None and type(data) is not tuple:
        # The memory is that of a buffer, which the object may create for each caller (Pillow does).
        again = np.asarray(_Interface(_interface(obj, "__array_interface__"), obj))
        if array_interface.address(again) != source.view.ptr:
            source.reasons = (*source.reasons, _COPIES)
    return source


def _has_mask(interface: Any) -> bool:
    return type(interface) is dict and interface.get("mask") is not None  # NumPy ignores it


def _of_interface(obj: Any, interface: Any) -> Array:
    """Return the array of an interface; raise if it leaves its buffer."""
    data = interface.get("data") if type(interface) is dict else ()
    # Without "data" the memory is the object's own buffer, which NumPy requests.
    checked = _Interface(interface, obj)
    owner = obj if data is None else checked
    return _within_buffer(obj, data, np.asarray(owner))


def _within_buffer(obj: Any, data: Any, array: Array) -> Array:
    """Return the array; raise if its interface has a buffer that the array leaves, which NumPy reads."""
    if type(data) is not tuple and array.size:  # not an address, which has no size
        buffer = np.frombuffer(obj if data is None else data, np.uint8)
        start = array_interface.address(buffer)
        low, high = _BYTE_BOUNDS(array)
        if low < start or high > start + buffer.size:
            raise ValueError(f"its offset and strides leave the buffer of {buffer.size:,} bytes")
    return array


def _has_interface(obj: Any, name: str) -> bool:
    """Whether an instance has an interface; True if the property raises, so that reading reports it."""
    try:
        return hasattr(obj, name) and not isinstance(obj, type)
    except Exception as error:
        if not is_error(error):
            raise
        return True


def _no_protocol(obj: Any) -> UnsupportedConversionError:
    remedy, fixes = _REMEDY, tuple[Fix, ...]()
    if type(obj).__name__ == "PyCapsule":
        remedy = "pass the array that exported it: a capsule can be imported only once"
    elif known := [fix for method, fix in _BY_METHOD.items() if hasattr(type(obj), method)]:
        remedy, fixes = "", (known[0],)
    elif isinstance(obj, (str, PurePath)) and str(obj).endswith((".parquet", ".pq")):
        read = Fix("pyarrow.parquet.read_table({x})", "reads the file", before="import pyarrow.parquet")
        remedy, fixes = "", (read,)
    elif isinstance(obj, (str, PurePath)) and str(obj).endswith((".safetensors", ".gguf", ".npy", ".npz")):
        remedy, fixes = "", (Fix("zc.open_weights({x})", "maps its tensors"),)
    elif callable(getattr(type(obj), "keys", None)):  # groups in files
        item = "[name]" if hasattr(type(obj), "__getitem__") else ".get_tensor(name)"  # safetensors.safe_open
        remedy, fixes = "", (Fix(f"{{{{name: {{x}}{item} for name in {{x}}.keys()}}}}"),)
    elif dense := [name for name in ("todense", "toarray") if hasattr(type(obj), name)]:
        remedy, fixes = "", _sparse(obj, dense[-1])
    elif "datetime64" in getattr(type(obj), "FORMATS", ()):  # astropy.time.Time
        remedy, fixes = "", (Fix("{x}.datetime64", "gives its dates"),)
    elif hasattr(type(obj), "__len__") and hasattr(type(obj), "__getitem__") and not isinstance(obj, str):
        remedy, fixes = "", (Fix("numpy.asarray({x}[:])"),)
    elif isinstance(obj, (int, float, complex)):
        remedy, fixes = "", (Fix("numpy.asarray({x})"),)
    return UnsupportedConversionError(
        f"convert({type_name(obj)})",
        f"{type_name(obj)} is not an array and supports no array protocol",
        remedy,
        code="not-an-array",
        fixes=fixes,
    )


def _sparse(obj: Any, dense: str) -> tuple[Fix, ...]:
    """Return fixes for a sparse array of SciPy, JAX or PyData: its dense form, or the arrays of its parts."""
    names = ("data", "indices", "indptr", "row", "col", "coords")
    parts = ", ".join(f"{{x}}.{name}" for name in names if _has_interface(obj, name))
    return (
        Fix(f"{{x}}.{dense}()", "makes it dense"),
        *([Fix(f"[{parts}]", "converts its parts")] if parts else []),
    )


def _host(obj: Any, load: Callable[[], Array], protocol: str) -> Source:
    asked = f"convert({type_name(obj)})"
    try:
        array = load()
    except Exception as error:
        if not is_error(error):
            raise
        raise UnsupportedConversionError(
            asked,
            f"its {protocol} could not be read ({type(error).__name__}: {error})",
            "fix the exporter, or pass an array",
            code="invalid-producer",
        ) from error
    # NumPy allocates uninitialised memory for a buffer at NULL.
    ptr = 0 if protocol == "buffer" and array.flags.owndata else array_interface.address(array)
    check_layout(asked, ptr, array.shape, array.strides, array.itemsize)
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    dtype = from_numpy(native)
    if dtype is None:
        raise UnsupportedConversionError(
            asked,
            f"tensors do not have the type {array.dtype}",
            code="missing-dtype",
            fixes=[
                Fix("numpy.asarray({x})", "reads its objects")
                if array.dtype.hasobject
                else Fix("numpy.asarray({x}).view('uint8')", "gives bytes")
            ],
        )
    reasons = () if array.dtype.isnative else (_swapped(array.dtype),)
    view = StridedView(ptr, array.shape, array.strides, dtype, HOST, not array.flags.writeable, array)
    host = (lambda: array.astype(native)) if reasons else (lambda: array)
    if array_interface.has_other_booleans(array):
        reasons, host = (_BOOLEANS["asarray"],), lambda: array_interface.plain_booleans(array)
    return Source(type_name(obj), view, host, protocol, reasons, obj=obj)


def _swapped(dtype: np.dtype[Any]) -> Reason:
    return Reason(
        f"the bytes are in the other order ({dtype.str})",
        code="byte-order",
        fixes=[Fix(f"numpy.asarray({{x}}).astype({dtype.newbyteorder('=').str!r})", "swaps the bytes once")],
    )


def _dlpack(obj: Any) -> Source:
    # First: an error below must not leave the capsule that a route has requested and refused.
    capsule = core.take_capsule(obj) if core is not None else None
    device = dlpack.device_of(obj)  # once: it may come from another producer
    if not device.is_host:
        # -1, because a description needs no synchronisation; the conversion requests another capsule
        # with the consumer's stream. A stream would wait for the producer, which ends the capture of a
        # CUDA graph (cudaErrorStreamCaptureImplicit).
        view = _whole_bytes(dlpack.read(dlpack.request(obj, stream=NO_SYNC_STREAM), obj, device))
        return Source(type_name(obj), view, _not_on_host, "dlpack", obj=obj, producer=obj)
    if capsule is None:
        capsule = dlpack.request(obj)
    else:
        dlpack.name_of(capsule, obj)  # `request` checks it too
    view = _whole_bytes(dlpack.read(capsule, obj, device))
    reasons: tuple[Reason, ...] = ()
    if dlpack.is_copy(capsule):  # DLPACK_FLAG_BITMASK_IS_COPIED: not the producer's own memory
        reasons = (_COPIES,)
    host: Callable[[], Array] = dlpack.HostImport(capsule, view)
    # Read without consuming the capsule: a description converts nothing, and the producer may have one only.
    if view.dtype.name == "bool" and array_interface.has_other_booleans(array := view.numpy()):
        reasons = (*reasons, _BOOLEANS["from_dlpack"])
        host = partial(array_interface.plain_booleans, array)
    return Source(type_name(obj), view, host, "dlpack", reasons, obj=obj)


def _whole_bytes(view: StridedView) -> StridedView:
    """Return the view; refuse elements smaller than a byte, which DLPack packs and frameworks do not."""
    if view.dtype.name in SUBBYTE_NAMES:  # packed by default: DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
        raise UnsupportedConversionError(
            "",
            f"its type is {view.dtype}, of which DLPack packs several elements into one byte",
            "unpack it into uint8 in the producer",
            code="missing-dtype",
        )
    return view


def _cuda_array_interface(obj: Any, interface: Any) -> Source:
    from zerocopy.protocols import cuda_array_interface, cuda_driver

    view, _ = cuda_array_interface.read(obj, interface=interface)
    index = cuda_driver.ordinal(view.ptr)  # the interface names no device
    if index is None:
        device = parse_device(getattr(obj, "device", None))
        index = device.id if device is not None else 0
    view = replace(view, device=Device(CUDA, index))
    return Source(type_name(obj), view, _not_on_host, "cuda-array-interface", obj=obj, producer=obj)


def _not_on_host() -> Array:
    raise AssertionError("device memory has no host alias")
