"""Array interfaces, ``__array__`` and buffers with wrong fields over real memory.

An address in ``data`` does not tell the size of its memory, so claims of shapes follow the rule of
`dlpack_capsules`. A buffer in ``data`` has a size, which the consumer can check, so any claim is fair.
"""

from __future__ import annotations

import array
import ctypes
import mmap
from random import Random
from typing import Any

import numpy as np

from helpers.hostile.case import Built, keep, memory

_BYTES = 16384
_TYPESTRS = [
    "<f4",
    "<f8",
    "<i4",
    "<i8",
    "|u1",
    "|i1",
    "|b1",
    "<u2",
    "<f2",
    "<c8",
    "<c16",
    "<M8[s]",
    "<m8[ns]",
]
_ODD_TYPESTRS: list[Any] = [
    ">f4",
    ">i8",
    "|S4",
    "<U2",
    "|V8",
    "|V0",
    "|O8",
    "<f16",
    "<c32",
    "f4",
    "=f4",
    "",
    "x",
]
_ODD_TYPESTRS += ["<f3", "<i0", "|t1", None, 4, b"<f4", "<M8", "<f4 ", "<\u0664", "<f-4", "<i99999999999"]
_SHAPES: list[Any] = [(4,), (2, 3), (), (0,), (3, 0), (1, 1, 1), (4, 2)]
_ODD_SHAPES: list[Any] = [(-1,), (2**63,), (2**62, 4), (0, 2**62, 4), 4, None, "ab", [2, 3], (2.0,), (True,)]
_ODD_SHAPES += [("2",), (None,), (1,) * 65, (2**31, 2**31, 2**31), {2: 3}, (np.int64(2), np.int32(3))]
_ODD_STRIDES: list[Any] = [
    (0,),
    (1,),
    "ab",
    4,
    (2**63,),
    (2**62, 2**62),
    (-(2**63),),
    (1.5,),
    ("4",),
    [4],
    (),
]
_VERSIONS: list[Any] = [3, 3, 3, 2, 0, 99, -1, "3", None, 3.0]


class ArrayInterface:
    """An object whose ``__array_interface__`` is any value."""

    def __init__(self, value: Any) -> None:
        self.__array_interface__ = value


class CudaInterface:
    """An object whose ``__cuda_array_interface__`` is any value."""

    def __init__(self, value: Any) -> None:
        self.__cuda_array_interface__ = value


class BothInterfaces(ArrayInterface):
    """An object with both interfaces."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.__cuda_array_interface__ = value


class RaisingInterface:
    """An object whose interfaces raise."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @property
    def __array_interface__(self) -> Any:
        raise self.error


class RaisingCudaInterface:
    """An object whose CUDA interface raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @property
    def __cuda_array_interface__(self) -> Any:
        raise self.error


class StructInterface:
    """An object with ``__array_struct__`` alone, from NumPy or another value."""

    def __init__(self, value: Any) -> None:
        self.__array_struct__ = value


class ArrayMethod:
    """An object with ``__array__``, which returns or raises any value."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def _numpy_layout(rng: Random, block: np.ndarray, typestr: str) -> np.ndarray:
    """Return an array within the memory, with odd strides."""
    dtype = np.dtype(typestr)
    if dtype.kind == "b":
        block &= 1  # other bytes are not booleans
    flat = block[4096:8192][: 512 * dtype.itemsize].view(dtype)[:64]
    x = flat.reshape(rng.choice([(64,), (8, 8), (4, 4, 4), (1, 64), (64, 1), (2, 32)]))
    for axis in range(x.ndim):
        way = rng.random()
        index: list[Any] = [slice(None)] * x.ndim
        if way < 0.2:
            index[axis] = slice(None, None, -1)
        elif way < 0.35:
            index[axis] = slice(None, None, 2)
        elif way < 0.42:
            index[axis] = slice(0, 0)
        elif way < 0.5:
            index[axis] = slice(0, 1)
        x = x[tuple(index)]
    return x


