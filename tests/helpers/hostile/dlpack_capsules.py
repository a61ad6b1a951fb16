"""DLPack capsules with wrong structs over real memory, and exporters that misbehave.

A capsule does not tell the size of its memory, so every claim of a shape lies within the memory or
is wrong for any memory: negative, or larger than the address space.
"""

from __future__ import annotations

import ctypes
from random import Random
from typing import Any

import numpy as np

from helpers.hostile.case import Built, keep, memory
from zerocopy.protocols import dlpack

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
#: A C function that ignores its argument and needs no GIL, so that it can serve as deleter in any thread.
_NO_OP = ctypes.cast(ctypes.pythonapi.Py_IsInitialized, ctypes.c_void_p).value

_BYTES = 16384
_HUGE = [2**62, 2**63 - 1, 2**61 + 1]
#: DLPack's codes and widths that frameworks have; the last ones are not standard.
_TYPES = [(0, 8), (0, 16), (0, 32), (0, 64), (1, 8), (1, 16), (1, 32), (1, 64), (2, 16), (2, 32), (2, 64)]
_TYPES += [(4, 16), (5, 64), (5, 128), (6, 8), (7, 8), (10, 8), (12, 8), (14, 8), (17, 4)]
_ODD_TYPES = [(0, 0), (0, 1), (0, 7), (1, 24), (2, 128), (3, 64), (4, 32), (5, 32), (6, 1), (6, 32), (99, 8)]
_ODD_TYPES += [(255, 255), (1, 4), (2, 8), (16, 6)]
_CODES = {0: "i", 1: "u", 2: "f", 5: "c"}


def capsule(
    rng: Random,
    *,
    shape: list[int],
    strides: list[int] | None,
    dtype: tuple[int, int, int],
    data: int,
    ndim: int | None = None,
    device: tuple[int, int] = (1, 0),
    byte_offset: int = 0,
    version: tuple[int, int] | None = None,
    flags: int = 0,
    name: bytes = b"",
    null_shape: bool = False,
) -> Any:
    """Return a capsule with these fields; its structs and memory live as long as the process."""
    managed = dlpack.DLManagedTensorVersioned() if version is not None else dlpack.DLManagedTensor()
    if version is not None:
        managed.major, managed.minor, managed.flags = *version, flags
    tensor = managed.dl_tensor
    tensor.data, tensor.device_type, tensor.device_id = data or None, *device
    tensor.ndim = len(shape) if ndim is None else ndim
    tensor.code, tensor.bits, tensor.lanes = dtype
    if shape and not null_shape:
        tensor.shape = keep((ctypes.c_int64 * len(shape))(*shape))
    if strides:
        tensor.strides = keep((ctypes.c_int64 * len(strides))(*strides))
    tensor.byte_offset = byte_offset
    managed.deleter = rng.choice([_NO_OP, _NO_OP, None])
    keep(managed)
    name = name or (dlpack.VERSIONED if version is not None else dlpack.LEGACY)
    return _new_capsule(ctypes.addressof(managed), keep(name), None)


class Exporter:
    """An object with ``__dlpack__`` and ``__dlpack_device__`` that return whatever they are given."""

    def __init__(self, make: Any, device: Any, keywords: bool) -> None:
        self.make, self.device, self.keywords = make, device, keywords

    def __dlpack__(self, **options: Any) -> Any:
        if options and not self.keywords:
            raise TypeError(f"__dlpack__() got an unexpected keyword argument {next(iter(options))!r}")
        return self.make()

    def __dlpack_device__(self) -> Any:
        if isinstance(self.device, BaseException):
            raise self.device
        return self.device


class DeviceRaises(Exporter):
    """An exporter without a working ``__dlpack_device__``."""

    __dlpack_device__ = None  # type: ignore[assignment]


