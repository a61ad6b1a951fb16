"""Tables of ndarrays as one Arrow array: values, aliases, refusals, and the release of each column."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest
from helpers.arrow_producers import declare_dtypes

import zerocopy as zc
from zerocopy._native import core
from zerocopy.protocols.arrow_c import ArrowArray

if not hasattr(core, "plain_table"):
    pytest.skip("needs the compiled core", allow_module_level=True)
pa = pytest.importorskip("pyarrow")
NUMBERS = [*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "f2", "f4", "f8"]


@pytest.fixture(autouse=True)
def _dtypes() -> None:
    declare_dtypes()


def test_columns_alias_ndarrays_of_each_type() -> None:
    arrays = [np.arange(5).astype(name) for name in NUMBERS]
    batch = pa.record_batch(core.plain_table(NUMBERS, arrays))
    for name, array in zip(NUMBERS, arrays, strict=True):
        column = batch.column(name)
        assert str(column.type) == str(pa.from_numpy_dtype(array.dtype))
        array[2] = 9
        assert column.to_pylist() == array.tolist()
        assert column.buffers()[0] is None
        assert zc.shares_memory(column, array)


def test_the_rows_of_a_matrix_are_columns() -> None:
    matrix = np.arange(12.0).reshape(3, 4)
    batch = pa.record_batch(core.plain_table(["a", "b", "c"], matrix))
    assert batch.to_pydict() == {name: matrix[i].tolist() for i, name in enumerate("abc")}
    matrix[2, 1] = -1
    assert batch["c"][1].as_py() == -1


@pytest.mark.parametrize("wide", [1, 300])
def test_owners_live_as_long_as_their_columns(wide: int) -> None:
    names, arrays = [f"c{i}" for i in range(wide)], [np.arange(3.0) + i for i in range(wide)]
    first = arrays[0]
    before = sys.getrefcount(first)
    batch = pa.record_batch(core.plain_table(names, arrays))
    column = batch.column(0)
    assert sys.getrefcount(first) == before + 1
    del batch
    gc.collect()
    assert column.to_pylist() == [0.0, 1.0, 2.0]
    worker = threading.Thread(target=lambda box: box.clear(), args=([column],))
    del column
    worker.start()
    worker.join()
    gc.collect()
    assert sys.getrefcount(first) == before
    core.plain_table(names, arrays)  # without a consumer
    core.plain_table(names, arrays).__arrow_c_array__()
    assert sys.getrefcount(first) == before


def test_a_column_that_a_consumer_moves_out_outlives_the_table() -> None:
    # "The Arrow C data interface", "Moving child arrays".
    arrays = [np.arange(3.0), np.arange(3.0) + 1]
    counts = [sys.getrefcount(array) for array in arrays]
    _, capsule = core.plain_table(["a", "b"], arrays).__arrow_c_array__()
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = ArrowArray.from_address(pointer(capsule, b"arrow_array"))
    child, moved = table.children[0].contents, ArrowArray()
    ctypes.memmove(ctypes.byref(moved), ctypes.byref(child), ctypes.sizeof(moved))
    child.release = None
    del table, child, capsule
    gc.collect()
    assert [sys.getrefcount(array) for array in arrays] == [counts[0] + 1, counts[1]]
    values = ctypes.cast(moved.buffers[1], ctypes.POINTER(ctypes.c_double))
    assert values[:3] == [0.0, 1.0, 2.0]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(moved.release)(ctypes.addressof(moved))
    assert sys.getrefcount(arrays[0]) == counts[0]


X = np.arange(4.0)
WRONG: dict[str, tuple[Any, Any]] = {
    "no columns": ([], []),
    "fewer names": (["a"], [X, X]),
    "more names": (["a", "b"], [X]),
    "more names than rows": (["a", "b"], X.reshape(1, 4)),
    "several lengths": (["a", "b"], [X, X[:3]]),
    "no rows": (["a"], [X[:0]]),
    "a scalar": (["a"], [np.array(1.0)]),
    "two dimensions": (["a"], [X.reshape(2, 2)]),
    "one dimension": (["a"], X),
    "gaps": (["a"], [X[::2]]),
    "reversed": (["a"], [X[::-1]]),
    "a matrix with gaps": (["a", "b"], X.reshape(2, 2).T),
    "misaligned": (["a"], [np.frombuffer(b"\0" + X.tobytes(), "u1")[1:].view("f8")]),
    "the other byte order": (["a"], [X.astype(">f8")]),
    "booleans": (["a"], [X > 1]),
    "complex": (["a"], [X.astype("c16")]),
    "dates": (["a"], [X.astype("M8[s]")]),
    "text": (["a"], [np.array(["a"])]),
    "objects": (["a"], [np.array([None])]),
    "a record": (["a"], [np.zeros(2, [("x", "f8")])]),
    "a subclass": (["a"], [np.ma.array([1.0])]),
    "no ndarray": (["a"], [[1.0]]),
    "tuples": (("a",), (X,)),
    "a zero byte": (["a\0b"], [X]),
    "a surrogate": (["\ud800"], [X]),
    "no text": ([1], [X]),
}


@pytest.mark.parametrize("name", WRONG)
def test_others_are_refused_and_nothing_is_kept(name: str) -> None:
    names, columns = WRONG[name]
    before = sys.getrefcount(X)
    with pytest.raises(ValueError, match=r"slow path|zero byte|surrogates"):
        core.plain_table(names, columns)
    assert sys.getrefcount(X) == before
    if isinstance(columns, list) and isinstance(names, list) and len(names) == len(columns) == 1:
        valid = np.arange(float(len(np.atleast_1d(columns[0])) or 1))
        with pytest.raises(ValueError, match=r"slow path|zero byte|surrogates"):
            core.plain_table(["first", *names], [valid, *columns])
        assert sys.getrefcount(X) == before


def test_wrong_arguments() -> None:
    for wrong in ((), (["a"],), (["a"], [X], None)):
        with pytest.raises(TypeError):
            core.plain_table(*wrong)
