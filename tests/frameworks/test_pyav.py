"""PyAV: planes of frames are aliased; formats without strides are refused with a call that copies them."""

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
    "name",
    ["pal8", "gbrpf32le", "yuv420p10be", "rgb8", "rgb48be", "yuyv422", "rgb565le", "rgbf32le"],
)
def test_other_video_is_refused_with_calls_that_work(name: str) -> None:
    frame = video(name)
    with pytest.raises(zc.UnsupportedConversionError) as caught:
        zc.convert(frame, "numpy")
    assert caught.value.code == "not-strided"
    assert "to_ndarray" in caught.value.calls[0]
    for call in caught.value.calls:
        assert pasted(call, {"zc": zc, "x": frame}) is not None


@pytest.mark.parametrize(
    ("name", "planes"),
    [
        ("yuv420p", ["y", "u", "v"]),
        ("yuva444p", ["y", "u", "v", "a"]),
        ("yuv422p10le", ["y", "u", "v"]),
        ("gbrp", ["g", "b", "r"]),
        ("gbrap", ["g", "b", "r", "a"]),
        ("nv12", ["y", "uv"]),
        ("nv21", ["y", "vu"]),
        ("p010le", ["y", "uv"]),
    ],
)
def test_planar_video_is_a_dict_of_aliases(name: str, planes: list[str]) -> None:
    frame = video(name)
    assert zc.explain(frame, "numpy").zero_copy
    result = zc.convert(frame, "numpy", copy=False)
    assert list(result) == planes
    assert zc.shares_memory(frame, result)
    for plane, array in zip(frame.planes, result.values(), strict=True):
        assert zc.shares_memory(plane, array)
        assert array.shape[:2] == (plane.height, plane.width)
        rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
        expected = np.ascontiguousarray(rows[:, : array[0].nbytes]).view(array.dtype)
        np.testing.assert_array_equal(array.reshape(plane.height, -1), expected)


def test_planes_have_the_colours_of_their_names() -> None:
    image = np.zeros((4, 6, 3), "u1")
    image[:] = 10, 20, 30
    rgb = zc.convert(av.VideoFrame.from_ndarray(image, "rgb24").reformat(format="gbrp"), "numpy")
    assert {name: int(plane[0, 0]) for name, plane in rgb.items()} == {"g": 20, "b": 30, "r": 10}
    frame = av.VideoFrame.from_ndarray(image, "rgb24").reformat(format="yuv444p")
    yuv = {name: int(plane[0, 0]) for name, plane in zc.convert(frame, "numpy").items()}
    for form in ("nv12", "nv21"):
        planes = zc.convert(frame.reformat(format=form), "numpy")
        (pair,) = planes.keys() - {"y"}
        assert {name: int(planes[pair][0, 0, i]) for i, name in enumerate(pair)} == {k: yuv[k] for k in "uv"}


@pytest.mark.parametrize("layout", ["stereo", "5.1"])
def test_planar_audio_is_a_dict_of_channels(layout: str) -> None:
    frame = audio("fltp", layout)
    result = zc.convert(frame, "numpy", copy=False)
    assert list(result) == [channel.name for channel in frame.layout.channels]
    assert zc.shares_memory(frame, result)
    np.testing.assert_array_equal(list(result.values()), frame.to_ndarray())


def test_a_fix_names_a_plane_by_the_converted_frame() -> None:
    pytest.importorskip("jax")
    frame = video("yuv420p")
    for obj in (frame, [frame]):
        with pytest.raises(zc.CopyRequiredError) as caught:
            zc.convert(obj, "jax", copy=False)
        for call in caught.value.calls:  # JAX aliases a new array of NumPy if it is aligned by chance
            assert pasted(call.replace(", copy=False", ""), {"zc": zc, "x": obj, "numpy": np}) is not None
        assert "zc.convert(x" in caught.value.calls[0].partition("ascontiguousarray(")[2]
        (plan,) = [
            plan for path, plan in leaves(zc.explain(obj, "jax", copy=False)) if path.endswith("['y']")
        ]
        assert plan.error.calls == caught.value.calls


def leaves(plan: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the plans of all arrays, with their paths."""
    inner = [leaf for key, part in plan.leaves.items() for leaf in leaves(part, path + key)]
    return inner or [(path, plan)]


def test_planes_of_video_are_aliased() -> None:
    frame = video("yuv420p")
    luma, *_ = zc.convert(list(frame.planes), "numpy", copy=False)
    assert zc.shares_memory(luma, frame.planes[0])
    assert luma.shape == (4, 6)


@pytest.mark.parametrize("frame", [video("yuv420p"), audio("fltp", "stereo")], ids=["video", "audio"])
def test_several_planes_are_not_one_view(frame: Any) -> None:
    with pytest.raises(zc.UnsupportedConversionError, match="planes") as caught:
        zc.view(frame)
    assert len(pasted(str(caught.value.fixes[0]).partition(" gives")[0], {"zc": zc, "x": frame})) > 1


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
    with pytest.raises(zc.errors.UnknownFrameworkError):
        zc.convert(np.zeros((2, 2), "u1"), "av")
