"""Serializers for Ray: an object as frames, which pickle protocol 5 copies directly into Ray's store."""

from __future__ import annotations

import copyreg
import pickle
from typing import Any, NamedTuple

from zerocopy import registry
from zerocopy.errors import ZeroCopyError
from zerocopy.frames import from_frames, to_frames
from zerocopy.frames.arrays import as_bytes
from zerocopy.frames.hook import FramesHook
from zerocopy.framework import hook_of
from zerocopy.integrations.ray.private_memory import writable_frame


class Packed(NamedTuple):
    """An object as frames, as Ray stores it."""

    framework: str
    header: bytes
    buffers: list[Any]


class Unchanged:
    """Wraps an object that is pickled as without zerocopy; unpickling returns the object itself."""

    __slots__ = ("_object",)

    def __init__(self, obj: Any) -> None:
        self._object = obj

    def __reduce_ex__(self, protocol: Any) -> Any:
        obj = self._object
        own = copyreg.dispatch_table.get(type(obj))
        reduction: Any = obj.__reduce_ex__(protocol) if own is None else own(obj)
        function, arguments, *rest = reduction
        # pickle requires that the class in such arguments is that of the object it pickles, this wrapper.
        function = _CONSTRUCTORS.get(function.__name__, function)
        return function, arguments, *rest


def new_object(cls: type, *arguments: Any) -> Any:
    """Create an object as ``copyreg.__newobj__`` does; pickles name this function."""
    return cls.__new__(cls, *arguments)


def new_object_ex(cls: type, arguments: Any, options: Any) -> Any:
    """Create an object as ``copyreg.__newobj_ex__`` does; pickles name this function."""
    return cls.__new__(cls, *arguments, **options)


_CONSTRUCTORS = {"__newobj__": new_object, "__newobj_ex__": new_object_ex}


class Serializer:
    """Serializes objects of one framework."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._hook = hook_of(registry.by_name(framework), FramesHook)

    def types(self) -> tuple[type, ...]:
        """Return the types to register, each alone: Ray does not look for the types of bases."""
        return self._hook.types()

    def __call__(self, obj: Any) -> Packed | Unchanged:
        """Return an object as frames that alias its memory, or marked as unchanged."""
        try:
            if not self._hook.keeps_all(obj):
                return Unchanged(obj)
            split = to_frames(obj)
        except ZeroCopyError:  # the framework itself can pickle more objects
            return Unchanged(obj)
        buffers = [pickle.PickleBuffer(frame.data) for frame in split.frames]
        return Packed(self._framework, split.header, buffers)


def open_packed(packed: Any) -> Any:
    """Return the object that a `Serializer` serialized; Ray calls it in each process that gets one."""
    if type(packed) is not Packed:
        return packed
    framework, header, buffers = packed
    if needs_private_memory(framework):
        return from_frames(header, [writable_frame(as_bytes(buffer)) for buffer in buffers])
    return from_frames(header, buffers)


def needs_private_memory(name: str) -> bool:
    """Whether arrays of a framework can be written although their memory is read-only."""
    framework = registry.by_name(name)
    return framework.mutable and not framework.marks_readonly and not framework.tables
