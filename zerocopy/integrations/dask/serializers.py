"""Serializers of Dask's family "dask": frames, or a handle if the recipient can open this memory.

The handles of objects that were sent are kept, so that all recipients of an object share one segment. The
serializers are registered when a framework is imported; none is imported for them.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from zerocopy import forks, registry
from zerocopy.errors import SharedMemoryError, StaleHandleError, ZeroCopyError
from zerocopy.frames import from_frames, to_frames
from zerocopy.frames.arrays import as_bytes
from zerocopy.frames.hook import FramesHook
from zerocopy.framework import hook_of
from zerocopy.integrations.dask import peers
from zerocopy.protocols.array_interface import address, aligned_empty
from zerocopy.shared.objects import Shared
from zerocopy.shared.reading import open_frames
from zerocopy.shared.share import share_buffers
from zerocopy.source import Array

#: Smaller objects are sent as bytes; `zerocopy.integrations.multiprocessing.reducing` has the measurement.
SMALLEST = 512 * 1024
#: The largest alignment of an element; buffers that Dask receives may start at any byte.
_ALIGNMENT = 16
#: Copying a smaller frame takes less time than another block. Dask receives messages below 128 KiB as one.
_OWN_BLOCK = 64 * 1024
_KEY = "zerocopy"

#: The program and the workers that have installed the serializers in this process. Frames and handles are
#: sent while there is one.
users: set[object] = set()


class NotFrames(NotImplementedError, TypeError):
    """Makes Dask continue with its next family of serializers; its pickler expects a `TypeError`."""


class DaskFunctions:
    """How Dask itself serializes a type: the functions that were registered for it, or its pickles.

    Parameters
    ----------
    dumps : callable, optional
        Takes an object, and a context if it has such a parameter; returns a header and frames.
    loads : callable, optional
    registered : bool
        Whether the functions are those of the family "dask".
    """

    def __init__(self, dumps: Any = None, loads: Any = None, registered: bool = False) -> None:
        from distributed.utils import has_keyword

        self.dumps: Any = dumps
        self.loads = loads
        self.registered = registered
        if dumps is not None and not has_keyword(dumps, "context"):
            self.dumps = lambda obj, context: dumps(obj)


class Serializer:
    """Serializes and deserializes the objects of one type.

    Parameters
    ----------
    own : DaskFunctions
        Dask's own.
    cls : type
        Objects of its subclasses are sent by Dask's functions.
    hook : FramesHook, optional
        Decides which objects are sent as frames; None if Dask copies nothing.
    """

    def __init__(self, own: DaskFunctions, cls: type, hook: FramesHook | None) -> None:
        self.own = own
        self._cls = cls
        self._hook = hook

    def serialize(self, obj: Any, context: Any = None) -> tuple[dict[str, Any], Sequence[Any]]:
        """Return a header and frames, as Dask's serializers do."""
        if not users or not peers.reads_frames(context):
            return self._by_dask(obj, context)
        in_flight = peers.handles_in_flight(context)
        sent = None if in_flight is None else kept.find(obj)
        if in_flight is not None and sent is not None:
            in_flight.append(sent[0])
            return sent[1], []
        split = self._split(obj)
        if split is None:
            return self._by_dask(obj, context, in_flight)
        message, frames = split
        header = _shared(obj, message, frames, in_flight)
        if header is not None:
            return header, []
        return _in_own_blocks(message, frames, context)

    def deserialize(self, header: Any, frames: Sequence[Any]) -> Any:
        """Return the object of a header and frames."""
        message = header.get(_KEY)
        if message is None:
            return self.own.loads(header, frames)
        handle = message.get("handle")
        received = frames[1:] if message.get("spacer") else frames
        buffers = list(map(_aligned, received)) if handle is None else _opened(handle)
        if "own" in message:
            return self.own.loads(message["own"], [buffer.data for buffer in buffers])
        pairs = zip(buffers, message["writable"], strict=True)
        return from_frames(message["header"], [_with_flag(buffer, writable) for buffer, writable in pairs])

    def _split(self, obj: Any) -> tuple[dict[str, Any], list[Array]] | None:
        """Return a message and frames, or None if Dask must send the object itself."""
        if self._hook is None or type(obj) is not self._cls:
            return None
        try:
            if not self._hook.keeps_all(obj):
                return None
            split = to_frames(obj)
        except ZeroCopyError:
            return None
        writable = [bool(frame.flags.writeable) for frame in split.frames]
        return {"header": split.header, "writable": writable}, split.frames

    def _by_dask(
        self, obj: Any, context: Any, in_flight: list[Any] | None = None
    ) -> tuple[dict[str, Any], Sequence[Any]]:
        """Return Dask's own header and frames, the latter as a handle if that is possible."""
        own = self.own
        pickles = not own.registered
        if pickles and (own.dumps is None or in_flight is None or type(obj) is not self._cls):
            raise NotFrames(type(obj).__qualname__)
        header, frames = own.dumps(obj, context)
        shared = _shared(obj, {"own": header}, frames, in_flight)
        if shared is not None:
            return shared, []
        if pickles:
            raise NotFrames(type(obj).__qualname__)
        return header, frames


