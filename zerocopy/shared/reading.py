"""How a process opens handles: it maps another process's large block, and copies a small one.

A received object is copied too if mapping it would leave the process short of descriptors or addresses.

No byte is used before the generation has been compared: under a lease, or before and after copying.
`addresses` finds the block or mapping that keeps an address.
"""

from __future__ import annotations

import mmap
import os
import time
from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, ref

import numpy as np

from zerocopy import forks
from zerocopy.errors import HandleFormatError, SharedMemoryError, StaleHandleError, ZeroCopyError
from zerocopy.frames import from_frames
from zerocopy.frames.arrays import parse_array
from zerocopy.frames.header import framework_of as header_framework
from zerocopy.frames.tables import needs_own_framework
from zerocopy.protocols.array_interface import address
from zerocopy.shared.descriptors import object_quota, with_reserve
from zerocopy.shared.handle import (
    INDEXED,
    LARGEST_SMALL,
    SAME_BLOCK,
    SMALL,
    TABLE,
    UNCHANGED,
    Handle,
    Location,
    broker_number,
    host_id,
    unpack_index,
    unpack_names,
)
from zerocopy.shared.linux import fcntl
from zerocopy.shared.segment import HEAD, MAGIC, Array, FileMapping, mappings
from zerocopy.shared.segment_file import KEEP, open_segment

#: Bits of an entry (Linux, "pagemap, from the userspace perspective"): the page is in memory; it is
#: swapped out; it belongs to a file or to shared memory.
_PRESENT, _SWAPPED, _FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))


def was_written(address: int, nbytes: int) -> bool:
    """Whether a page of a private mapping is a copy, because this process wrote to it.

    Also true if the kernel does not give the information.
    """
    first, last = address // mmap.PAGESIZE, (address + nbytes - 1) // mmap.PAGESIZE
    length = 8 * (last - first + 1)
    try:
        fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, length, 8 * first)
        finally:
            os.close(fd)
    except OSError:
        return True
    if len(data) != length:
        return True
    entries = np.frombuffer(data, np.uint64)
    return bool(np.any((entries & (_PRESENT | _SWAPPED) != 0) & (entries & _FILE == 0)))


#: First address, address past the last, owner.
_Entry = tuple[int, int, ref[Any]]
_FIRST = itemgetter(0)
_FEWEST = 1024
# The lock is held for microseconds: after a second, the caller is a finalizer that interrupts the
# thread that holds it. Memory without an entry is copied.
_LOCK_SECONDS = 1.0


class AddressBook:
    """Owners of ranges of addresses, by weak references; a lookup takes the same time for any number.

    Examples
    --------
    >>> class Owner: pass
    >>> owner, book = Owner(), AddressBook()
    >>> book.add(100, 200, owner)
    >>> book.find(150, 200) is owner, book.find(150, 201), book.find(0, 1)
    (True, None, None)
    """

    def __init__(self) -> None:
        self._lock = forks.plain_lock()
        self._entries: list[_Entry] = []
        self._sweep_at = _FEWEST

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, first: int, end: int, owner: Any) -> None:
        """Add an owner of the addresses from `first` up to `end`; earlier owners of them are gone."""
        entry = (first, end, ref(owner))
        if not self._lock.acquire(True, _LOCK_SECONDS):
            return
        try:
            entries = self._entries
            low, high = bisect_left(entries, first, key=_FIRST), bisect_left(entries, end, key=_FIRST)
            if low and entries[low - 1][1] > first:
                low -= 1
            entries[low:high] = [entry]
            if len(entries) >= self._sweep_at:
                entries[:] = [each for each in entries if each[2]() is not None]
                self._sweep_at = max(_FEWEST, 2 * len(entries))
        finally:
            self._lock.release()

    def find(self, first: int, end: int) -> Any:
        """Return the owner of all addresses from `first` up to `end`, or None."""
        if not self._lock.acquire(True, _LOCK_SECONDS):
            return None
        try:
            place = bisect_right(self._entries, first, key=_FIRST) - 1
            entry = self._entries[place] if place >= 0 else None
        finally:
            self._lock.release()
        return entry[2]() if entry is not None and end <= entry[1] else None


#: The copy of a small block is aligned as JAX requires.
_ALIGNMENT = 64
#: An owner holds the exclusive lock only while it checks for leases.
_LEASE_TRIES = 200

