"""Cases of DLPack's C exchange API, ``__dlpack_c_exchange_api__``: it and the capsule must agree."""

from __future__ import annotations

import ctypes
from typing import Any

from zerocopy.protocols.dlpack import DLManagedTensorVersioned, DLTensor
from zerocopy.testing.cases import Skip, case, check, made, require
from zerocopy.testing.dlpack import LATEST, Tensor, export
from zerocopy.testing.memory import Callback, as_numpy, check_leak, get_name, get_pointer, refill, same

STANDARD = "DLPack 1.3, C exchange API (https://dmlc.github.io/dlpack/latest/c_api.html)"
From = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
To = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.py_object))


class Table(ctypes.Structure):
    """``DLPackExchangeAPI``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("prev_api", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("from_py_object", ctypes.c_void_p),
        ("to_py_object", ctypes.c_void_p),
        ("tensor_from_py_object", ctypes.c_void_p),
        ("current_work_stream", ctypes.c_void_p),
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


@case("dlpack_c_exchange_api.agrees", "wrong value", STANDARD)
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


@case("dlpack_c_exchange_api.round_trip", "use after free", STANDARD)
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


@case("dlpack_c_exchange_api.leak", "leak", STANDARD)
def exchange_leak(x: Any) -> None:
    """A tensor that is deleted keeps no memory."""

    def use() -> None:
        tensor = managed(x)
        Callback(tensor.deleter)(ctypes.addressof(tensor))

    check_leak(x, use)