def build_array_interface(rng: Random) -> Built:
    """Return an object with ``__array_interface__`` that is valid but for at most two wrong fields."""
    block = memory(rng, _BYTES)
    x = _numpy_layout(rng, block, rng.choice(_TYPESTRS))
    value: dict[str, Any] = dict(x.__array_interface__)
    value["strides"] = rng.choice([x.strides, x.strides, None]) if x.flags.c_contiguous else x.strides
    value["data"] = (value["data"][0], rng.random() < 0.3)
    wrong = [rng.choice(list(_WRONG)) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
    for name in wrong:
        _WRONG[name](rng, value, block)
    cls = rng.choice([ArrayInterface, ArrayInterface, ArrayInterface, BothInterfaces])
    obj: Any = cls(value)
    if rng.random() < 0.08:
        odd = rng.choice(
            [None, 3, "x", [], (), {}, RuntimeError("no"), KeyError("data"), AttributeError("x")]
        )
        obj = RaisingInterface(odd) if isinstance(odd, BaseException) else ArrayInterface(odd)
        wrong.append(f"interface {odd!r}")
    expected = x.copy() if not wrong and cls is ArrayInterface else None
    return Built(obj, f"{cls.__name__} {'; '.join(wrong) or 'valid'}: {value}", [block], expected)


def build_cuda_interface(rng: Random) -> Built:
    """Return an object with ``__cuda_array_interface__``: host memory that is declared a device's."""
    block = memory(rng, _BYTES)
    x = _numpy_layout(rng, block, rng.choice(_TYPESTRS))
    value: dict[str, Any] = {**x.__array_interface__, "strides": x.strides, "stream": None}
    wrong = [rng.choice([*_WRONG, "stream"]) for _ in range(rng.choice([0, 1, 1, 2]))]
    for name in wrong:
        if name == "stream":
            value["stream"] = rng.choice([0, 1, 2, -1, "x", 2**70, 1.5])
        else:
            _WRONG[name](rng, value, block)
    obj: Any = CudaInterface(value)
    if rng.random() < 0.1:
        odd = rng.choice([None, 3, "x", [], {}, RuntimeError("no"), AttributeError("x")])
        obj = RaisingCudaInterface(odd) if isinstance(odd, BaseException) else CudaInterface(odd)
        wrong.append(f"interface {odd!r}")
    return Built(obj, f"{'; '.join(wrong) or 'valid'}: {value}", [block])


def build_array_method(rng: Random) -> Built:
    """Return an object with ``__array__`` or ``__array_struct__``."""
    block = memory(rng, _BYTES)
    x = _numpy_layout(rng, block, rng.choice(_TYPESTRS))
    answers: list[Any] = [
        x,
        x,
        x,
        None,
        3,
        "x",
        [1, 2],
        [[1], [2, 3]],
        object(),
        np.float32(3),
        np.ma.array([1]),
    ]
    answers += [RuntimeError("no"), AttributeError("x"), TypeError("no"), RecursionError("deep")]
    answers += [MemoryError("none"), StopIteration(), np.array([object()]), b"abcd"]
    answer = rng.choice(answers)
    if rng.random() < 0.3:
        struct = rng.choice([x.__array_struct__, None, 3, "x", keep(np.zeros(3)).__dlpack__()])
        if struct is not None and type(struct).__name__ == "PyCapsule":
            keep(x)
        return Built(StructInterface(struct), f"__array_struct__ {struct!r}", [block])
    expected = x.copy() if answer is x else None
    return Built(ArrayMethod(answer), f"__array__ gives {answer!r}"[:300], [block], expected)


def build_buffer(rng: Random) -> Built:
    """Return an object with the buffer protocol, with any format, shape and state."""
    block = memory(rng, 256)
    kind = rng.randrange(10)
    if kind == 0:
        fmt = rng.choice("bBhHiIlLqQfdc?")
        size = array.array("b").itemsize if fmt in "?c" else ctypes.sizeof(_CTYPES.get(fmt, ctypes.c_byte))
        view = memoryview(bytearray(block[: 16 * size])).cast(fmt)
        return Built(view, f"memoryview of {fmt}")
    if kind == 1:
        cls = rng.choice(list(_CTYPES.values()))
        shape = [rng.choice([0, 1, 2, 3]) for _ in range(rng.choice([1, 2, 3]))]
        for count in shape:
            cls = cls * count
        return Built(cls(), f"ctypes {cls.__name__}")
    if kind == 2:
        return Built(_struct(rng), "ctypes structure")
    if kind == 3:
        mapped = mmap.mmap(-1, 64)
        closed = rng.random() < 0.5
        if closed:
            mapped.close()
        return Built(mapped, f"mmap, closed: {closed}")
    if kind == 4:
        view = memoryview(bytearray(16))
        released = rng.random() < 0.5
        if released:
            view.release()
        return Built(view, f"memoryview, released: {released}")
    if kind == 5:
        raw: Any = rng.choice([b"", b"abc", bytearray(), bytearray(b"abcd"), memoryview(b"")])
        return Built(raw, repr(raw), [], np.frombuffer(raw, np.uint8) if len(raw) else np.zeros(0, np.uint8))
    if kind == 6:
        odd = rng.choice(["u", "w", "f", "q", "B"])
        try:
            items: Any = array.array(odd, "ab" if odd in "uw" else [1, 2])
        except (ValueError, TypeError):
            items = array.array("u", "ab")
        return Built(items, f"array.array {odd}")
    if kind == 7:
        view = memoryview(block)[:: rng.choice([2, -1, -3])]
        return Built(view, f"memoryview with strides {view.strides}", [block], np.asarray(view).copy())
    if kind == 8:
        dtype = rng.choice([">i4", "<U3", "S5", "V7", "M8[s]", "O", [("a", "i4"), ("b", "f8")], "e", "g"])
        if dtype == "M8[s]":
            return Built(np.zeros(3, dtype).view("i8").data, "memoryview of i8", [], np.zeros(3, "i8"))
        return Built(np.zeros(3, dtype).data, f"memoryview of {dtype}")
    shape2 = rng.choice([(2, 3), (1, 6), (6,), (3, 2, 1)])
    view = memoryview(block[:6].tobytes()).cast("B", shape2)
    return Built(view, f"memoryview {shape2}", [], block[:6].reshape(shape2).copy())


_CTYPES: dict[str, Any] = {
    "b": ctypes.c_byte, "B": ctypes.c_ubyte, "h": ctypes.c_short, "i": ctypes.c_int, "q": ctypes.c_longlong,
    "f": ctypes.c_float, "d": ctypes.c_double, "?": ctypes.c_bool, "c": ctypes.c_char, "u": ctypes.c_wchar,
    "P": ctypes.c_void_p, "l": ctypes.c_long, "L": ctypes.c_ulong, "H": ctypes.c_ushort, "I": ctypes.c_uint,
    "Q": ctypes.c_ulonglong, "z": ctypes.c_char_p, "O": ctypes.py_object, "g": ctypes.c_longdouble,
    ">i": ctypes.c_int.__ctype_be__,
}  # fmt: skip


def _struct(rng: Random) -> Any:
    names = ["a", "b", "", "a b", "é"]
    fields = []
    for name in rng.sample(names, rng.choice([0, 1, 2, 3])):
        cls = rng.choice([ctypes.c_int, ctypes.c_char, ctypes.c_double, ctypes.c_short * 2, ctypes.c_void_p])
        fields.append((name, cls))
    made = type("S", (rng.choice([ctypes.Structure, ctypes.Union]),), {"_fields_": fields})
    return (made * rng.choice([0, 1, 3]))() if rng.random() < 0.7 else made()


def _typestr(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value["typestr"] = rng.choice(_ODD_TYPESTRS)
    value.pop("descr", None)
    if value["typestr"] == "|O8":  # NumPy would read the bytes as addresses of objects
        value["data"] = np.zeros(64, np.uint8) if rng.random() < 0.5 else None
        value["typestr"] = "|V8"


def _shape(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value["shape"] = rng.choice(_ODD_SHAPES)
    value["strides"] = None


def _strides(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value["strides"] = rng.choice(_ODD_STRIDES)
    if rng.random() < 0.5:
        value["data"] = bytes(block[:64])


def _data(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    address = block.ctypes.data + 4096
    odd: list[Any] = [
        None,
        (0, False),
        (None, False),
        (address,),
        (address, 1, 2),
        address,
        (str(address), False),
    ]
    odd += [(hex(address), True), (float(address), False), (-1, False), (2**64, False), (), bytes(8), "x"]
    odd += [bytearray(64), memoryview(bytes(600)), np.zeros(64), (address, None), [address, False]]
    value["data"] = rng.choice(odd)
    if isinstance(value["data"], tuple) and value["data"] == (-1, False):
        value["shape"] = (0,)
        value["strides"] = None


def _descr(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value["descr"] = rng.choice(
        [
            None,
            [],
            "x",
            3,
            [("", "<f4")],
            [("a", "<f4"), ("a", "<f4")],
            [("a", "<i4")],
            [(1, 2, 3, 4)],
            [("a",)],
        ]
    )


def _mask(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value["mask"] = rng.choice([None, 3, np.zeros(4, bool), "x"])


def _version(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value["version"] = rng.choice(_VERSIONS)


def _missing(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value.pop(rng.choice(list(value)), None)


def _offset(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value["offset"] = rng.choice([0, 4, -1, 2**40, "x", 3])
    value["data"] = bytearray(bytes(block[:600]))


def _extra(rng: Random, value: dict[str, Any], block: np.ndarray) -> None:
    value[rng.choice(["x", "", "strides "])] = object()


_WRONG = {
    "typestr": _typestr,
    "shape": _shape,
    "strides": _strides,
    "data": _data,
    "descr": _descr,
    "mask": _mask,
    "version": _version,
    "missing": _missing,
    "offset": _offset,
    "extra": _extra,
}