#: What keeps shared memory in this process: its own blocks, and mappings of other processes' blocks.
addresses: AddressBook = AddressBook()
#: The mapping of a block, and the copy of bytes of a small block, while a result uses it.
_mappings: WeakValueDictionary[Location, Mapping] = WeakValueDictionary()
_copies: WeakValueDictionary[tuple[Location, int, int], Array] = WeakValueDictionary()
# Re-entrant: a finalizer within the critical section may open a handle.
_lock = forks.lock()


class Mapping(FileMapping):
    """A large block of another process, or of this one, mapped privately under a lease.

    The first write to a page copies the page for this process, because some frameworks cannot mark
    memory as read-only: other processes never see the write, and it does not fault.
    """

    __slots__ = ("_whole", "location")
    location: Location
    #: Its bytes as a read-only array while a result uses it: a slice takes 0.2 us, a new array 1.2 us.
    _whole: ref[Array] | None

    @property
    def extent(self) -> tuple[int, int]:
        """The first address of the mapping, and the address past the last."""
        return self.address, self.address + self.length

    def own_location(self) -> Location:
        """Return where others find the block through this process, also after its owner's end."""
        generation = self.location.generation | 1
        return self.location._replace(
            host=host_id(), pid=os.getpid(), fd=self.fd, generation=generation, broker=broker_number()
        )

    def can_hand_on(self, address: int, length: int) -> bool:
        """Whether the block has the bytes at an address as this process sees them."""
        return self.has_descriptor() and not was_written(address, length)

    def part(self, first: int, count: int) -> Array:
        """Return bytes, read-only.

        Raises
        ------
        HandleFormatError
            They are outside the block's segment.
        """
        check_extent(first, count, self.length)
        whole = None if self._whole is None else self._whole()
        if whole is None:
            whole = np.frombuffer(self, np.uint8)
            whole.flags.writeable = False
            self._whole = ref(whole)
        return whole[first : first + count]


def map_block(location: Location) -> Mapping:
    """Map the block at a location.

    Raises
    ------
    StaleHandleError, OtherHostError, HandleAccessError, SharedMemoryError
    """
    fd = open_segment(location)
    try:
        _lease(fd)
        check_generation(fd, location)
        # The lease ends when the mapping is dropped, which closes the descriptor. The seals keep the size.
        mapped = Mapping.private(fd)
    except BaseException as error:
        os.close(fd)
        if not isinstance(error, (OSError, OverflowError, ValueError)) or isinstance(error, ZeroCopyError):
            raise
        why = f"the kernel did not map the memory: {error}"
        remedy = "raise the limit with ulimit -n or ulimit -v, or drop results that are no longer needed"
        raise SharedMemoryError("", why, remedy) from error
    mapped.location, mapped._whole = location, None
    mappings[id(mapped)] = mapped
    return mapped


def mapping(location: Location) -> Mapping:
    """Return the mapping of a block, which all its handles in this process share while one is in use."""
    known = _mappings.get(location)
    if known is None:
        known = map_block(location)
        with _lock:
            known = _mappings.setdefault(location, known)
        addresses.add(*known.extent, known)
    return known


class _Copies(NamedTuple):
    """A large block of which each part is copied, because it cannot be mapped."""

    location: Location

    def part(self, first: int, count: int) -> Array:
        """Return a copy of bytes."""
        return _aligned(with_reserve(_copy, self.location, first, count), count)


def _own_block(location: Location) -> Mapping | _Copies:
    """Return a block for one object alone, so that writes to it change no other object."""
    # The program needs the other descriptors, such as those of the pipes that it receives from.
    if len(mappings) < object_quota():
        try:
            mapped = map_block(location)
        except SharedMemoryError:  # there are too few descriptors, addresses or mappings
            return _Copies(location)
        addresses.add(*mapped.extent, mapped)
        return mapped
    return _Copies(location)


def read_small(location: Location, offset: int, nbytes: int, own: bool = False) -> Array:
    """Return a copy of bytes of a small block, which the owner may use again at any time.

    The bytes are right if the generation is the same before and after they were read, because an owner
    changes the generation before it writes. All results in this process share one read-only copy;
    `own` returns another, writable one.
    """
    if nbytes > LARGEST_SMALL:
        raise HandleFormatError("", f"it names {nbytes:,} bytes of a small block", UNCHANGED)
    key = (location, offset, nbytes)
    if own:
        return _aligned(with_reserve(_copy, *key), nbytes)
    memory = _copies.get(key)
    if memory is None:
        memory = with_reserve(_copy, *key)
        memory.flags.writeable = False
        with _lock:
            memory = _copies.setdefault(key, memory)
    return _aligned(memory, nbytes)


