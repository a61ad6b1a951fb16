"""Cases of producers of DLPack: ``__dlpack__`` and ``__dlpack_device__``."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from zerocopy.protocols.dlpack import DLManagedTensor, DLManagedTensorVersioned
from zerocopy.testing.cases import Skip, case, check
from zerocopy.testing.memory import (
    Callback,
    get_name,
    get_pointer,
    made,
    read,
    refill,
    refused,
    same,
    set_name,
)

API = "array API 2024.12, {} (https://data-apis.org/array-api/latest/API_specification/array_object.html)"
EXPORT, DEVICE = API.format("array.__dlpack__"), API.format("array.__dlpack_device__")
PYTHON = "DLPack, Python specification, {} (https://dmlc.github.io/dlpack/latest/python_spec.html)"
STRUCT = "dlpack.h 1.2, {} (https://dmlc.github.io/dlpack/latest/c_api.html)"

USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}
LATEST = (1, 2)
#: Letters of NumPy's types by DLPack's codes: int, uint, float, opaque, bfloat, complex, bool.
KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
READ_ONLY, IS_COPIED = 1, 2


class Tensor:
    """The description of an unconsumed capsule."""

    def __init__(self, capsule: Any) -> None:
        check(type(capsule).__name__ == "PyCapsule", f"__dlpack__ returns {type(capsule).__name__}")
        self.capsule: Any = capsule
        self.name = get_name(capsule)
        check(self.name in USED, f"the capsule is named {self.name!r}")
        self.versioned = self.name == b"dltensor_versioned"
        struct = DLManagedTensorVersioned if self.versioned else DLManagedTensor
        self.address = get_pointer(capsule, self.name)
        self.managed: Any = struct.from_address(self.address)
        self.version = (self.managed.major, self.managed.minor) if self.versioned else (0, 0)
        check(self.version[0] <= LATEST[0], f"the struct has version {self.version}, which was not asked for")
        self.flags = self.managed.flags if self.versioned else 0
        tensor = self.managed.dl_tensor
        self.device = (tensor.device_type, tensor.device_id)
        self.dtype = (tensor.code, tensor.bits, tensor.lanes)
        check(0 <= tensor.ndim <= 64, f"ndim is {tensor.ndim}")
        check(tensor.shape or not tensor.ndim, "the shape is NULL")
        self.shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
        check(min(self.shape, default=0) >= 0, f"the shape is {self.shape}")
        self.has_strides = bool(tensor.strides)
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
        check(self.data or 0 in self.shape, "the data pointer is NULL")
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

        callback = Callback(counted)
        self.managed.deleter = ctypes.cast(callback, ctypes.c_void_p).value
        KEPT.append(callback)
        return calls


KEPT: list[Any] = []  # callbacks live as long as a capsule may call them


def export(x: Any, **options: Any) -> Any:
    """Return a capsule; skip the case if the producer refuses, or lacks an option."""
    try:
        return x.__dlpack__(**options)
    except BufferError as error:
        raise Skip(f"it refuses: {error}") from error
    except TypeError as error:
        if options:
            raise Skip(f"it takes no {', '.join(options)}: {error}") from error
        raise


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
def dlpack_export(make: Any) -> None:
    """What cannot be exported is refused with BufferError."""
    x = made(make, "dlpack")
    if refused(x.__dlpack__, BufferError) and refused(
        lambda: x.__dlpack__(max_version=LATEST), BufferError, TypeError
    ):
        raise Skip("it refuses")


@case("dlpack.device", "wrong value", DEVICE)
def dlpack_device(make: Any) -> None:
    """``__dlpack_device__`` is a pair of integers, that of the capsule."""
    x = made(make, "dlpack")
    check(hasattr(x, "__dlpack_device__"), "it has no __dlpack_device__")
    device = x.__dlpack_device__()
    check(isinstance(device, tuple) and len(device) == 2, f"__dlpack_device__() is {device!r}")
    check(all(isinstance(part, int) for part in device), f"__dlpack_device__() is {device!r}")
    for tensor in tensors(x):
        check(tensor.device == device, f"__dlpack_device__() is {device}, the capsule's is {tensor.device}")


@case("dlpack.alive", "use after free", PYTHON.format("Semantics"))
def dlpack_alive(make: Any) -> None:
    """The memory lives until the deleter runs, without the producer and without the capsule."""
    for versioned in (False, True):
        x = made(make, "dlpack")
        try:
            tensor = Tensor(export(x, **({"max_version": LATEST} if versioned else {})))
        except Skip:
            continue
        before = tensor.values()
        del x
        refill(before.nbytes)
        check(same(tensor.values(), before), "the values change after the producer is deleted")
        delete = tensor.consume()
        tensor.capsule = None
        refill(before.nbytes)
        check(same(tensor.values(), before), "the values change after the consumed capsule is deleted")
        delete()
