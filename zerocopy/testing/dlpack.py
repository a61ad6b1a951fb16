"""Cases of producers of DLPack: ``__dlpack__``, ``__dlpack_device__`` and ``__dlpack_c_exchange_api__``.

The C exchange API and the capsule must agree.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from zerocopy.protocols.dlpack import DLManagedTensor, DLManagedTensorVersioned, DLTensor
from zerocopy.testing.capsules import Callback, address_of, get_name, get_pointer, set_name
from zerocopy.testing.cases import Skip, Violation, case, check, made, refused, require
from zerocopy.testing.memory import as_numpy, check_leak, is_readonly, read, refill, same, variants

API = "array API 2024.12, {} (https://data-apis.org/array-api/latest/API_specification/array_object.html)"
EXPORT, DEVICE = API.format("array.__dlpack__"), API.format("array.__dlpack_device__")
PYTHON = "DLPack, Python specification, {} (https://dmlc.github.io/dlpack/latest/python_spec.html)"
STRUCT = "dlpack.h 1.2, {} (https://dmlc.github.io/dlpack/latest/c_api.html)"
EXCHANGE = "DLPack 1.3, C exchange API (https://dmlc.github.io/dlpack/latest/c_api.html)"

USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}
LATEST = (1, 2)
#: Letters of NumPy's types by DLPack's codes: int, uint, float, opaque, bfloat, complex, bool.
KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
READ_ONLY, IS_COPIED = 1, 2
From = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
To = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))


class Tensor:
    """The description of an unconsumed capsule."""

    def __init__(self, capsule: Any) -> None:
        require(type(capsule).__name__ == "PyCapsule", f"__dlpack__ returns {type(capsule).__name__}")
        self.capsule: Any = capsule
        self.name = get_name(capsule)
        require(self.name in USED, f"the capsule is named {self.name!r}")
        self.versioned = self.name == b"dltensor_versioned"
        struct = DLManagedTensorVersioned if self.versioned else DLManagedTensor
        self.address = get_pointer(capsule, self.name)
        self.managed: Any = struct.from_address(self.address)
        self.version = (self.managed.major, self.managed.minor) if self.versioned else (0, 0)
        require(not self.versioned or self.version[0], f"a struct with a version has {self.version}")
        later = f"the struct has version {self.version}, which was not asked for"
        check(self.version[0] <= LATEST[0], later, "version not negotiated")
        self.flags = self.managed.flags if self.versioned else 0
        tensor = self.managed.dl_tensor
        self.device = (tensor.device_type, tensor.device_id)
        self.dtype = (tensor.code, tensor.bits, tensor.lanes)
        require(0 <= tensor.ndim <= 64, f"ndim is {tensor.ndim}")
        require(tensor.shape or not tensor.ndim, "the shape is NULL")
        self.shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
        require(min(self.shape, default=0) >= 0, f"the shape is {self.shape}")
        self.strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides and tensor.ndim else None
        self.data = (tensor.data or 0) + tensor.byte_offset
        self.itemsize = max(tensor.bits * tensor.lanes // 8, 1)

    def values(self) -> Any:
        """Return a copy of the values; types that NumPy lacks as unsigned integers."""
        if self.device[0] not in (1, 3):
            raise Skip(f"memory on a device of type {self.device[0]}")
        if self.dtype[1] % 8 or self.dtype[2] != 1:
            raise Skip(f"elements of {self.dtype[1]} bits and {self.dtype[2]} lanes")
        kind = KINDS.get(self.dtype[0], "u") if self.dtype[1] >= 8 else "u"
        typestr = f"|b{self.itemsize}" if kind == "b" else f"={kind}{self.itemsize}"
        if (kind == "f" and self.itemsize not in (2, 4, 8)) or self.itemsize not in (1, 2, 4, 8, 16):
            typestr = f"|V{self.itemsize}"
        strides = None if self.strides is None else tuple(step * self.itemsize for step in self.strides)
        require(self.data or 0 in self.shape, "the data pointer is NULL")
        return read(self.data, self.shape, strides, typestr)

    def consume(self) -> Any:
        """Mark the capsule as consumed; return a function that runs the deleter once."""
        set_name(self.capsule, USED[self.name])
        deleter, address = self.managed.deleter, self.address
        return lambda: Callback(deleter)(address) if deleter else None

    def count_deletes(self) -> list[int]:
        """Replace the deleter by one that counts its calls, and forwards the first."""
        deleter, calls = self.managed.deleter, []

        def counted(address: int) -> None:
            calls.append(address)
            if len(calls) == 1:
                Callback(deleter)(address)

        self.managed.deleter = address_of(counted)
        return calls


def export(x: Any, **options: Any) -> Any:
    """Return a capsule; skip the case if the producer refuses, which the case ``dlpack.export`` reports."""
    try:
        return x.__dlpack__(**options)
    except Exception as error:
        raise Skip(f"{type(error).__name__}: {error}") from error


def tensors(x: Any) -> Iterator[Tensor]:
    """Yield a tensor without a version and one with, if the producer has them."""
    reasons = []
    for options in ({}, {"max_version": LATEST}):
        try:
            yield Tensor(export(x, **options))
        except Skip as error:
            reasons.append(str(error))
    if len(reasons) == 2:
        raise Skip(reasons[0])


@case("dlpack.export", "wrong error class", EXPORT)
def dlpack_export(x: Any) -> None:
    """An object that cannot be exported raises BufferError."""
    if refused(x.__dlpack__, BufferError) and refused(
        lambda: x.__dlpack__(max_version=LATEST), BufferError, TypeError
    ):
        raise Skip("it refuses")


@case("dlpack.device", "wrong value", DEVICE)
def dlpack_device(x: Any) -> None:
    """``__dlpack_device__`` is a pair of integers, that of the capsule."""
    next(tensors(x))
    check(hasattr(x, "__dlpack_device__"), "the object has no __dlpack_device__")
    device = x.__dlpack_device__()
    pair = isinstance(device, tuple) and len(device) == 2 and all(isinstance(part, int) for part in device)
    check(pair, f"__dlpack_device__() is {device!r}")
    for tensor in tensors(x):
        check(tensor.device == device, f"__dlpack_device__() is {device}, the capsule's is {tensor.device}")


@case("dlpack.layout", "wrong value", STRUCT.format("DLTensor"))
def dlpack_layout(x: Any) -> None:
    """The shape is the object's, the data type exists, and strides are not NULL from version 1.2 on."""
    for tensor in tensors(x):
        shape, (code, bits, lanes) = getattr(x, "shape", None), tensor.dtype
        check(not isinstance(shape, tuple) or tensor.shape == shape, f"shape {tensor.shape}, not {shape}")
        check(code <= 17 and lanes >= 1 and bits in (1, 2, 4, 6, 8, 16, 32, 64, 128), f"dtype {tensor.dtype}")
        missing = tensor.shape and tensor.strides is None and tensor.version >= (1, 2)
        check(not missing, f"version {tensor.version} has strides that are NULL")


