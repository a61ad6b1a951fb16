"""Cases of producers of the array interfaces of NumPy and CUDA, and of the buffer protocol."""

from __future__ import annotations

import ctypes
import math
from functools import partial
from typing import Any

import numpy as np

from zerocopy.testing.cases import Skip, case, check, made, refused, require
from zerocopy.testing.memory import as_numpy, check_leak, read, refill, same

HOST = "NumPy, array interface, {} (https://numpy.org/doc/stable/reference/arrays.interface.html)"
FIELDS = HOST.format("fields; for CUDA numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html")
BUFFER = "Python, buffer protocol, {} (https://docs.python.org/3/c-api/buffer.html)"
INTERFACES = ("array_interface", "cuda_array_interface")


@case("fields", "wrong value", FIELDS, protocols=INTERFACES)
def interface_fields(protocol: str, x: Any) -> None:
    """The fields have the types, the sizes and the version of the standard."""
    interface = getattr(x, f"__{protocol}__")
    check(isinstance(interface, dict), f"it is {type(interface).__name__}, not a dict")
    missing = {"version", "shape", "typestr"} - interface.keys()
    check(not missing, f"it lacks {missing}")
    shape, strides, data = interface["shape"], interface.get("strides"), interface.get("data")
    check(interface["version"] in (2, 3), f"its version is {interface['version']}")
    check(isinstance(shape, tuple) and all(isinstance(n, int) and n >= 0 for n in shape), f"shape {shape!r}")
    dtype = np.dtype(interface["typestr"])
    fits = strides is None or (isinstance(strides, tuple) and len(strides) == len(shape))
    check(fits, f"strides {strides!r}")
    if interface.get("descr") is not None:
        size = np.dtype([(field[0] or "f0", *field[1:]) for field in interface["descr"]]).itemsize
        check(size == dtype.itemsize, f"descr has {size} bytes, and typestr {dtype.itemsize}")
    if protocol == "cuda_array_interface" or isinstance(data, tuple):
        check(isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], int), f"data {data!r}")
        check(isinstance(data[1], bool), f"the read-only flag is {data[1]!r}")
    check(interface.get("stream") != 0, "stream 0 is ambiguous and not allowed")


@case("array_interface.values", "wrong value", HOST.format("data, strides"))
def interface_values(x: Any) -> None:
    """The values are those of ``numpy.asarray``."""
    fields, expected = x.__array_interface__, as_numpy(x)
    if expected is None or not isinstance(fields.get("data"), tuple):
        raise Skip("numpy.asarray does not take it, or it has a buffer instead of an address")
    values = read(fields["data"][0], fields["shape"], fields.get("strides"), fields["typestr"])
    check(same(values, expected) or values.dtype != expected.dtype, f"{values}, not {expected}")
    check_buffer(x)


@case("array_interface.alive", "use after free", HOST.format("data"))
def interface_alive(x: Any) -> None:
    """The object holds the memory: it is the same in each request, and lives without the dict."""
    fields = dict(x.__array_interface__)
    if not isinstance(fields.get("data"), tuple):
        raise Skip("a buffer instead of an address")
    before = read(fields["data"][0], fields["shape"], fields.get("strides"), fields["typestr"])
    refill(before.nbytes)
    require(x.__array_interface__["data"] == fields["data"], "each request has another address")
    after = read(fields["data"][0], fields["shape"], fields.get("strides"), fields["typestr"])
    check(same(before, after), "the values change while the object lives")


@case("array_interface.read_only", "flag ignored", HOST.format("data"))
def interface_read_only(x: Any) -> None:
    """Memory that the buffer protocol does not let write is marked as read-only."""
    if refused(lambda: memoryview(x), TypeError, BufferError) or not memoryview(x).readonly:
        raise Skip("its memory is writable, or it has no buffer")
    check(x.__array_interface__["data"][1], "the buffer is read-only, and the interface is not")


