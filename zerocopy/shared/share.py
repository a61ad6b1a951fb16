"""``share`` and ``shared_empty``, and the memory that they keep: ``set_limit`` and ``trim``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.describe import opened
from zerocopy.errors import OptionError, SharedMemoryError, UnsupportedConversionError, ZeroCopyError
from zerocopy.errors.tracebacks import public
from zerocopy.errors.warning import warn
from zerocopy.frames import Frames, to_frames
from zerocopy.frames.header import ARRAY, kind_of
from zerocopy.protocols.array_interface import address
from zerocopy.shared.blocks import Block, large_blocks, slabs
from zerocopy.shared.handle import (
    INDEXED,
    LARGEST_SMALL,
    MAPPING,
    SAME_BLOCK,
    SMALL,
    TABLE,
    Handle,
    host_id,
    index_bytes,
    pack_index,
    pack_names,
)
from zerocopy.shared.objects import Shared, SharedArray, SharedDeviceArray, SharedMapping, SharedTable
from zerocopy.shared.reading import addresses
from zerocopy.shared.segment import Array
from zerocopy.shared.segment_file import VARIABLE, broker_directory

#: Frames of a table begin at multiples of this many bytes, as Arrow recommends and JAX requires.
_ALIGNMENT = 64
#: The longest header of an array in its handle, which then has less than 256 bytes as a pickle.
_SHORT = 96

#: The class of a shared object of each kind.
_CLASSES = {0: SharedArray, TABLE: SharedTable, MAPPING: SharedMapping}

#: `host_id` of the process that has read the environment variable of the broker: another object after a fork.
_configured: bytes | None = None


@public
def share(obj: Any) -> Shared:
    """Copy an array or table once into shared memory, which other processes open without a copy.

    Parameters
    ----------
    obj : object
        An array in host memory or in CUDA memory, or a table or column in host memory, of any framework; or
        the result of :func:`zerocopy.open_weights`, whose readers get a dict of its tensors.

    Returns
    -------
    Shared
        Send it to processes of this machine: it is picklable, and its pickle has less than 256 bytes for
        arrays of usual shapes. Keep it until the readers have opened it.

    Raises
    ------
    UnsupportedConversionError
        The object is not an array or a table, holds Python objects, is a query that has not been read, or
        is in device memory without a handle of the driver.
    SharedMemoryError
        There is no room, or no free file descriptor.

    Notes
    -----
    The object is copied once into a segment of shared memory, a Linux memfd. An object whose memory lies
    in a segment already is not copied: an array of :func:`zerocopy.shared_empty`, a part of it without
    gaps, or the result of ``convert`` from a handle.

    In a reader, ``convert(shared, to=...)`` maps the memory privately. The result is read-only if the
    framework has read-only arrays; a write to any other result changes it for that process only.
    An object of up to 64 KiB is copied when it is opened.

    An array in CUDA memory stays where it is, and its readers use the same memory. The driver must have a
    handle for it: memory of ``cudaMalloc`` has one, and memory of an asynchronous resource of RMM with
    ``enable_ipc=True`` (``install_pool(resource=...)``). Other asynchronous pools have none.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> shared = zc.share(np.arange(6, dtype="f4").reshape(2, 3))
    >>> shared.nbytes, shared.copied_bytes, len(bytes(shared)) < 200
    (24, 24, True)
    >>> zc.convert(shared, to="numpy")  # usually in another process
    array([[0., 1., 2.],
           [3., 4., 5.]], dtype=float32)
    """
    if isinstance(obj, Shared):
        return obj
    if isinstance(obj, (dict, list, tuple)):
        raise _not_one(obj)
    try:
        if _configured is not host_id():
            _configure()
        return _share(obj)
    except ZeroCopyError as error:
        from zerocopy._engine.container_types import is_container

        if is_container(obj):
            raise _not_one(obj) from None
        raise error.with_context(asked=f"share({type(obj).__qualname__})") from error.__cause__


def _share(obj: Any) -> Shared:
    framework = registry.by_type(type(obj))
    if framework is None or framework.unwrap:
        tensors = opened(obj)
        if tensors is not obj and type(tensors) is dict:
            return _share_mapping(tensors)
    try:
        split = to_frames(obj)
    except UnsupportedConversionError as error:
        if error.code != "other-device":
            raise
    else:
        return share_frames(split)
    from zerocopy.shared.cuda.exporting import share_array

    name = "" if framework is None else framework.name
    handle, export, copied = share_array(obj, name, large_blocks)
    return SharedDeviceArray(handle, export, copied)


def _share_mapping(tensors: dict[str, Any]) -> Shared:
    """Share the tensors of weights in one block, each at a multiple of 64 bytes."""
    parts = {name: to_frames(array) for name, array in tensors.items()}
    header = pack_names({name: bytes(part.header) for name, part in parts.items()})
    return share_buffers([part.frames[0] for part in parts.values()], header, MAPPING)


def _configure() -> None:
    """Start the broker at the first `share` of a process, if the environment variable asks for it."""
    global _configured
    _configured = host_id()
    value = os.environ.get(VARIABLE, "0")
    if value not in ("", "0"):
        from zerocopy.shared.broker import start_broker

        try:
            start_broker(broker_directory())
        except OSError as error:
            warn(
                f"{VARIABLE}={value}: the broker does not start, so that processes in other PID namespaces "
                f"cannot open this process's handles: {error}\n  To fix: pass a directory in which this "
                "user can create a socket, with a path of at most 60 bytes, or unset the variable"
            )


def _not_one(obj: Any) -> UnsupportedConversionError:
    kind = type(obj).__qualname__
    if isinstance(obj, Mapping):
        remedy = "{k: zc.share(v) for k, v in x.items()} shares each value"
    elif isinstance(obj, (list, tuple)):
        remedy = "[zc.share(v) for v in x] shares each value"
    else:
        remedy = "share each of its arrays"
    return UnsupportedConversionError(
        f"share({kind})",
        f"a {kind} is not one array or table",
        remedy,
        code="not-an-array",
    )


def share_frames(split: Frames, hand_on: bool = True) -> Shared:
    """Return the handle of an object that was split into frames.

    Parameters
    ----------
    split : Frames
    hand_on : bool
        Whether memory that this process has opened from another one is shared again without a copy, by
        this process's lease. False copies it.
    """
    is_array = kind_of(split.header) == ARRAY
    if is_array and len(split.header) <= _SHORT:
        return _share_array(split, hand_on)
    shared = share_buffers(split.frames, split.header, 0 if is_array else TABLE, hand_on)
    shared.copied_bytes = max(shared.copied_bytes, split.copied_bytes)
    return shared


def _share_array(split: Frames, hand_on: bool) -> Shared:
    """Share one frame, whose header travels in the handle."""
    frame = split.frames[0]
    count = frame.nbytes
    owner, first = _owner(frame, hand_on)
    if owner is not None:
        handle = Handle(owner.own_location(), 0, first, count, count, split.header)
        return SharedArray(handle, owner, split.copied_bytes)
    block, flags = _allocate(count, [(0, frame)])
    handle = Handle(block.own_location(), flags, block.data, count, count, split.header)
    return SharedArray(handle, block, count)


def share_buffers(
    frames: Sequence[Array], header: bytes = b"", kind: int = 0, hand_on: bool = True
) -> Shared:
    """Share buffers in one block, behind an index; :func:`zerocopy.shared.reading.open_frames` opens them.

    Without a header the buffers are those of an object that only the sender and the reader can restore.
    """
    owners: dict[Any, int] = {}
    places = [_owner(frame, hand_on) for frame in frames]
    for owner, _ in places:
        if owner is not None:
            owners.setdefault(owner, len(owners))
    at = index_bytes(header, len(owners), len(frames))
    entries, written = [], []
    for frame, (owner, first) in zip(frames, places, strict=True):
        if owner is not None:
            entries.append((owners[owner], first, frame.nbytes))
            continue
        at += -at % _ALIGNMENT
        entries.append((SAME_BLOCK, at, frame.nbytes))
        if frame.nbytes:
            written.append((at, frame))
        at += frame.nbytes
    packed = pack_index(header, [owner.own_location() for owner in owners], entries)
    block, flags = _allocate(at, [(0, np.frombuffer(packed, np.uint8)), *written])
    nbytes = sum(frame.nbytes for frame in frames)
    handle = Handle(block.own_location(), flags | INDEXED | kind, block.data, at, nbytes, b"")
    copied = sum(frame.nbytes for _, frame in written)
    return _CLASSES[kind](handle, (block, *owners), copied)


def _owner(frame: Array, hand_on: bool) -> tuple[Any, int]:
    """Return the block or mapping that has a frame's bytes as they are now, and the first in its segment.

    None, and 0, if there is no such block.
    """
    first, count = address(frame), frame.nbytes
    owner = addresses.find(first, first + count) if count else None
    if owner is None or not (hand_on or isinstance(owner, Block)) or not owner.can_hand_on(first, count):
        return None, 0
    return owner, first - owner.extent[0]


def _allocate(nbytes: int, frames: Sequence[tuple[int, Array]]) -> tuple[Block, int]:
    """Return a block with the frames, and the flag of its kind."""
    if nbytes <= LARGEST_SMALL:
        try:
            return slabs.take(nbytes, frames), SMALL
        except SharedMemoryError:
            large_blocks.trim()
            return slabs.take(nbytes, frames), SMALL
    return _registered(large_blocks.take(nbytes, frames)), 0


def _registered(block: Block) -> Block:
    addresses.add(*block.extent, block)
    return block


@public
def shared_empty(shape: int | Sequence[int], dtype: Any = "float64") -> Array:
    """Return a new NumPy array whose memory is shared from the start.

    Parameters
    ----------
    shape : int or sequence of int
        The number of elements in each dimension.
    dtype : str or NumPy dtype
        A type without Python objects.

    Returns
    -------
    numpy.ndarray
        Row-major and writable; its content is undefined. ``share`` of it, or of a part without gaps,
        copies nothing.

    Raises
    ------
    SharedMemoryError
        There is no room, or no free file descriptor.
    OptionError, ValueError
        The shape is negative.
    TypeError
        The dtype does not exist or has Python objects.

    Notes
    -----
    A reader sees what this process writes after the handle was made, except in pages to which the
    reader has written.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> a = zc.shared_empty((2, 2), "f4")
    >>> a[:] = 1
    >>> zc.share(a).copied_bytes, zc.share(a[1]).copied_bytes
    (0, 0)
    """
    counts = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if any(count < 0 for count in counts):
        raise OptionError(f"shared_empty({counts}, {dtype!r})", "a dimension is negative", "pass 0 or more")
    element = np.dtype(dtype)
    if element.hasobject:
        raise TypeError(
            f"shared_empty({counts}, {dtype!r}): Python objects cannot be shared; pass a dtype without them"
        )
    nbytes = prod(map(int, counts)) * element.itemsize
    try:
        block = _registered(large_blocks.take(nbytes, committed=True))
    except ZeroCopyError as error:
        raise error.with_context(asked=f"shared_empty({counts}, {dtype!r})") from error.__cause__
    memory: Array = np.ndarray(counts, element, np.asarray(block))
    return memory
