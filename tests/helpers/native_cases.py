"""Bytes -> a DLPack capsule with arbitrary fields, and whether its description is valid, in plain Python."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from helpers.native_core import ALL_DTYPES
from zerocopy.dtype import by_name
from zerocopy.protocols import dlpack

#: Bytes of the arena, in which valid descriptions lie. Small, so that many layouts touch both of its ends.
SIZE = 512
_LAST = (1 << 56) - 1 if platform.machine() in ("x86_64", "AMD64") else (1 << 64) - 1
_LIMIT = (2**63 - 1) // 16

DTYPES = {(by_name(dtype.name).code, by_name(dtype.name).bits): dtype for dtype in ALL_DTYPES}
_PAIRS = list(DTYPES)
_ODD = [
    (0, 0),
    (0, 1),
    (0, 4),
    (2, 8),
    (2, 128),
    (3, 64),
    (4, 32),
    (5, 32),
    (6, 16),
    (17, 4),
    (31, 8),
    (32, 8),
]
_ODD += [(255, 255), (1, 24), (0, 128), (99, 64)]
_WILD = [0, -1, -2, 2**31, -(2**31), 2**32, 2**48, 2**56, 2**59, 2**60, 2**62, 2**63 - 1, -(2**63), -(2**62)]
_OFFSETS = [2**64 - 1, 2**63, 2**62, 2**57, 2**56 - 1]
NAMES = [b"dltensor", b"dltensor_versioned", b"used_dltensor", b"used_dltensor_versioned", b"", b"dltensor2"]


class Reader:
    """Reads choices from bytes, and zeros after their end, so that every input is valid."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        """Return the next byte."""
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def below(self, count: int) -> int:
        """Return a number below `count`, which is at most 65,536."""
        return (self.byte() | self.byte() << 8) % count if count > 256 else self.byte() % count

    def pick(self, options: Any) -> Any:
        """Return one of a list."""
        return options[self.below(len(options))]

    def rarely(self) -> bool:
        """Return True for one value of 16."""
        return self.byte() % 16 == 15


@dataclass
class Case:
    """The fields of a capsule and of its ``DLTensor``; `data` is an address or 0 for NULL."""

    name: bytes
    version: tuple[int, int]
    flags: int
    device: tuple[int, int]
    data: int
    byte_offset: int
    dtype: tuple[int, int, int]
    shape: list[int] | None
    strides: list[int] | None
    ndim: int
    deleter: bool
    arena: int = field(repr=False, default=0)

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype[1] // 8

    @property
    def steps(self) -> list[int]:
        """The strides in elements."""
        if self.strides is not None:
            return self.strides[: self.ndim]
        assert self.shape is not None or not self.ndim
        return [prod((self.shape or [])[i + 1 : self.ndim]) for i in range(self.ndim)]

    @property
    def extents(self) -> list[int]:
        """The shape."""
        return (self.shape or [])[: self.ndim]

    def is_valid(self) -> bool:
        """Whether some memory of this process could have this description."""
        versioned = self.name == b"dltensor_versioned"
        if self.name not in NAMES[:2] or (versioned and self.version[0] != 1) or self.device[0] != 1:
            return False
        if not self.data or self.dtype[2] != 1 or self.dtype[1] not in (8, 16, 32, 64, 128):
            return False
        if not 0 <= self.ndim <= 64 or (self.ndim and self.shape is None):
            return False
        if any(extent < 1 for extent in self.extents) or prod(self.extents) > _LIMIT:
            return False
        low, high = self.reach()
        return low > 0 and high <= _LAST + 1

    def reach(self) -> tuple[int, int]:
        """Return the first address and the one after the last."""
        first = self.data + self.byte_offset
        ends = [
            (extent - 1) * step * self.itemsize for extent, step in zip(self.extents, self.steps, strict=True)
        ]
        low = first + sum(end for end in ends if end < 0)
        return low, first + sum(end for end in ends if end > 0) + self.itemsize

    def is_inside(self) -> bool:
        """Whether a valid description lies in the arena, with few enough elements to read them all."""
        low, high = self.reach()
        return prod(self.extents) <= 4096 and self.arena <= low and high <= self.arena + SIZE

    def expected(self) -> Any:
        """Return an ndarray with the elements of a description inside the arena."""
        block = np.frombuffer((ctypes.c_char * SIZE).from_address(self.arena), np.uint8)
        dtype = DTYPES[self.dtype[:2]]
        steps = [
            step * self.itemsize if extent > 1 else self.itemsize
            for extent, step in zip(self.extents, self.steps, strict=True)
        ]
        return np.ndarray(self.extents, dtype, block.data, self.data + self.byte_offset - self.arena, steps)


def decode(data: bytes, arena: int) -> tuple[Case, Reader]:
    """Return a case over an arena of `SIZE` bytes: valid, inside it, but for a few wrong fields."""
    read = Reader(data)
    code, bits = read.pick(_PAIRS)
    itemsize = bits // 8
    capacity = SIZE // itemsize
    shape, strides, low, high = _layout(read, capacity)
    first = -low + read.below(capacity - (high - low)) if high - low < capacity else 0
    start = first * itemsize
    if read.rarely():
        start = min(
            start + 1 + read.below(15), SIZE - itemsize * (high + 1) if high * itemsize < SIZE else start
        )
    offset = read.pick([0, 0, 8, 64, start])
    case = Case(
        name=read.pick(NAMES[:2]),
        version=(1, read.pick([0, 0, 1, 3, 2**32 - 1])),
        flags=read.pick([0, 0, 1, 2, 3, 4, 2**64 - 1]),
        device=(1, read.pick([0, 0, 0, 1, -1])),
        data=arena + start - offset,
        byte_offset=offset,
        dtype=(code, bits, 1),
        shape=shape,
        strides=strides,
        ndim=len(shape),
        deleter=not read.rarely(),
        arena=arena,
    )
    for _ in range(read.pick([0, 0, 0, 1, 1, 2, 3])):
        _spoil(case, read)
    return case, read


def _layout(read: Reader, capacity: int) -> tuple[list[int], list[int] | None, int, int]:
    """Return a shape and strides whose elements lie within `capacity`, and the first and last element."""
    ndim = read.pick([0, 1, 1, 2, 2, 3, 4, 5, 63, 64])
    shape = [1] * ndim
    for i in range(ndim):
        if ndim < 10 or i % 31 == 0:
            shape[i] = 1 + read.below(max(1, min(9, capacity // prod(shape))))
    if read.byte() % 4 == 0:
        return shape, None, 0, prod(shape) - 1
    order = sorted(range(ndim), key=lambda i: read.byte() if ndim < 10 else -i)
    if read.byte() % 2:
        order = list(range(ndim))[::-1]
    strides, step, low, high = [0] * ndim, 1, 0, 0
    for i in order:
        stride = step + (read.below(4) if read.rarely() else 0)
        stride = read.pick([stride, stride, stride, stride, -stride, 0, 1, 2])
        reach = stride * (shape[i] - 1)
        if max(high, high + reach) - min(low, low + reach) >= capacity:
            stride = reach = 0
        low, high = min(low, low + reach), max(high, high + reach)
        strides[i] = stride if shape[i] > 1 or not read.rarely() else read.pick(_WILD)
        step = max(step, abs(stride) * shape[i])
    return shape, strides, low, high


def _spoil(case: Case, read: Reader) -> None:
    """Change one field to a value that is wrong in most cases."""
    which = read.below(14)
    if which == 0:
        case.name = read.pick(NAMES)
    elif which == 1:
        case.version = (read.pick([0, 2, 1, 2**32 - 1]), 0)
    elif which == 2:
        case.device = (read.pick([0, 2, 3, 13, -1, 2**31 - 1, 10]), 0)
    elif which == 3:
        case.data = read.pick([0, 0, 1, 16, 2**56, 2**62, 2**64 - 1])
    elif which == 4:
        case.byte_offset = read.pick(_OFFSETS)
    elif which == 5:
        case.dtype = (*read.pick(_ODD + _PAIRS), 1)
    elif which == 6:
        case.dtype = (*case.dtype[:2], read.pick([0, 2, 4, 2**16 - 1]))
    elif which in (7, 8) and case.shape:
        case.shape[read.below(len(case.shape))] = read.pick(_WILD)
    elif which in (9, 10) and case.strides:
        case.strides[read.below(len(case.strides))] = read.pick(_WILD)
    elif which == 11:
        case.ndim = read.pick([-1, 65, 2**31 - 1, -(2**31), 1000])
    elif which == 12:
        case.shape = None
    elif which == 13:
        case.strides = None


_ALIVE: list[Struct] = []


class Struct:
    """The structs of one case at a time, written for each, and the count of the deleter's calls."""

    def __init__(self) -> None:
        self.legacy, self.versioned = dlpack.DLManagedTensor(), dlpack.DLManagedTensorVersioned()
        self.shape, self.strides = (ctypes.c_int64 * 64)(), (ctypes.c_int64 * 64)()
        self.deleted = 0
        _ALIVE.append(self)  # a result that a failed test holds may call the deleter later
        self._callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._delete)
        self._deleter = ctypes.cast(self._callback, ctypes.c_void_p).value

    def _delete(self, address: int) -> None:
        self.deleted += 1

    def capsule(self, case: Case) -> Any:
        """Return an unconsumed capsule of a case, without a destructor."""
        is_versioned = case.name.endswith(b"versioned")
        managed = self.versioned if is_versioned else self.legacy
        if is_versioned:
            managed.major, managed.minor = case.version
            managed.flags = case.flags
        managed.deleter = self._deleter if case.deleter else None
        tensor = managed.dl_tensor
        tensor.data, tensor.byte_offset, tensor.ndim = case.data or None, case.byte_offset, case.ndim
        tensor.device_type, tensor.device_id = case.device
        tensor.code, tensor.bits, tensor.lanes = case.dtype
        for values, numbers, key in (
            (case.shape, self.shape, "shape"),
            (case.strides, self.strides, "strides"),
        ):
            ctypes.memset(numbers, 0x7F, 512)
            if values is not None:
                numbers[: len(values)] = values
            setattr(tensor, key, None if values is None else numbers)
        self.deleted = 0
        return _new_capsule(ctypes.addressof(managed), case.name, None)


_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