class Deserialize:
    """The function of `Serializer.deserialize` that Dask registers; in pickles it is Dask's own."""

    def __init__(self, serializer: Serializer) -> None:
        self._serializer = serializer

    def __call__(self, header: Any, frames: Sequence[Any]) -> Any:
        return self._serializer.deserialize(header, frames)

    # Dask pickles the function with what serialize() returned without a context: Dask's own frames.
    def __reduce__(self) -> Any:
        return partial, (self._serializer.own.loads,)


def _shared(
    obj: Any, message: dict[str, Any], frames: Sequence[Any], in_flight: list[Any] | None
) -> dict[str, Any] | None:
    """Return a header with a handle; None if frames are small, or there is no memory for them."""
    if in_flight is None:
        return None
    buffers = list(map(as_bytes, frames))
    if sum(buffer.nbytes for buffer in buffers) < SMALLEST:
        return None
    try:
        shared = share_buffers(buffers, hand_on=False)
    except SharedMemoryError:
        return None
    header = {_KEY: {**message, "handle": bytes(shared)}}
    in_flight.append(shared)
    kept.add(obj, shared, header)
    return header


def _opened(handle: bytes) -> list[Array]:
    """Return the buffers of a handle; after a failure Dask fetches the object again, in bytes."""
    try:
        return open_frames(Shared.from_bytes(handle).handle)[1]
    except ZeroCopyError as error:
        from distributed.comm.core import CommClosedError

        if not isinstance(error, StaleHandleError):
            peers.refuse_handles()
        # Dask closes the connection after an OSError and asks again; other errors stop it (distributed#6705).
        raise CommClosedError(f"the sender's shared memory could not be opened: {error}") from error


def _in_own_blocks(
    message: dict[str, Any], frames: list[Array], context: Any
) -> tuple[dict[str, Any], list[memoryview]]:
    """Return a header and frames that Dask receives in one block each, which NumPy aligns to 16 bytes.

    Dask receives the first frame, and all parts of it, in one block with the message's header, where it
    starts at an odd address (distributed/comm/tcp.py, `_add_frames_header`). The first frame is therefore
    one byte. Dask also splits frames into parts of 64 MiB along their first axis
    (distributed/protocol/utils.py, `frame_split_size`), and would join the parts of such a frame by a copy.
    The frames are therefore rows: the first part is the row, and the others are empty. A tensor of 256 MiB
    takes 0.85 of the CPU time of Dask's own message, and 3.4 times that time without blocks of its own.
    """
    compresses = bool(context and context.get("compression"))  # sizes are limited to those of the parts
    if compresses or max((frame.nbytes for frame in frames), default=0) < _OWN_BLOCK:
        return {_KEY: message}, [frame.data for frame in frames]
    spacer = memoryview(bytearray(1))
    return {_KEY: {**message, "spacer": True}}, [spacer, *(frame.reshape(1, -1).data for frame in frames)]


def _aligned(frame: Any) -> Array:
    """Return a received frame as bytes that lie at a multiple of the largest element."""
    buffer = as_bytes(frame)
    return _copy(buffer) if buffer.nbytes and address(buffer) % _ALIGNMENT else buffer


def _copy(buffer: Array) -> Array:
    copy = aligned_empty(buffer.shape, buffer.dtype)
    np.copyto(copy, buffer)
    return copy


#: The module that asks for the memory of received frames, by the name ``host_array``.
_RECEIVER = "distributed.comm.tcp"


def receive_aligned() -> None:
    """Let Dask receive frames at multiples of 64 bytes, not of 16, because JAX and TensorFlow copy others.

    Dask has no setting for its allocator. Without this name in its module, frames lie where Dask puts them.
    """
    tcp: Any = importlib.import_module(_RECEIVER)
    if hasattr(tcp, "host_array"):
        tcp.host_array = aligned_memory


def receive_as_dask() -> None:
    """Undo `receive_aligned`."""
    from distributed.protocol.utils import host_array

    tcp: Any = importlib.import_module(_RECEIVER)
    if getattr(tcp, "host_array", None) is aligned_memory:
        tcp.host_array = host_array


def aligned_memory(nbytes: int) -> memoryview:
    """Return memory for one received frame."""
    return aligned_empty((nbytes,), np.dtype(np.uint8)).data


def _with_flag(buffer: Array, writable: bool) -> Array:
    """Return a buffer that is writable or read-only as the sender's was."""
    if writable and not buffer.flags.writeable:
        return _copy(buffer)
    if not writable and buffer.flags.writeable:
        buffer = buffer.view()
        buffer.flags.writeable = False
    return buffer


