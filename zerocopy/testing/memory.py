"""Capsules and memory, read through ctypes, for cases of all protocols."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from zerocopy.testing.cases import Skip, Violation

# Private prototypes: ctypes.pythonapi shares one function object per name in the process.
get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
#: A deleter or a release callback. ctypes releases the GIL for the call, as threads without it call them.
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def made(make: Any, protocol: str) -> Any:
    """Return a new object of the producer; skip the case if it lacks the protocol."""
    x = make()
    if not hasattr(x, f"__{protocol}__"):
        raise Skip(f"no __{protocol}__")
    return x


def variants(make: Any, x: Any) -> dict[str, Any]:
    """Return views of an object, and objects of other shapes if the producer takes them."""
    views: dict[str, Any] = {"x": x}
    for shape in ((), (0, 3), (2, 3)):
        try:
            views[f"shape={shape}"] = make(dtype="float32", shape=shape)
        except Exception as error:  # noqa: BLE001 - it takes no shape
            del error
    for text, index in (
        ("x[::-1]", slice(None, None, -1)),
        ("x[1:]", slice(1, None)),
        ("x[:0]", slice(0)),
        ("x[::2]", slice(None, None, 2)),
    ):
        try:
            views[text] = x[index]
        except Exception as error:  # noqa: BLE001 - it has no such views
            del error
    if hasattr(x, "T"):
        views["x.T"] = x.T
    return {text: view for text, view in views.items() if type(view) is type(x)}


class Interface:
    """An object with an array interface alone."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def read(address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, typestr: str) -> Any:
    """Return a copy of memory as an ndarray; the strides count bytes."""
    if 0 in shape:
        return np.empty(shape, typestr)
    fields = {"version": 3, "shape": shape, "typestr": typestr, "strides": strides, "data": (address, True)}
    return np.array(Interface(fields))


def same(a: Any, b: Any) -> bool:
    """Whether two ndarrays have the same shape and bytes."""
    return bool(a.shape == b.shape and a.tobytes() == b.tobytes())


def as_numpy(x: Any) -> Any:
    """Return an object's values by ``numpy.asarray``; None if it cannot."""
    try:
        array = np.asarray(x)
    except Exception as error:  # noqa: BLE001 - a producer need not support it
        del error
        return None
    return array if array.dtype.kind in "biufc" else None


def is_readonly(x: Any) -> bool:
    """Whether an object says by another protocol that its memory must not be written."""
    interface = getattr(x, "__array_interface__", None)
    if interface is not None:
        return bool(interface["data"][1])
    try:
        return memoryview(x).readonly
    except TypeError:
        array = as_numpy(x)
        return array is not None and not array.flags.writeable


def refill(nbytes: int) -> None:
    """Collect garbage, and overwrite memory that is free by now."""
    gc.collect()
    blocks = [np.full(max(nbytes, 1), 0xAA, np.uint8) for _ in range(64)]
    blocks += [np.full(48 + 16 * i, 0xAA, np.uint8) for i in range(32)]
    del blocks


def allocated() -> list[int]:
    """Return the number of blocks of Python, and the bytes in use of glibc's heaps."""
    counts = [sys.getallocatedblocks()]
    try:
        info = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return counts
    info.restype = ctypes.c_size_t * 10
    numbers = info()
    return [*counts, (numbers[7] + numbers[4]) // 16]


def check_leak(action: Callable[[], Any]) -> None:
    """Refuse an action that keeps memory in each of two rounds of 100 calls."""
    for _ in range(20):
        action()
    grown = []
    for _ in range(2):
        gc.collect()
        before = allocated()
        for _ in range(100):
            action()
        gc.collect()
        grown.append([after - earlier for after, earlier in zip(allocated(), before, strict=True)])
    for first, second in zip(*grown, strict=True):
        if first >= 100 and second >= 100:
            raise Violation(f"100 exports keep {first} and 100 more {second} blocks of memory")


def refused(action: Callable[[], Any], *expected: type[BaseException]) -> bool:
    """Whether an action raises one of some errors; another error is a violation."""
    try:
        action()
    except expected:
        return True
    except Exception as error:
        names = " or ".join(each.__name__ for each in expected)
        raise Violation(f"it raises {type(error).__name__} instead of {names}: {error}") from error
    return False
