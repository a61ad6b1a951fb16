"""Serializers for Ray: an object as frames, which pickle protocol 5 writes into Ray's store directly."""

from __future__ import annotations

import copyreg
import pickle
from typing import Any, NamedTuple

import numpy as np

from zerocopy import registry
from zerocopy.errors import ZeroCopyError
from zerocopy.frames import from_frames, to_frames
from zerocopy.integrations.ray.carried import CARRIED
from zerocopy.integrations.ray.private_memory import writable_frame
from zerocopy.source import Array

_PROTOCOL = 5


class Packed(NamedTuple):
    """An object as frames, as Ray stores it."""

    framework: str
    header: bytes
    buffers: list[Any]
    extras: Any


class Unchanged:
    """Wraps an object that is pickled as without zerocopy; unpickling returns the object itself."""

    __slots__ = ("_object",)

    def __init__(self, obj: Any) -> None:
        self._object = obj

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduce = copyreg.dispatch_table.get(type(self._object))
        return self._object.__reduce_ex__(protocol) if reduce is None else reduce(self._object)


class Serializer:
    """Serializes objects of one framework."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._carried = CARRIED[framework]

    def __call__(self, obj: Any) -> Packed | Unchanged:
        """Return an object as frames that alias its memory, or marked as unchanged."""
        if not self._carried.is_plain(obj):
            return Unchanged(obj)
        try:
            split = to_frames(self._carried.prepare(obj))
        except ZeroCopyError:  # the framework itself can pickle more objects
            return Unchanged(obj)
        buffers = [pickle.PickleBuffer(frame.data) for frame in split.frames]
        return Packed(self._framework, split.header, buffers, self._carried.extras(obj))


def open_packed(packed: Any) -> Any:
    """Return the object that a `Serializer` serialized; Ray calls it in each process that gets one."""
    if type(packed) is not Packed:
        return packed
    framework, header, buffers, extras = packed
    frames: list[Any] = buffers
    if needs_private_memory(framework):
        frames = [writable_frame(as_bytes(buffer)) for buffer in buffers]
    obj = from_frames(header, frames)
    restore = CARRIED[framework].restore
    return obj if extras is None or restore is None else restore(obj, extras)


def needs_private_memory(name: str) -> bool:
    """Whether arrays of a framework can be written although their memory is read-only."""
    framework = registry.by_name(name)
    return framework.mutable and not framework.marks_readonly and not framework.tables


def as_bytes(buffer: Any) -> Array:
    """Return a buffer as an ndarray of bytes."""
    view = memoryview(buffer)
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