@case("dlpack.alignment", "optional", STRUCT.format("DLTensor.data"))
def dlpack_alignment(x: Any) -> None:
    """The data pointer is aligned to the elements."""
    for tensor in tensors(x):
        check(tensor.data % min(tensor.itemsize, 8) == 0, f"the data is at {tensor.data:#x}")


@case("dlpack.values", "wrong value", EXPORT)
def dlpack_values(make: Any) -> None:
    """Views and objects of all shapes have the values of ``numpy.asarray``, or are refused."""
    x = made(make, "dlpack")
    for text, view in variants(make, x).items():
        expected = as_numpy(view)
        if expected is None or refused(partial(next, tensors(view)), Skip):
            continue
        arrays = [tensor.values() for tensor in tensors(view)]
        if not refused(partial(np.from_dlpack, view), Exception):
            arrays.append(np.from_dlpack(view))
        for array in arrays:
            check(array.dtype == expected.dtype, f"{text}: dtype {array.dtype}, not {expected.dtype}")
            check(same(array, expected), f"{text}: {array}, not {expected}")


@case("dlpack.versions", "version not negotiated", PYTHON.format("max_version"))
def dlpack_versions(x: Any) -> None:
    """A capsule has no version unless ``max_version`` is 1.0 or later; (99, 0) is accepted."""
    next(tensors(x))
    exported = False
    for options in ({}, {"max_version": None}, {"max_version": (0, 8)}, {"max_version": (99, 0)}):
        try:
            tensor = Tensor(x.__dlpack__(**options))
            exported = True
        except BufferError as error:
            other = options.get("max_version") != (99, 0)
            check(other or not exported, f"it refuses max_version=(99, 0) alone: {error}")
            continue
        except TypeError as error:
            raise Violation(f"__dlpack__({options}) raises TypeError: {error}") from error
        high = options.get("max_version") == (99, 0)
        check(high or not tensor.versioned, f"__dlpack__({options}) returns a capsule with a version")


@case("dlpack.versioned", "optional", PYTHON.format("max_version"))
def dlpack_versioned(x: Any) -> None:
    """A capsule with a version is returned if one is asked for: only it has flags."""
    tensor = Tensor(export(x, max_version=(1, 0)))
    check(tensor.versioned, "max_version=(1, 0) returns a capsule without a version")


