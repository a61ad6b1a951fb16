"""PyAV: frames of video and audio in one plane, which are aliased; PyAV is not a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.dtype import from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.protocols import producer
from zerocopy.protocols.array_interface import host_view
from zerocopy.source import Array, Source

#: Types of samples by FFmpeg's names, to which planar formats add a "p".
_SAMPLES = {"u8": "uint8", "s16": "int16", "s32": "int32", "s64": "int64", "flt": "float32", "dbl": "float64"}
_VIDEO, _AUDIO = "av.VideoFrame", "av.AudioFrame"


class PyAV(Framework):
    """``av.VideoFrame`` and ``av.AudioFrame``, with the shape, dtype and values of ``frame.to_ndarray()``."""

    name = "av"
    kind = "source"
    root_modules = ("av",)
    distribution = "av"
    actions: Mapping[str, Fix] = {
        "contiguous": Fix("{x}.to_ndarray()"),
        "flatten": Fix("{x}.to_ndarray().reshape(-1)"),
    }

    def owns(self, cls: type) -> bool:
        frames = (("av.video.frame", "VideoFrame"), ("av.audio.frame", "AudioFrame"))
        return any((base.__module__, base.__name__) in frames for base in cls.__mro__)

    def source(self, obj: Any) -> Source:
        return _audio(obj) if hasattr(obj, "samples") else _video(obj)


def _video(frame: Any) -> Source:
    name, planes = frame.format.name, frame.planes
    if len(planes) != 1:
        each = Fix("list({x}.planes)", "converts each plane")
        raise _in_planes(_VIDEO, name, len(planes), [*_copies(name), each])
    try:
        # Its capsule holds the buffer, which make_writable() and the decoder may otherwise free.
        source = producer.describe(planes[0])
    except UnsupportedConversionError as error:
        reason = Reason(
            f"strides cannot describe its format {name!r}", code="not-strided", fixes=_copies(name)
        )
        raise obstacles.refuse_source(_VIDEO, reason) from error
    if source is None:
        why = "this version of PyAV does not export planes as arrays"
        raise obstacles.refuse_source(_VIDEO, Reason(why, code="no-protocol", fixes=_copies(name)))
    source.name = _VIDEO
    return source


def _audio(frame: Any) -> Source:
    name, planes = frame.format.name, frame.planes
    dtype = np.dtype(_SAMPLES[name.removesuffix("p")])
    if len(planes) != 1:
        each = f"[numpy.frombuffer(plane, {dtype.name!r}, {{x}}.samples) for plane in {{x}}.planes]"
        fixes = [Fix("{x}.to_ndarray()", "copies it into one array"), Fix(each, "aliases each plane")]
        raise _in_planes(_AUDIO, name, len(planes), fixes)
    # NumPy raises if the plane is smaller.
    array: Array = np.ndarray((1, frame.samples * frame.layout.nb_channels), dtype, planes[0])
    values = from_numpy(dtype)
    assert values is not None
    return Source(_AUDIO, host_view(array, values), lambda: array)


def _in_planes(kind: str, name: str, count: int, fixes: list[Fix]) -> UnsupportedConversionError:
    reason = Reason(f"its format {name!r} is planar: it has {count} planes", code="chunks", fixes=fixes)
    if not count:
        reason = Reason("it has no memory", "pass a frame that was decoded or filled", code="no-memory")
    return obstacles.refuse_source(kind, reason)


def _copies(name: str) -> list[Fix]:
    """Return fixes that copy a frame of video; PyAV has no arrays of some formats."""
    import av.video.frame

    known = getattr(av.video.frame, "supported_np_pix_fmts", ())
    array = [Fix("{x}.to_ndarray()", "copies it into one array")] if name in known else []
    return [*array, Fix("{x}.to_ndarray(format='rgb24')", "gives RGB")]


FRAMEWORK = PyAV()