def _layout(rng: Random) -> tuple[list[int], list[int] | None, int]:
    """Return a shape, strides in elements and a first element, all within 64 elements."""
    shape = [rng.choice([1, 1, 2, 3, 4]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
    strides, step = [], 1
    for count in reversed(shape):
        strides.insert(0, step)
        step *= count
    first = 0
    for i, count in enumerate(shape):
        way = rng.random()
        if way < 0.15:
            first += strides[i] * (count - 1)
            strides[i] = -strides[i]
        elif way < 0.25:
            strides[i] = 0
        elif way < 0.35 and count == 1:
            strides[i] = rng.choice([0, -7, 2**40, -(2**62), 2**63 - 1])
    plain = rng.random() < 0.3 and first == 0 and strides == _row_major(shape)
    return shape, None if plain else strides, first


def _row_major(shape: list[int]) -> list[int]:
    strides, step = [], 1
    for count in reversed(shape):
        strides.insert(0, step)
        step *= count
    return strides


def build(rng: Random) -> Built:
    """Return an exporter whose capsule is valid but for at most two wrong fields."""
    block = memory(rng, _BYTES)
    shape, strides, first = _layout(rng)
    code, bits = rng.choice(_TYPES)
    lanes, version = 1, rng.choice([None, (1, 0), (1, 1), (1, 2)])
    # The first element lies in the middle, so that negative strides stay within the memory.
    itemsize = max(bits // 8, 1)
    fields: dict[str, Any] = {"shape": shape, "strides": strides, "version": version}
    start, offset = 8192 + first * itemsize, rng.choice([0, 0, 64])
    fields |= {"data": block.ctypes.data + start - offset, "byte_offset": offset}
    device: Any = (1, 0)
    wrong: list[str] = []
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        wrong.append(rng.choice(list(_WRONG)))
        _WRONG[wrong[-1]](rng, fields)
    code, bits, lanes = fields.setdefault("dtype", (code, bits, lanes))
    if "device" in fields and rng.random() < 0.6:
        device = fields["device"]
    expected = None
    if not wrong and code in _CODES and bits >= 8 and all(abs(s) < 2**20 for s in strides or ()):
        kind = np.dtype(f"{_CODES[code]}{bits // 8}")
        steps = [s * itemsize for s in (strides if strides is not None else _row_major(shape))]
        expected = np.ndarray(shape, kind, block.data, start, steps).copy()
    if rng.random() < 0.1:
        device = rng.choice(_DEVICES)
        wrong.append(f"__dlpack_device__ = {device!r}")
    cached = rng.random() < 0.05
    one = capsule(rng, **fields)
    make = (lambda: one) if cached else (lambda: capsule(rng, **fields))
    if rng.random() < 0.08:
        answer = rng.choice(_ANSWERS)
        make, expected = (lambda: _answer(answer)), None
        wrong.append(f"__dlpack__ gives {answer!r}")
    cls = DeviceRaises if rng.random() < 0.01 else Exporter
    obj = cls(make, device, rng.random() < 0.8)
    if cached or cls is DeviceRaises:
        wrong.append("one capsule for all requests" if cached else "no device")
        expected = None
    text = f"{'; '.join(wrong) or 'valid'}: {fields}"
    return Built(obj, text, [block], None if device != (1, 0) else expected, once=cached)


def _answer(answer: Any) -> Any:
    if isinstance(answer, BaseException):
        raise answer
    return answer


_DEVICES = [(1,), (1, 0, 0), None, 1, "cpu", ("cpu", 0), (1, None), (1.5, 0), (2, 0), (2, -1), (99, 0)]
_DEVICES += [(-1, 0), (2**40, 0), (1, 2**70), (3, 0), (13, 0), RuntimeError("no device"), KeyError(3)]
_DEVICES += [(10, 1), [1, 0], {1: 0}, (True, False)]
_ANSWERS: list[Any] = [
    None,
    3,
    "dltensor",
    (),
    RuntimeError("gone"),
    BufferError("read-only"),
    TypeError("bad"),
]
_ANSWERS += [NotImplementedError(), MemoryError("none"), np.zeros(3), StopIteration(), RecursionError("deep")]


def _shape(rng: Random, fields: dict[str, Any]) -> None:
    size = max(len(fields["shape"]), 1)
    kind = rng.randrange(4)
    if kind == 0:
        fields["shape"] = [-rng.randrange(1, 9), *fields["shape"][1:]]
    elif kind == 1:  # larger than the address space, also with a zero in it
        fields["shape"] = [rng.choice(_HUGE) for _ in range(size + 1)]
        fields["strides"] = None
        if rng.random() < 0.5:
            fields["shape"][rng.randrange(size + 1)] = 0
    elif kind == 2:
        fields["shape"] = [*fields["shape"], 0]
        fields["strides"] = rng.choice([None, [rng.choice([0, 1, -5, 2**62])] * (size + 1)])
        if fields["strides"]:
            fields["strides"] = fields["strides"][: len(fields["shape"])]
    else:
        fields["shape"] = [1] * rng.choice([33, 64, 65, 100])
        fields["strides"] = rng.choice([None, [1] * len(fields["shape"])])


def _strides(rng: Random, fields: dict[str, Any]) -> None:
    count = len(fields["shape"])
    fields["shape"] = [max(abs(n), 2) if abs(n) < 9 else n for n in fields["shape"]]
    fields["strides"] = [rng.choice([2**62, -(2**62), 2**63 - 1, -(2**63)]) for _ in range(count)]


def _ndim(rng: Random, fields: dict[str, Any]) -> None:
    fields["ndim"] = rng.choice([-1, -(2**31), 2**31 - 1, 2**20])


def _dtype(rng: Random, fields: dict[str, Any]) -> None:
    code, bits = rng.choice(_TYPES + _ODD_TYPES * 2)
    fields["dtype"] = (code, bits, rng.choice([1, 1, 1, 0, 2, 4]))


def _device(rng: Random, fields: dict[str, Any]) -> None:
    fields["device"] = (
        rng.choice([2, 3, 13, 4, 7, 8, 10, 14, 0, -1, 99]),
        rng.choice([0, 0, 1, -1, 2**31 - 1]),
    )


def _offset(rng: Random, fields: dict[str, Any]) -> None:
    fields["byte_offset"] = rng.choice([2**63, 2**64 - 1, 2**62])


def _version(rng: Random, fields: dict[str, Any]) -> None:
    fields["version"] = rng.choice([(0, 0), (0, 8), (1, 99), (2, 0), (2**32 - 1, 0)])


def _flags(rng: Random, fields: dict[str, Any]) -> None:
    fields["version"], fields["flags"] = (1, 1), rng.choice([1, 2, 3, 4, 7, 2**63, 2**64 - 1])


def _null(rng: Random, fields: dict[str, Any]) -> None:
    fields["data"] = 0
    if rng.random() < 0.5:
        fields["byte_offset"] = 0


def _null_shape(rng: Random, fields: dict[str, Any]) -> None:
    fields["null_shape"] = True


def _name(rng: Random, fields: dict[str, Any]) -> None:
    fields["name"] = rng.choice(
        [b"used_dltensor", b"used_dltensor_versioned", b"dltensor ", b"x", b"arrow_array"]
    )
    if rng.random() < 0.3:
        fields["name"] = b"\xff\xfe"


_WRONG = {
    "shape": _shape,
    "strides": _strides,
    "ndim": _ndim,
    "dtype": _dtype,
    "device": _device,
    "byte_offset": _offset,
    "version": _version,
    "flags": _flags,
    "NULL data": _null,
    "NULL shape": _null_shape,
    "name": _name,
}