def _copy(location: Location, offset: int, nbytes: int) -> Array:
    fd = open_segment(location)
    try:
        check_generation(fd, location)
        check_extent(offset, nbytes, os.fstat(fd).st_size)
        # An array with memory of its own: views of it keep it, and none of the views between.
        memory: Array = np.empty(nbytes + _ALIGNMENT, np.uint8)
        rest = _aligned(memory, nbytes).data
        while rest.nbytes:  # one call reads at most 2 GiB (read(2), "NOTES"); the seals keep the size
            count = os.preadv(fd, [rest], offset)
            rest, offset = rest[count:], offset + count
        check_generation(fd, location)
    finally:
        os.close(fd)
    return memory


def _aligned(memory: Array, nbytes: int) -> Array:
    first = -address(memory) % _ALIGNMENT
    return memory[first : first + nbytes]


def check_extent(offset: int, nbytes: int, size: int) -> None:
    """Raise `HandleFormatError` if bytes lie outside the `size` bytes of a segment."""
    if offset + nbytes > size:
        why = f"it names bytes {offset:,} to {offset + nbytes:,} of a segment of {size:,} bytes"
        raise HandleFormatError("", why, UNCHANGED)


def check_generation(fd: int, location: Location) -> None:
    """Raise `StaleHandleError` if the block at a location has other content than its handle."""
    head = os.pread(fd, HEAD.size, location.start) if location.start < 1 << 62 else b""
    magic, generation = HEAD.unpack(head) if len(head) == HEAD.size else (b"", 0)
    if magic != MAGIC or not location.matches(generation):
        raise StaleHandleError("", "its owner has freed the memory, or has reused it", KEEP)


def _lease(fd: int) -> None:
    for attempt in range(_LEASE_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(1e-5 * attempt)
        else:
            return
    raise StaleHandleError("", "its owner has reused the memory", KEEP)


def open_array(handle: Handle) -> Any:
    """Return the array of a handle as a read-only ndarray over the memory, which it keeps.

    An array of a type that NumPy lacks here is returned in its own framework.
    """
    header, frames = _frames(handle)
    layout = parse_array(header)
    is_lacking = layout.standard is not None and layout.dtype is layout.standard.storage
    return from_frames(header, frames, None if is_lacking else "numpy")


def open_table(handle: Handle, target: str = "") -> Any:
    """Return the table or column of a handle over the memory, which it keeps: as an object of pyarrow.

    An object is returned in its own framework if that is the target, or if pyarrow would lose its types or
    its column's name.
    """
    header, frames = _frames(handle)
    own = bool(target) and header_framework(header).partition(".")[0] == target
    return from_frames(header, frames, None if own or needs_own_framework(header) else "pyarrow")


def open_mapping(handle: Handle) -> dict[str, Any]:
    """Return the arrays of a handle by their names: read-only ndarrays over the memory, which they keep."""
    header, frames = _frames(handle)
    headers = unpack_names(header)
    if len(headers) != len(frames):
        raise HandleFormatError("", f"it has {len(headers):,} names for {len(frames):,} arrays", UNCHANGED)
    return {
        name: from_frames(own, [frame], "numpy")
        for (name, own), frame in zip(headers.items(), frames, strict=True)
    }


def open_frames(handle: Handle) -> tuple[bytes, list[Array]]:
    """Return the header and the frames of a handle; writing to the frames changes no other object."""
    header, frames = _frames(handle, own=True)
    for frame in frames:
        frame.flags.writeable = True
    return header, frames


def framework_of(handle: Handle) -> str:
    """Return the framework and form of a handle's object."""
    header = unpack_index(_data(handle).data)[0] if handle.flags & INDEXED else handle.header
    return header_framework(header) or ("pyarrow" if handle.flags & TABLE else "numpy")


def _frames(handle: Handle, own: bool = False) -> tuple[bytes, list[Array]]:
    """Return the header and the frames; `own`: in memory that no other object of this process has."""
    data = _data(handle, own)
    if not handle.flags & INDEXED:
        return handle.header, [data]
    header, blocks, frames = unpack_index(data.data)
    others = [_own_block(block) if own else mapping(block) for block in blocks]
    opened = []
    for block, first, count in frames:
        if block != SAME_BLOCK:
            opened.append(others[block].part(first, count))
            continue
        check_extent(first, count, data.nbytes)
        opened.append(data[first : first + count])
    return header, opened


def _data(handle: Handle, own: bool = False) -> Array:
    """Return the data of a handle's block as bytes, which keep the memory."""
    if handle.flags & SMALL:
        return read_small(handle.location, handle.first, handle.length, own)
    block = _own_block(handle.location) if own else mapping(handle.location)
    return block.part(handle.first, handle.length)