def check_buffer(x: Any) -> None:
    """The buffer and the array interface have the same type, strides and values."""
    fields = getattr(x, "__array_interface__", {})
    plain = isinstance(fields.get("shape"), tuple) and isinstance(fields.get("data"), tuple)
    if plain and not refused(lambda: memoryview(x), TypeError, BufferError, ValueError):
        array = as_numpy(memoryview(x))
        values = read(fields["data"][0], fields["shape"], fields.get("strides"), fields["typestr"])
        agrees = array is None or (values.dtype == array.dtype and same(values, array))
        check(agrees, f"the buffer has {array!r}, the interface {values!r}")


class Buffer(ctypes.Structure):
    """``Py_buffer``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("buf", "obj")),
        *((name, ctypes.c_ssize_t) for name in ("len", "itemsize")),
        *((name, ctypes.c_int) for name in ("readonly", "ndim")),
        ("format", ctypes.c_char_p),
        *((name, ctypes.POINTER(ctypes.c_ssize_t)) for name in ("shape", "strides", "suboffsets")),
        ("internal", ctypes.c_void_p),
    )


def get_buffer(x: Any, flags: int) -> Buffer:
    buffer = Buffer()
    get = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
    get(("PyObject_GetBuffer", ctypes.pythonapi))(x, ctypes.addressof(buffer), flags)
    return buffer


def release(buffer: Buffer) -> None:
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyBuffer_Release", ctypes.pythonapi))(ctypes.addressof(buffer))


def request(x: Any, flags: int) -> None:
    release(get_buffer(x, flags))


SIMPLE, WRITABLE, FORMAT, ND, STRIDES, C, F, ANY = 0, 1, 4, 8, 0x18, 0x38, 0x58, 0x98


@case("buffer.fields", "wrong value", BUFFER.format("buffer structure"))
def buffer_fields(x: Any) -> None:
    """Length, item size, format, shape and strides belong together."""
    with memoryview(x) as view:
        size = math.prod(view.shape or ()) * view.itemsize
        check(view.nbytes == size, f"shape {view.shape} of {view.itemsize} bytes, and {view.nbytes} bytes")
        own = np.dtype(view.format.replace("N", "P")) if view.format.isalpha() else None
        check(own is None or own.itemsize == view.itemsize, f"format {view.format}, {view.itemsize} bytes")
        expected = as_numpy(x)
        if expected is not None and own == expected.dtype:
            check(same(np.array(view), expected), f"the values are not those of {expected}")
        check_buffer(x)


@case("buffer.requests", "flag ignored", BUFFER.format("buffer request types"))
def buffer_requests(x: Any) -> None:
    """A buffer has what its request allows, and a request that it cannot meet is refused with BufferError."""
    with memoryview(x) as view:
        contiguous = {SIMPLE: view.c_contiguous, ND: view.c_contiguous, C: view.c_contiguous}
        contiguous |= {F: view.f_contiguous, ANY: view.contiguous, STRIDES: True, STRIDES | FORMAT: True}
        readonly, nbytes = view.readonly, view.nbytes
    for flags, allowed in contiguous.items():
        if refused(partial(request, x, flags), BufferError):
            continue
        check(allowed, f"request {flags:#x} returns memory that is not contiguous so")
        buffer = get_buffer(x, flags)
        check(buffer.len == nbytes, f"request {flags:#x} has {buffer.len} bytes, not {nbytes}")
        check(flags & FORMAT or not buffer.format, f"request {flags:#x} has a format")
        check(flags & ND or not buffer.shape, f"request {flags:#x} has a shape")
        check(flags & STRIDES == STRIDES or not buffer.strides, f"request {flags:#x} has strides")
        release(buffer)
    writes = not refused(partial(request, x, WRITABLE | STRIDES), BufferError)
    check(writes != readonly, f"readonly is {readonly}, a request to write {'works' if writes else 'fails'}")


@case("buffer.alive", "use after free", BUFFER.format("PyBuffer_Release"))
def buffer_alive(make: Any) -> None:
    """The memory lives as long as the buffer, without the object."""
    x = made(make, "buffer")
    view = memoryview(x)
    before = view.tobytes()
    del x
    refill(len(before))
    check(view.tobytes() == before, "the values change after the object is deleted")


@case("buffer.leak", "leak", BUFFER.format("PyBuffer_Release"))
def buffer_leak(x: Any) -> None:
    """A released export keeps no memory."""
    check_leak(x, lambda: memoryview(x).release())
