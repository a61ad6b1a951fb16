"""The exporter of objects with the buffer protocol."""

from __future__ import annotations

import array
import ctypes
import mmap
import sys

import numpy as np
import pytest
from helpers.native_core import REFUSED, core, keep_capsule, memory_route, require_core
from numpy.lib.stride_tricks import as_strided

require_core()

BYTES = bytearray(range(64))


class Pair(ctypes.Structure):
    """A struct, whose format is not that of a number."""

    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_float))


TAKEN = {
    "bytes": bytes(BYTES),
    "bytearray": BYTES,
    "memoryview": memoryview(BYTES)[3:9],
    "memoryview with a step": memoryview(BYTES)[3:40:4],
    "matrix": memoryview(BYTES).cast("i", (4, 4)),
    "0-d": memoryview(BYTES)[:8].cast("d", ()),
    "mmap": mmap.mmap(-1, 4096),
    **{f"array {letter}": array.array(letter, range(1, 9)) for letter in "bBhHiIlLqQfd"},
    "ctypes": (ctypes.c_int16 * 5)(*range(5)),
    "ctypes matrix": ((ctypes.c_double * 3) * 2)(),
    "ctypes bool": (ctypes.c_bool * 3)(True, False, True),
    **{f"ndarray {letter}": np.ones(5, letter) for letter in "bBhHiIlLqQefd?FD"},
    "Fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "broadcast": np.broadcast_to(np.arange(3.0), (4, 3)),
}
NOT_TAKEN = {
    "empty": b"",
    "empty matrix": np.zeros((3, 0)),
    "negative step": memoryview(BYTES)[::-1],
    "fractional stride": as_strided(np.zeros(9, "f4"), (3,), (6,)),
    "unaligned": np.zeros(41, np.uint8)[1:].view(np.float32),
    "big-endian": np.zeros(3, ">f4"),
    "text": np.array(["a"]),
    "array of text": array.array("w" if sys.version_info >= (3, 13) else "u", "ab"),
    "characters": memoryview(BYTES).cast("c"),
    "struct": (Pair * 2)(),
    "pointer": (ctypes.c_void_p * 2)(),
    "long double": np.zeros(2, "g"),
    "complex long double": np.zeros(2, "G"),
    "structured": np.zeros(2, [("x", "f4")]),
    "objects": np.array([None]),
    "big-endian ctypes": (ctypes.c_int32.__ctype_be__ * 2)(),
}


@pytest.mark.hazard("robustness#buffers-without-strides")
@pytest.mark.parametrize("name", TAKEN)
def test_a_numeric_buffer_passes(name):
    source = TAKEN[name]
    result = memory_route(core.BufferExporter(), core.NDArrayImporter())(source)
    expected = np.asarray(memoryview(source))
    assert result.ctypes.data == expected.ctypes.data
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    assert result.tobytes() == expected.tobytes()
    assert result.flags.writeable is not memoryview(source).readonly


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_another_buffer_is_left_to_the_slow_path(name):
    with pytest.raises(BufferError, match=REFUSED):
        memory_route(core.BufferExporter(), core.NDArrayImporter())(NOT_TAKEN[name])


@pytest.mark.parametrize("other", [None, 3, "text", object()])
def test_an_object_without_a_buffer_is_refused_with_its_error(other):
    with pytest.raises(TypeError, match="bytes-like"):
        memory_route(core.BufferExporter(), core.NDArrayImporter())(other)


def test_datetimes_and_released_views_are_refused_with_their_errors():
    released = memoryview(BYTES)
    released.release()
    for source in (released, np.zeros(2, "M8[s]")):
        with pytest.raises((ValueError, BufferError)):
            memory_route(core.BufferExporter(), core.NDArrayImporter())(source)


def test_the_buffer_is_held_until_the_last_result_is_dropped():
    source, got = bytearray(64), []
    result = memory_route(core.BufferExporter(), core.NDArrayImporter())(source)
    memory_route(core.BufferExporter(), keep_capsule(got))(source)
    view = result[3:]
    del result
    for drop in (lambda: got.clear(), None):
        with pytest.raises(BufferError, match="re-sized"):
            source.append(1)
        if drop is not None:
            drop()
    del view
    source.append(1)
    assert len(source) == 65


def test_a_refused_buffer_is_released():
    for source in (bytearray(0), bytearray(8)):
        view = memoryview(source).cast("c")
        with pytest.raises(BufferError):
            memory_route(core.BufferExporter(), core.NDArrayImporter())(view)
        view.release()
        source.append(1)
