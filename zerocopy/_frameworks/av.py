"""PyAV: frames of video and audio, whose planes are aliased; PyAV is not a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.dtype import DType, from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.protocols import producer
from zerocopy.source import Array, Source

#: Types of samples by FFmpeg's names, to which planar formats add a "p".
_SAMPLES = {"u8": "uint8", "s16": "int16", "s32": "int32", "s64": "int64", "flt": "float32", "dbl": "float64"}
#: Formats whose plane of two components has the last one first.
_SWAPPED = ("nv21", "nv42")
#: The names of the planes by the name of a format; empty if strides cannot describe them.
_names: dict[str, tuple[str, ...]] = {}
_VIDEO, _AUDIO = "av.VideoFrame", "av.AudioFrame"


class PyAV(Framework):
    """``av.VideoFrame`` and ``av.AudioFrame``.

    A frame in one plane has the shape, dtype and values of ``frame.to_ndarray()``. Other frames become a dict
    of their planes: by component (``"y"``, ``"uv"``, ``"g"``), or by channel (``"FL"``).
    """

    name = "av"
    kind = "source"
    root_modules = ("av",)
    classes = ("av.video.frame.VideoFrame", "av.audio.frame.AudioFrame")
    distribution = "av"
    actions: Mapping[str, Fix] = {
        "contiguous": Fix("{x}.to_ndarray()"),
        "flatten": Fix("{x}.to_ndarray().reshape(-1)"),
    }
    unwrap = 'zc.convert({x}, "numpy")'

    def unwrapped(self, obj: Any) -> Any:
        if len(obj.planes) < 2:
            return obj
        planes = _channels(obj) if hasattr(obj, "samples") else _components(obj)
        return obj if planes is None else planes

    def as_ndarray(self, obj: Any) -> tuple[Array, DType]:
        array = _samples(obj) if hasattr(obj, "samples") else _pixels(obj)
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        return array, dtype

    def source(self, obj: Any) -> Source:
        return super().source(obj) if hasattr(obj, "samples") else _video(obj)


def _pixels(frame: Any) -> Array:
    (plane,) = frame.planes
    return np.from_dlpack(plane)


def _components(frame: Any) -> dict[str, Any] | None:
    """Return the planes by the names of their components; None if strides cannot describe one."""
    form, planes = frame.format, frame.planes
    if form.name not in _names:
        _names[form.name] = _names_of(form, planes) if _are_strided(planes) else ()
    names = _names[form.name]
    return dict(zip(names, planes, strict=True)) if names else None


def _are_strided(planes: Any) -> bool:
    try:
        return all(producer.describe(plane) is not None for plane in planes)
    except UnsupportedConversionError:
        return False


def _names_of(form: Any, planes: Any) -> tuple[str, ...]:
    """Return the names of planes in a format, such as "y" and "uv"."""
    names = [""] * len(planes)
    letters = "rgba" if form.is_rgb else "yuva"
    for letter, component in zip(letters, form.components, strict=False):
        names[component.plane] += letter
    return tuple(name[::-1] if form.name in _SWAPPED else name for name in names)


def _channels(frame: Any) -> dict[Any, Any]:
    """Return the samples of each channel, by the channels' names if these differ."""
    dtype = np.dtype(_SAMPLES[frame.format.name.removesuffix("p")])
    names = [channel.name for channel in frame.layout.channels]
    labels = names if len({*names}) == len(frame.planes) else range(len(frame.planes))
    return {
        label: np.ndarray((frame.samples,), dtype, plane)
        for label, plane in zip(labels, frame.planes, strict=True)
    }


def _video(frame: Any) -> Source:
    name, planes = frame.format.name, frame.planes
    if len(planes) != 1 and (not planes or _components(frame) is not None):
        raise _not_one_array(_VIDEO, len(planes))
    try:
        # Its capsule holds the buffer, which make_writable() and the decoder may otherwise free.
        source = producer.describe(planes[0]) if len(planes) == 1 else None
    except UnsupportedConversionError as error:
        raise _not_strided(name) from error
    if source is None:
        raise _not_strided(name)
    source.name = _VIDEO
    return source


def _samples(frame: Any) -> Array:
    dtype = np.dtype(_SAMPLES[frame.format.name.removesuffix("p")])
    if len(frame.planes) != 1:
        raise _not_one_array(_AUDIO, len(frame.planes))
    # NumPy raises if the plane is smaller.
    return np.ndarray((1, frame.samples * frame.layout.nb_channels), dtype, frame.planes[0])


def _not_one_array(kind: str, count: int) -> UnsupportedConversionError:
    planes = [Fix('zc.convert({x}, "numpy")', "gives a dict of them", alone=True)]
    reason = Reason(f"it has {count} planes, and is not one array", code="chunks", fixes=planes)
    if not count:
        reason = Reason("it has no memory", "pass a frame that was decoded or filled", code="no-memory")
    return obstacles.refuse_source(kind, reason)


def _not_strided(name: str) -> UnsupportedConversionError:
    why = f"strides cannot describe its format {name!r}"
    return obstacles.refuse_source(_VIDEO, Reason(why, code="not-strided", fixes=_copies(name)))


def _copies(name: str) -> list[Fix]:
    """Return fixes that copy a frame of video; PyAV has no arrays of some formats."""
    import av.video.frame

    known = getattr(av.video.frame, "supported_np_pix_fmts", ())
    array = [Fix("{x}.to_ndarray()", "copies it into one array")] if name in known else []
    return [*array, Fix("{x}.to_ndarray(format='rgb24')", "gives RGB")]


FRAMEWORK = PyAV()
