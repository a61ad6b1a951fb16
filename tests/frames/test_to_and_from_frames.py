"""``to_frames`` and ``from_frames``: equal objects over the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy.frames import from_frames, to_frames


def nested(levels: int) -> np.ndarray[Any, Any]:
    """Return a record whose field is an array of records, and so on."""
    dtype = np.dtype("i2")
    for _ in range(levels):
        dtype = np.dtype([("a", dtype, (2,))])
    return np.arange(2**levels, dtype="i2").view(dtype)


ARRAYS = {
    "row-major": np.arange(6.0).reshape(2, 3),
    "column-major": np.arange(6.0).reshape(2, 3).T,
    "permuted": np.arange(24, dtype="i2").reshape(2, 3, 4).transpose(1, 2, 0),
    "0-d": np.array(3, "i1"),
    "empty": np.zeros((0, 3), "f4"),
    "dates": np.array(["2020-01-01", "NaT"], "M8[25s]"),
    "text": np.array(["a", "bcd"]),
    "other byte order": np.arange(3, dtype=">i4"),
    "records": np.zeros(3, [("a", "<i4"), ("b", [("c", "<f8", (2,))])]),
    "deep records": nested(8),
    "bool": np.array([True, False]),
    "complex": np.array([1 + 2j]),
}


def restored(obj: Any) -> Any:
    split = to_frames(obj)
    return from_frames(split.header, split.frames)


@pytest.mark.parametrize("name", ARRAYS)
def test_an_ndarray_comes_back_over_its_own_memory(name: str) -> None:
    array = ARRAYS[name]
    split = to_frames(array)
    result = from_frames(split.header, split.frames)
    assert split.copied_bytes == 0
    assert (result.dtype, result.shape, result.strides) == (array.dtype, array.shape, array.strides)
    assert np.array_equal(result, array, equal_nan=array.dtype.kind in "fcmM")
    assert array.nbytes == 0 or result.ctypes.data == array.ctypes.data


def test_gaps_and_reversals_are_copied() -> None:
    base = np.arange(24.0).reshape(4, 6)
    for array in (base[::2], base[:, ::-1], np.broadcast_to(base[0], (3, 6))):
        split = to_frames(array)
        assert split.copied_bytes == array.nbytes
        assert np.array_equal(from_frames(split.header, split.frames), array)


def test_objects_are_refused() -> None:
    with pytest.raises(zc.UnsupportedConversionError) as error:
        to_frames(np.array([object()]))
    assert error.value.code == "python-objects"


def test_another_version_is_refused() -> None:
    header = to_frames(np.zeros(2)).header
    with pytest.raises(zc.UnsupportedConversionError) as error:
        from_frames(header[:2] + b"\x63" + header[3:], [bytes(16)])
    assert error.value.code == "protocol-version"
    assert "99" in str(error.value)


def test_a_frame_of_another_size_is_refused() -> None:
    header = to_frames(np.zeros(2)).header
    for frames in ([bytes(15)], [bytes(17)], [], [bytes(16)] * 2):
        with pytest.raises(zc.UnsupportedConversionError) as error:
            from_frames(header, frames)
        assert error.value.code == "invalid-frames"


def test_frames_can_be_any_contiguous_buffers() -> None:
    array = np.arange(6.0).reshape(2, 3)
    split = to_frames(array)
    for frame in (array.tobytes(), bytearray(array), memoryview(array), array):
        assert np.array_equal(from_frames(split.header, [frame]), array)
    for frame in (np.zeros((3, 4))[:, ::2], np.zeros((3, 2)).T, memoryview(bytes(96))[::2], "text", None):
        with pytest.raises(zc.UnsupportedConversionError) as error:
            from_frames(split.header, [frame])
        assert error.value.code == "invalid-frames"


def test_device_memory_is_refused() -> None:
    class OnDevice:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": (2,), "typestr": "<f4", "data": (4096, False), "version": 3}

    with pytest.raises(zc.UnsupportedConversionError) as error:
        to_frames(OnDevice())
    assert error.value.code == "other-device"