@case("dlpack.keywords", "flag ignored", EXPORT)
def dlpack_keywords(x: Any) -> None:
    """The keywords ``stream``, ``max_version``, ``dl_device`` and ``copy`` are accepted as None."""
    next(tensors(x))
    for name in ("stream", "max_version", "dl_device", "copy"):
        try:
            x.__dlpack__(**{"max_version": LATEST, name: None})
        except BufferError:  # without a version it refuses memory that it cannot mark as read-only
            continue
        except TypeError as error:
            raise Violation(f"__dlpack__({name}=None) raises TypeError: {error}") from error


@case("dlpack.copy", "flag ignored", EXPORT + ", copy=")
def dlpack_copy(x: Any) -> None:
    """copy=True copies and sets the flag IS_COPIED; copy=False does not copy; BufferError refuses."""
    # The case dlpack.keywords reports that it lacks the keyword.
    tensor, _ = next(tensors(x)), export(x, copy=None, max_version=LATEST)
    for copy in (True, False):
        refused(partial(x.__dlpack__, copy=copy, max_version=LATEST), BufferError)
    copied = Tensor(export(x, copy=True, max_version=LATEST))
    if 0 not in tensor.shape:
        check(copied.data != tensor.data, "copy=True returns the same memory")
    check(same(copied.values(), tensor.values()), "copy=True changes the values")
    check(copied.flags & IS_COPIED or not copied.versioned, "copy=True does not set the flag IS_COPIED")
    first, second = (Tensor(export(x, copy=False, max_version=LATEST)) for _ in range(2))
    check(first.data == second.data, "copy=False copies")
    check(not first.flags & IS_COPIED, "copy=False sets the flag IS_COPIED")


@case("dlpack.dl_device", "flag ignored", EXPORT + ", dl_device=")
def dlpack_dl_device(x: Any) -> None:
    """The capsule is on the device that was asked for, or the device is refused."""
    own = next(tensors(x)).device
    export(
        x, dl_device=None, max_version=LATEST
    )  # the case dlpack.keywords reports that it lacks the keyword
    same_device = partial(x.__dlpack__, dl_device=own, max_version=LATEST)
    check(not refused(same_device, BufferError), f"it refuses dl_device={own}, which is its own")
    check(Tensor(same_device()).device == own, "its own device returns another")
    other = partial(x.__dlpack__, dl_device=(2, 99), max_version=LATEST)
    if not refused(other, BufferError, ValueError):
        device = Tensor(other()).device
        check(device == (2, 99), f"dl_device=(2, 99) returns memory on {device}")


@case("dlpack.stream", "wrong value", EXPORT + ", stream=")
def dlpack_stream(x: Any) -> None:
    """A stream for memory of the host is ignored or refused."""
    next(tensors(x)).values()
    refused(lambda: Tensor(x.__dlpack__(stream=1)).values(), Exception)


@case("dlpack.read_only", "flag ignored", STRUCT.format("DLPACK_FLAG_BITMASK_READ_ONLY"))
def dlpack_read_only(x: Any) -> None:
    """A capsule with a version marks memory that must not be written."""
    tensor = Tensor(export(x, max_version=LATEST))
    if not (tensor.versioned and is_readonly(x)):
        raise Skip("its memory is writable, or the capsule has no version")
    check(tensor.flags & (READ_ONLY | IS_COPIED), "the memory is read-only, and READ_ONLY is not set")


@case("dlpack.read_only_legacy", "optional", PYTHON.format("Semantics"))
def dlpack_read_only_legacy(x: Any) -> None:
    """Memory that must not be written is refused for a capsule without a version, which cannot mark it."""
    check(not (is_readonly(x) and export(x)), "a capsule without a version has read-only memory")


@case("dlpack.alive", "use after free", PYTHON.format("Semantics"))
def dlpack_alive(make: Any) -> None:
    """The memory lives until the deleter runs, without the producer and without the capsule."""
    for index in range(2):
        x = made(make, "dlpack")
        tensor = [*tensors(x)][-index]
        before = tensor.values()
        del x
        refill(before.nbytes)
        check(same(tensor.values(), before), "the values change after the producer is deleted")
        delete = tensor.consume()
        tensor.capsule = None
        refill(before.nbytes)
        check(same(tensor.values(), before), "the values change after the consumed capsule is deleted")
        delete()


