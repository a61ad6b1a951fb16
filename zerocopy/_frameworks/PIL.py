"""Pillow: images, whose pixels are aliased through their Arrow export; Pillow is not a target.

Pillow stores an image of several bands as 4 bytes for each pixel, and a smaller image in one block of memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import DType, from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework, version_numbers
from zerocopy.protocols import arrow_c
from zerocopy.protocols.array_interface import has_other_booleans, plain_booleans
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides

_NAME = "PIL.Image.Image"
_PIXEL = 4  # bytes of a pixel of several bands (Pillow, "Arrow support")
#: Bytes between the bands of a pixel: the first band of LA is stored three times, followed by the alpha.
_STEP = {"LA": 3, "La": 3, "PA": 3}
#: Modes whose stored bytes are not their values: True is 255, and the signs of two bands of LAB are inverted.
_OTHER_BYTES = ("1", "LAB")
_READ = Fix("numpy.asarray({x})", "copies the pixels once")
#: Older versions export gaps between rows as pixels, and crash for images over a buffer (Pillow issue 9896).
_EXPORTS = (13, 0, 0)


class Pillow(Framework):
    """``PIL.Image.Image``, with the shape and dtype of ``numpy.asarray``: (height, width, bands)."""

    name = "PIL"
    kind = "source"
    made_by = 'import PIL.Image; PIL.Image.fromarray(zc.convert(x, "numpy"))'
    root_modules = ("PIL",)
    classes = ("PIL.Image.Image",)
    distribution = "pillow"

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        view = _alias(obj, *_layout(obj))
        if view is None:
            raise BufferError("its pixels must be copied")
        return view.numpy(), view.dtype

    def source(self, obj: Any) -> Source:
        shape, stored = _layout(obj)
        view = _alias(obj, shape, stored)
        if view is not None:
            return Source(_NAME, view, view.numpy, "arrow-c")
        native = stored.newbyteorder("=")
        dtype = from_numpy(native)
        assert dtype is not None

        def host() -> Array:
            array = np.asarray(obj)
            return plain_booleans(array) if has_other_booleans(array) else np.asarray(array, native)

        view = StridedView(0, shape, contiguous_strides(shape, dtype.itemsize), dtype, HOST, False, obj)
        return Source(_NAME, view, host, "array-interface", (_reason(obj.mode, stored),))


def _layout(image: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Load an image, and return the shape and the dtype of ``numpy.asarray(image)``."""
    from PIL import ImageMode

    try:
        image.load()  # decodes a file, which can change the mode and the size
    except Exception as error:
        if not is_error(error):
            raise
        raise UnsupportedConversionError(
            f"convert({_NAME})",
            f"Pillow cannot load it: {type(error).__name__} {error}".rstrip(),
            "open the file again, and convert the image before it is closed",
            code="no-memory",
        ) from error
    mode = ImageMode.getmode(image.mode)
    bands = len(mode.bands)
    return (image.height, image.width, *((bands,) if bands > 1 else ())), np.dtype(mode.typestr)


def _alias(image: Any, shape: tuple[int, ...], stored: np.dtype[Any]) -> StridedView | None:
    """Return the memory of a loaded image; None if it does not hold the values row by row."""
    if image.mode in _OTHER_BYTES or not stored.isnative or not _can_export():
        return None
    try:
        memory = arrow_c.read_array(image)
    except UnsupportedConversionError:
        return None  # its rows are in several blocks
    height, width, *bands = shape
    if memory.length != height * width or memory.offset:
        return None
    pixel = _PIXEL if bands else stored.itemsize
    strides = (width * pixel, pixel, *((_STEP.get(image.mode, 1),) if bands else ()))
    pixels = memory.children[0] if bands else memory
    dtype = from_numpy(stored)
    assert dtype is not None
    return StridedView(pixels.buffers[1], shape, strides, dtype, HOST, True, memory)


def _can_export() -> bool:
    import PIL

    return version_numbers(PIL.__version__) >= _EXPORTS


def _reason(mode: str, stored: np.dtype[Any]) -> Reason:
    if mode in _OTHER_BYTES:
        why = f"Pillow stores the mode {mode!r} as other bytes than its values"
    elif not stored.isnative:
        why = f"the bytes of the mode {mode!r} are in the other order ({stored.str})"
    elif not _can_export():
        why = "Pillow exports its memory from version 13 on"
    else:
        why = "its rows are not in one block: Pillow divides images of more than PILLOW_BLOCK_SIZE (16 MB)"
    return Reason(why, code="exporter-copies", fixes=[_READ])


FRAMEWORK = Pillow()
