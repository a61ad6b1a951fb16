"""Memory, its values and its leaks, for cases of all protocols."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from zerocopy.testing.cases import Violation


def variants(make: Any, x: Any) -> dict[str, Any]:
    """Return views of an object, and objects of other shapes if the producer takes them."""
    calls: dict[str, Any] = {"x.T": lambda: x.T}
    for shape in ((), (0, 3), (4, 1)):
        calls[f"shape={shape}"] = partial(make, dtype="float32", shape=shape)
    for start, stop, step in ((None, None, -1), (1, None, 1), (0, 0, 1), (None, None, 2)):
        calls[f"x[{start}:{stop}:{step}]"] = partial(lambda index: x[index], slice(start, stop, step))
    views = {"x": x}
    for text, call in calls.items():
        try:
            views[text] = call()
        except BaseException as error:  # noqa: BLE001 - it has no such view
            del error
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
    if interface is not None and isinstance(interface.get("data"), tuple):
        return bool(interface["data"][1])
    try:
        return memoryview(x).readonly
    except (TypeError, BufferError):
        array = as_numpy(x)
        return array is not None and not array.flags.writeable


def refill(nbytes: int) -> None:
    """Collect garbage, and overwrite memory that is free by now."""
    gc.collect()
    blocks = [np.full(max(nbytes, 1), 0xAA, np.uint8) for _ in range(64)]
    blocks += [np.full(48 + 16 * i, 0xAA, np.uint8) for i in range(32)]
    del blocks


def allocated(x: Any) -> list[int]:
    """Return the references to an object, the blocks of Python, and those in use of glibc's heaps."""
    counts = [sys.getrefcount(x), sys.getallocatedblocks()]
    try:
        info = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):  # another C library
        return counts
    info.restype = MallInfo
    numbers = info().numbers
    return [*counts, (numbers[7] + numbers[4]) // 32]  # its smallest block


class MallInfo(ctypes.Structure):
    """``struct mallinfo2``."""

    _fields_ = (("numbers", ctypes.c_size_t * 10),)


def check_leak(x: Any, action: Callable[[], Any]) -> None:
    """Refuse an action on an object that keeps memory in each of 8 rounds of 100 calls."""
    for _ in range(20):
        action()
    counts = allocated(x)
    growths: list[int] = []
    while len(growths) < 8:
        for _ in range(100):
            action()
        gc.collect()
        before, counts = counts, allocated(x)
        growths.append(max(after - earlier for after, earlier in zip(counts, before, strict=True)))
        if growths[-1] < 100:  # caches of the interpreter grow only at first
            return
    raise Violation(f"100 calls keep {min(growths)} blocks of memory or references")
