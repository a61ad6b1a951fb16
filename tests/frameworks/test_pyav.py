"""PyAV: frames in one plane are aliased; other frames are refused with a call that copies them."""

from __future__ import annotations

import gc
import io
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc

av = pytest.importorskip("av", "18")


def video(name: str, width: int = 6, height: int = 4) -> Any:
    """Return a frame of random values, whose lines have padding."""
    frame, random = av.VideoFrame(width, height, name), np.random.default_rng(0)
    for plane in frame.planes:
        plane.update(random.integers(0, 255, plane.buffer_size, np.uint8).tobytes())
    return frame


def audio(name: str, layout: str) -> Any:
    frame, random = av.AudioFrame(name, layout, 10), np.random.default_rng(0)
    for plane in frame.planes:
        plane.update(random.integers(0, 60, plane.buffer_size, np.uint8).tobytes())
    return frame


def check(frame: Any, expected: np.ndarray) -> np.ndarray:
    """Convert a frame twice, and compare it with the array that PyAV copies."""
    for _ in range(2):
        plan, result = zc.explain(frame, "numpy"), zc.convert(frame, "numpy", copy=False)
        assert plan.zero_copy
        assert zc.shares_memory(frame, result)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)
    return result


@pytest.mark.parametrize("name", ["rgb24", "bgr24", "rgba", "gray", "gray16le", "rgb48le", "rgba64le"])
def test_packed_video_is_aliased(name: str) -> None:
    frame = video(name)
    result = check(frame, frame.to_ndarray())
    assert result.strides[0] == frame.planes[0].line_size
    for target in ("torch", "jax"):
        if zc.frameworks()[target].installed:
            converted = zc.convert(frame, target)
            assert zc.explain(frame, target).zero_copy == zc.shares_memory(frame, converted)
            np.testing.assert_array_equal(zc.convert(converted, "numpy"), frame.to_ndarray())


@pytest.mark.parametrize(
    ("name", "layout"),
    [("s16", "stereo"), ("flt", "5.1"), ("dbl", "mono"), ("fltp", "mono"), ("u8", "mono"), ("s32", "stereo")],
)
def test_packed_audio_is_aliased(name: str, layout: str) -> None:
    frame = audio(name, layout)
    check(frame, frame.to_ndarray())


@pytest.mark.parametrize(
    "name", ["yuv420p", "nv12", "gbrp", "rgb8", "rgb48be", "yuyv422", "rgb565le", "rgbf32le"]
)
def test_other_video_is_refused_with_calls_that_work(name: str) -> None:
    frame = video(name)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(frame, "numpy")
    assert caught.value.code in ("chunks", "not-strided")
    assert "to_ndarray" in caught.value.calls[0]
    for call in caught.value.calls:
        assert pasted(call, {"zc": zc, "x": frame}) is not None


def test_planar_audio_is_refused_with_calls_that_work() -> None:
    frame = audio("fltp", "stereo")
    with pytest.raises(zc.UnsupportedConversionError, match="planar") as caught:
        zc.convert(frame, "numpy")
    whole, planes = (pasted(call, {"zc": zc, "x": frame, "numpy": np}) for call in caught.value.calls)
    np.testing.assert_array_equal(whole, frame.to_ndarray())
    np.testing.assert_array_equal(planes, frame.to_ndarray())


def test_planes_of_video_are_aliased() -> None:
    frame = video("yuv420p")
    luma, *_ = zc.convert(list(frame.planes), "numpy", copy=False)
    assert zc.shares_memory(luma, frame.planes[0])
    assert luma.shape == (4, 6)


def test_frames_without_memory_are_refused() -> None:
    for frame in (av.VideoFrame(), av.AudioFrame()):
        with pytest.raises(zc.UnsupportedConversionError, match="no memory"):
            zc.convert(frame, "numpy")


def test_fix_of_a_target_without_strides_works() -> None:
    pytest.importorskip("jax")
    frame = video("rgb24")
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(frame, "jax", copy=False)
    assert "to_ndarray()" in caught.value.calls[0]


@pytest.mark.hazard("producers#pyav-frames")
def test_decoded_frames_outlive_the_decoder() -> None:
    file, images = io.BytesIO(), [np.full((4, 6, 3), value, np.uint8) for value in range(5)]
    with av.open(file, "w", "nut") as container:
        stream = container.add_stream("rawvideo", rate=5)
        stream.width, stream.height, stream.pix_fmt = 6, 4, "rgb24"
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, "rgb24")))
        container.mux(stream.encode())
    file.seek(0)
    with av.open(file) as container:
        results = [zc.convert(frame, "numpy", copy=False) for frame in container.decode(video=0)]
    del container
    gc.collect()
    np.testing.assert_array_equal(results, images)


def test_pyav_is_not_a_target() -> None:
    assert "av" not in zc.frameworks()
    with pytest.raises(zc.UnknownFrameworkError):
        zc.convert(np.zeros((2, 2), "u1"), "av")
