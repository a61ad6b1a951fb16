"""Pillow: images are aliased where their memory holds the values row by row, and copied once elsewhere."""

from __future__ import annotations

import gc
import io
import threading
from typing import Any

import numpy as np
import pytest
from helpers.pasting import pasted

import zerocopy as zc

PIL = pytest.importorskip("PIL", "13")
from PIL import Image  # noqa: E402

ALIASED = ("L", "P", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV", "LA", "La", "PA", "I", "F")
COPIED = ("1", "LAB", "I;16B")
#: Bytes of a pixel in `Image.frombytes`, if they are not one for each band.
WIDTHS = {"I": 4, "F": 4, "I;16": 2, "I;16B": 2, "1": 1}


def image_of(mode: str, width: int = 7, height: int = 5) -> Any:
    """Return an image of random values."""
    random = np.random.default_rng(0)
    if mode == "1":
        return Image.fromarray(random.integers(0, 2, (height, width)).astype(bool))
    if mode == "F":
        return Image.fromarray(random.standard_normal((height, width)).astype("f4"))
    image = Image.new(mode, (width, height))
    size = width * height * WIDTHS.get(mode, len(image.getbands()))
    image.frombytes(random.integers(0, 256, size, np.uint8).tobytes())
    return image


def check(image: Any, aliases: bool) -> np.ndarray:
    """Convert an image twice, on the slow path and the fast path, and compare it with NumPy's array."""
    expected = np.asarray(image)
    native = expected.dtype.newbyteorder("=")
    for _ in range(2):
        plan, result = zc.explain(image, "numpy"), zc.convert(image, "numpy")
        assert plan.zero_copy == zc.shares_memory(image, result) == aliases
        assert (result.dtype, result.shape) == (native, expected.shape)
        np.testing.assert_array_equal(result, expected)
        assert not (aliases and result.flags.writeable)
    return result


@pytest.mark.hazard("producers#pillow-stores-other-bytes")
@pytest.mark.parametrize("mode", [*ALIASED, "I;16"])
def test_pixels_are_aliased(mode: str) -> None:
    check(image_of(mode), aliases=True)
    assert zc.convert(image_of(mode), "numpy", copy=False) is not None


@pytest.mark.hazard("producers#pillow-stores-other-bytes")
@pytest.mark.parametrize("mode", COPIED)
def test_other_bytes_than_the_values_are_copied(mode: str) -> None:
    image = image_of(mode)
    expected = check(image, aliases=False)
    with pytest.raises(zc.CopyRequiredError) as caught:
        zc.convert(image, "numpy", copy=False)
    fixed = pasted(caught.value.calls[0], {"zc": zc, "x": image, "numpy": np})
    np.testing.assert_array_equal(fixed, expected)


def test_booleans_are_0_and_1() -> None:
    result = zc.convert(Image.new("1", (16, 2), 1), "numpy")
    assert result.view(np.uint8).tolist() == [[1] * 16] * 2


@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow", "pyarrow", "numpy"])
@pytest.mark.parametrize("mode", ["RGB", "L", "F", "LAB"])
def test_plans_of_all_targets_agree(target: str, mode: str) -> None:
    pytest.importorskip(target)
    image = image_of(mode, 64, 8)
    plan, result = zc.explain(image, target), zc.convert(image, target)
    assert plan.zero_copy == zc.shares_memory(image, result)
    np.testing.assert_array_equal(zc.convert(result, "numpy"), np.asarray(image))
    changed = zc.convert(image, target, copy=True)
    assert not zc.shares_memory(image, changed)


def test_large_images_have_several_blocks_and_are_copied() -> None:
    image = Image.new("RGB", (3000, 2000))
    image.paste((1, 2, 3), (0, 1500, 3000, 2000))
    check(image, aliases=False)
    why = zc.explain(image, "numpy").reasons[0]
    assert why.code == "exporter-copies"
    assert "one block" in why.why


def test_rows_with_gaps_are_copied() -> None:
    Image.core.set_alignment(64)
    try:
        image = Image.new("L", (5, 3))
    finally:
        Image.core.set_alignment(1)
    image.putpixel((0, 1), 9)
    check(image, aliases=False)


def test_images_over_a_buffer() -> None:
    """They are aliased, or copied if the rows are in another order."""
    data = bytes(range(35))
    for step, aliases in ((1, True), (-1, False)):
        image = Image.frombuffer("L", (5, 7), data, "raw", "L", 0, step)
        check(image, aliases)
        result = zc.convert(image, "numpy")
        image.putpixel((0, 0), 200)  # Pillow copies the pixels first
        assert result.max() == 34
        assert zc.convert(image, "numpy")[0, 0] == 200


def test_writes_of_pillow_are_seen() -> None:
    image = image_of("RGB")
    result = zc.convert(image, "numpy")
    image.putpixel((2, 3), (1, 2, 3))
    assert result[3, 2].tolist() == [1, 2, 3]


def test_alias_keeps_the_pixels_of_an_image_that_is_gone() -> None:
    for replace in (lambda x: x.close(), lambda x: x.frombytes(bytes(35)) or x.close(), lambda x: None):
        image = image_of("L")
        result = zc.convert(image, "numpy")
        replace(image)
        expected = result.copy()
        del image
        gc.collect()
        others = [Image.new("L", (7, 5), 255) for _ in range(100)]
        np.testing.assert_array_equal(result, expected)
        del others


def test_results_can_be_written_to() -> None:
    for mode in ("L", "RGB", "1", "F"):
        for copy in (None, True):
            image = Image.new(mode, (3, 2))
            result = zc.convert(image, "numpy", writable=True, copy=copy)
            result[...] = 1
            assert result.all()
            assert not np.asarray(image).any()


def test_images_of_files_are_loaded() -> None:
    file = io.BytesIO()
    image_of("RGB", 100, 100).save(file, "png")
    data = file.getvalue()
    opened = Image.open(io.BytesIO(data))
    check(opened, aliases=True)
    with Image.open(io.BytesIO(data)) as closed:
        pass
    for image in (closed, Image.open(io.BytesIO(data[:5000]))):
        assert "Pillow cannot load it" in str(zc.explain(image, "numpy"))
        for _ in range(2):
            with pytest.raises(zc.UnsupportedConversionError, match="Pillow cannot load it"):
                zc.convert(image, "numpy")


@pytest.mark.parametrize("size", [(0, 3), (3, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("mode", ["L", "RGB", "LA", "1", "LAB"])
def test_sizes_of_0_and_1(mode: str, size: tuple[int, int]) -> None:
    image = Image.new(mode, size)
    plan, result = zc.explain(image, "numpy"), zc.convert(image, "numpy")
    assert result.shape == np.asarray(image).shape
    assert plan.zero_copy == zc.shares_memory(image, result)


def test_threads_convert_one_image() -> None:
    image, results = image_of("RGB"), []

    def run() -> None:
        for _ in range(200):
            results.append(int(zc.convert(image, "numpy").sum()))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [int(np.asarray(image).sum())] * 800


def test_containers_and_frames_hold_images() -> None:
    from zerocopy.frames import from_frames, to_frames

    image = image_of("RGB")
    result = zc.convert({"x": image, "y": [image]}, "numpy")
    assert zc.shares_memory(image, result["x"])
    assert zc.shares_memory(image, result["y"][0])
    split = to_frames(image)
    np.testing.assert_array_equal(from_frames(split.header, split.frames), np.asarray(image))


@pytest.mark.hazard("producers#pillow-gaps-between-rows")
def test_older_versions_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL, "__version__", "12.3.0")
    check(image_of("RGB"), aliases=False)
    assert "from version 13 on" in zc.explain(image_of("L"), "numpy").reasons[0].why


def test_pillow_is_not_a_target() -> None:
    assert "PIL" not in zc.frameworks()
    for target in ("PIL", Image, Image.Image, image_of("L")):
        with pytest.raises(zc.errors.UnknownFrameworkError):
            zc.convert(np.zeros((2, 2), "u1"), target)


def test_bridged_functions_keep_images() -> None:
    """As other objects that are not arrays of a target."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("jax")
    seen = []
    bridged = zc.bridge(lambda x, image: seen.append(image) or x + 1, to="torch", source="jax")
    image = image_of("RGB")
    assert bridged(torch.ones(2), image).tolist() == [2, 2]
    assert seen[0] is image