@case("dlpack.twice", "use after free", PYTHON.format("Semantics"))
def dlpack_twice(make: Any) -> None:
    """Two capsules of one object are independent of each other."""
    x = made(make, "dlpack")
    first, second = next(tensors(x)), next(tensors(x))
    check(first.address != second.address, "two capsules share one struct")
    before = second.values()
    first.consume()()
    del x
    refill(before.nbytes)
    check(same(second.values(), before), "the values change after the deleter of another capsule")


@case("dlpack.deleter", "use after free", PYTHON.format("Semantics"))
def dlpack_deleter(x: Any) -> None:
    """The deleter runs once: by an unused capsule, and not by a consumed one."""
    for tensor in tensors(x):
        calls = tensor.count_deletes()
        tensor.capsule = None
        # 0: its destructor does not go through the struct; the case dlpack.leak finds a missing call.
        check(len(calls) <= 1, f"an unused capsule runs the deleter {len(calls)} times")
    for tensor in tensors(x):
        calls = tensor.count_deletes()
        delete = tensor.consume()
        tensor.capsule = None
        check(not calls, "a consumed capsule runs the deleter, which its consumer runs")
        delete()


@case("dlpack.leak", "leak", PYTHON.format("Semantics"))
def dlpack_leak(x: Any) -> None:
    """Neither an unused nor a consumed capsule keeps memory."""
    next(tensors(x))
    check_leak(x, lambda: [*tensors(x)])
    check_leak(x, lambda: [tensor.consume()() for tensor in tensors(x)])


class Table(ctypes.Structure):
    """``DLPackExchangeAPI``."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("major", "minor")),
        *((name, ctypes.c_void_p) for name in ("prev_api", "allocator", "from_py_object", "to_py_object")),
        *((name, ctypes.c_void_p) for name in ("tensor_from_py_object", "current_work_stream")),
    )


def table(x: Any) -> Table:
    capsule = type(x).__dlpack_c_exchange_api__
    name = get_name(capsule)
    require(name == b"dlpack_exchange_api", f"the capsule is named {name!r}")
    return Table.from_address(get_pointer(capsule, name))


def managed(x: Any) -> Any:
    """Return the managed tensor that the table's function makes."""
    out = ctypes.c_void_p()
    code = From(table(x).from_py_object)(x, ctypes.addressof(out))
    require(code == 0 and out.value, f"managed_tensor_from_py_object_no_sync returns {code} and {out.value}")
    return DLManagedTensorVersioned.from_address(out.value or 0)


def describe(tensor: Any) -> Any:
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None
    data = (tensor.data or 0) + tensor.byte_offset
    return shape, strides, data, tensor.code, tensor.bits, tensor.lanes, tensor.device_type, tensor.device_id


@case("dlpack_c_exchange_api.agrees", "wrong value", EXCHANGE)
def exchange_agrees(x: Any) -> None:
    """The functions describe the memory as the capsule does."""
    capsule = Tensor(export(x, max_version=LATEST))
    expected = describe(capsule.managed.dl_tensor)
    tensor = managed(x)
    described = describe(tensor.dl_tensor)
    check(described == expected, f"the table describes {described}, and the capsule {expected}")
    check(tensor.flags == capsule.flags, f"the table has flags {tensor.flags}, the capsule {capsule.flags}")
    Callback(tensor.deleter)(ctypes.addressof(tensor))
    if table(x).tensor_from_py_object:
        borrowed = DLTensor()
        code = From(table(x).tensor_from_py_object)(x, ctypes.addressof(borrowed))
        check(code == 0 and describe(borrowed) == expected, f"dltensor_from_py_object_no_sync returns {code}")


@case("dlpack_c_exchange_api.round_trip", "use after free", EXCHANGE)
def exchange_round_trip(make: Any) -> None:
    """An object made of the tensor of another has its values, after the first is deleted."""
    x = made(make, "dlpack_c_exchange_api")
    expected, functions, tensor = as_numpy(x), table(x), managed(x)
    if expected is None:
        raise Skip("numpy.asarray does not take it")
    expected = expected.copy()
    del x
    refill(expected.nbytes)
    result = ctypes.py_object()
    code = To(functions.to_py_object)(ctypes.addressof(tensor), ctypes.byref(result))
    require(code == 0, f"managed_tensor_to_py_object_no_sync returns {code}")
    check(same(as_numpy(result.value), expected), "the values differ")


@case("dlpack_c_exchange_api.leak", "leak", EXCHANGE)
def exchange_leak(x: Any) -> None:
    """A released export keeps no memory."""

    def use() -> None:
        tensor = managed(x)
        Callback(tensor.deleter)(ctypes.addressof(tensor))

    check_leak(x, use)
