"""Buffers and array interfaces of records: NumPy gets records, and other frameworks their fields (P1, P3)."""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.table_cases import TABLES, TENSORS

import zerocopy as zc

# Before Python 3.14, the format of ctypes structs lacks their padding: NumPy takes their type from ctypes.
pytestmark = pytest.mark.filterwarnings("ignore:A builtin ctypes object gave a PEP3118")

PADDED = np.dtype([("a", "i1"), ("b", "f8")], align=True)
PACKED = np.dtype([("a", "i1"), ("b", "f8")])


class Point(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int8), ("b", ctypes.c_double))


class Swapped(ctypes.BigEndianStructure):
    _fields_ = (("a", ctypes.c_int32), ("b", ctypes.c_int16))


class Interface:
    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


def _points() -> Any:
    return (Point * 3)(Point(1, 2.5), Point(-1, 0.0), Point(7, 1.0))


def _records(dtype: np.dtype[Any]) -> np.ndarray:
    return np.array([(1, 2.5), (-1, 0.0), (7, 1.0)], dtype)


SOURCES: dict[str, Callable[[], Any]] = {
    "array of ctypes structs": _points,
    "memoryview of ctypes structs": lambda: memoryview(_points()),
    "ctypes struct": lambda: Point(1, 2.5),
    "memoryview of a ctypes struct": lambda: memoryview(Point(1, 2.5)),
    "big-endian structs": lambda: memoryview((Swapped * 2)(Swapped(1, 2), Swapped(3, 4))),
    "memoryview of padded records": lambda: memoryview(_records(PADDED)),
    "memoryview of packed records": lambda: memoryview(_records(PACKED)),
    "memoryview of a slice": lambda: memoryview(_records(PADDED))[::2],
    "read-only memoryview": lambda: memoryview(_records(PADDED)).toreadonly(),
    "interface of padded records": lambda: Interface(_records(PADDED)),
    "interface of a slice": lambda: Interface(_records(PACKED)[::-1]),
}


@pytest.mark.hazard("producers#records-of-ctypes")
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("copy", [None, False, True])
def test_numpy_gets_records(name: str, copy: bool | None) -> None:
    source = SOURCES[name]()
    expected = np.asarray(source)
    for _ in range(2):
        plan = zc.explain(source, "numpy", copy=copy)
        if copy and not expected.ndim:  # as for NumPy's own records
            assert plan.error.code == "missing-dtype"
            continue
        result = zc.convert(source, "numpy", copy=copy)
        assert result.dtype == expected.dtype
        assert result.tolist() == expected.tolist()
        assert zc.shares_memory(source, result) == plan.zero_copy == (copy is not True)


@pytest.mark.parametrize("target", [*TABLES, *TENSORS])
@pytest.mark.parametrize("name", SOURCES)
def test_other_frameworks_get_what_numpys_records_give_them(name: str, target: str) -> None:
    source = SOURCES[name]()
    records = np.asarray(source)
    plan, expected = zc.explain(source, target), zc.explain(records, target)
    assert (plan.possible, plan.zero_copy) == (expected.possible, expected.zero_copy)
    if not plan.possible:
        with pytest.raises(zc.ZeroCopyError):
            zc.convert(source, target)
        return
    # Without addresses: the text of an OrtValue has no values.
    texts = [re.sub("0x[0-9a-f]+", "", repr(zc.convert(each, target))) for each in (source, records)]
    assert texts[0] == texts[1]


def test_records_of_objects_and_structs_without_a_format_are_refused() -> None:
    class Packed(ctypes.Structure):
        _pack_ = 1
        _layout_ = "ms"  # what _pack_ implies; Python 3.14 asks for it
        _fields_ = (("a", ctypes.c_int8), ("b", ctypes.c_double))

    packed = (Packed * 2)((1, 1.5), (2, 2.5))
    with warnings.catch_warnings():
        # Before Python 3.14, ctypes exports packed structs as bytes, and NumPy guesses the format.
        warnings.simplefilter("ignore", RuntimeWarning)
        plan = zc.explain(memoryview(packed), "numpy")
    if plan.possible:
        assert zc.convert(memoryview(packed), "numpy").tolist() == [(1, 1.5), (2, 2.5)]
    objects = np.array([(1, None)], [("a", "i1"), ("b", "O")])
    assert not zc.explain(memoryview(objects), "torch").possible


def test_an_interface_that_leaves_its_buffer_is_refused() -> None:
    source = Interface(_records(PADDED))
    source.__array_interface__ = {**source.__array_interface__, "data": bytearray(8), "shape": (2,)}
    assert not zc.explain(source, "numpy").possible
    with pytest.raises(zc.ZeroCopyError):
        zc.convert(source, "numpy")


def test_records_without_fields_share_no_memory() -> None:
    empty = type("Empty", (ctypes.Structure,), {"_fields_": []})()
    array = zc.convert(empty, "numpy")
    assert array.nbytes == 0
    assert not zc.shares_memory(array, array)
    assert zc.explain(empty, "numpy").zero_copy == zc.shares_memory(empty, array)