#: Bytes of shared memory that are kept for further recipients after all transfers have ended.
LIMIT = 256 << 20


class _Entry(NamedTuple):
    obj: ref[Any]
    shared: ref[Shared]
    message: dict[str, Any]


class KeptHandles:
    """The handles of objects that are alive, with the messages that contain them.

    A transfer keeps its handles itself. Afterwards the last ones are kept, up to `limit` bytes of memory.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._entries: dict[int, _Entry] = {}
        self._recent: OrderedDict[int, Shared] = OrderedDict()
        self._bytes = 0
        self._lock = forks.lock()  # re-entrant: a finalizer can run while it is held

    def find(self, obj: Any) -> tuple[Shared, dict[str, Any]] | None:
        """Return the handle of an object and its message, or None."""
        with self._lock:
            entry = self._entries.get(id(obj))
            if entry is None or entry.obj() is not obj:
                return None
            shared = entry.shared()
            if shared is None:
                return None
            self._keep(id(obj), shared)
            return shared, entry.message

    def add(self, obj: Any, shared: Shared, message: dict[str, Any]) -> None:
        """Add the handle of an object; it is dropped with the object."""
        key = id(obj)
        with suppress(TypeError), self._lock:  # the type has no weak references
            self._entries[key] = _Entry(ref(obj, lambda gone: self._forget(key, gone)), ref(shared), message)
            self._keep(key, shared)

    def clear(self) -> None:
        """Drop all handles that are not in flight."""
        with self._lock:
            self._entries.clear()
            self._recent.clear()
            self._bytes = 0

    def _keep(self, key: int, shared: Shared) -> None:
        self._drop(key)
        self._recent[key] = shared
        self._bytes += shared.nbytes
        while self._bytes > self.limit:
            self._drop(next(iter(self._recent)))

    def _drop(self, key: int) -> None:
        shared = self._recent.pop(key, None)
        if shared is not None:
            self._bytes -= shared.nbytes

    def _forget(self, key: int, obj: ref[Any]) -> None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.obj is obj:
                del self._entries[key]
                self._drop(key)


kept: KeptHandles = KeptHandles()


#: Modules of distributed with its own serializers, by the top-level module that makes it import them.
_OWN_MODULES = {
    "numpy": "distributed.protocol.numpy",
    "torch": "distributed.protocol.torch",
    "pyarrow": "distributed.protocol.arrow",
}
#: Types that Dask itself sends without a copy: zerocopy only replaces their bytes by handles.
_ALIASED_BY_DASK = {
    "numpy": ("ndarray", "matrix", "ma.MaskedArray"),
    "pandas": ("DataFrame", "Series"),
}

_lock = forks.lock()
_registered: set[str] = set()


def register_all() -> None:
    """Register the types of imported frameworks now, and those of others when Dask first meets them."""
    receive_aligned()
    serialize, deserialize = _dispatches()
    for name in registry.frameworks():
        framework = registry.by_name(name)
        if not framework.has_hook("frames"):
            continue
        if forks.is_imported(name):
            register(name)
            continue
        for root in framework.root_modules:  # Dask looks for the top-level module of a type
            serialize.register_lazy(root, partial(register, name))
            deserialize.register_lazy(root, partial(register, name))


def register(name: str) -> None:
    """Register the types of a framework; imports it if only its types are imported."""
    framework = registry.by_name(name)
    module = framework.module()
    if name in _OWN_MODULES:
        importlib.import_module(_OWN_MODULES[name])
    hook = None if name in _ALIASED_BY_DASK else hook_of(framework, FramesHook)
    types = hook.types() if hook else [_attribute(module, path) for path in _ALIASED_BY_DASK[name]]
    serialize, deserialize = _dispatches()
    with _lock:
        if name in _registered:
            return
        _registered.add(name)  # _dask_functions() may get here again
        for cls in types:
            serializer = Serializer(_dask_functions(cls, pickles=hook is None), cls, hook)
            serialize.register(cls, serializer.serialize)
            deserialize.register(cls, Deserialize(serializer))


def _dask_functions(cls: type, pickles: bool) -> DaskFunctions:
    """Return Dask's functions for a type: registered ones, or its pickles, or none."""
    from distributed.protocol.serialize import pickle_dumps, pickle_loads

    serialize, deserialize = _dispatches()
    try:
        return DaskFunctions(serialize.dispatch(cls), deserialize.dispatch(cls), registered=True)
    except TypeError:  # not registered
        return DaskFunctions(pickle_dumps, pickle_loads) if pickles else DaskFunctions()


def _dispatches() -> tuple[Any, Any]:
    from distributed.protocol.serialize import dask_deserialize, dask_serialize

    return dask_serialize, dask_deserialize


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module
