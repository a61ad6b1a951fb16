"""``Handle``: the fields that locate an object in shared memory, and their bytes.

The bytes of a handle are plain fields with a checksum, so that reading them needs no pickle. An object with
several frames begins with an index of them, which has its header instead.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from zerocopy.errors import HandleFormatError, SharedMemoryError

#: Bytes of the boot ID, and of `host_id`.
BOOT_BYTES, _HOST_BYTES = 16, 24
_broker_number = 0
_host_id: bytes | None = None


def no_file_descriptor(error: Exception) -> SharedMemoryError:
    """Return the error for a process, or a machine, without a free file descriptor."""
    why = f"the process has no free file descriptor for shared memory ({error})"
    remedy = "raise the limit with ulimit -n, or close handles and drop results that are no longer needed"
    return SharedMemoryError("", why, remedy, code="no-file-descriptor")


def pid_namespace() -> int:
    """Return the inode of the PID namespace, in which a process number is unique."""
    return os.stat("/proc/self/ns/pid").st_ino


@cache
def _boot_id() -> bytes:
    """Return the 16 random bytes that the kernel chooses at each start; a forked child has them already."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise no_file_descriptor(error) from error
        raise


def host_id() -> bytes:
    """Return bytes that are equal in two processes if a process number means the same in both.

    Returns
    -------
    bytes
        The 16 random bytes that the kernel chooses at each start, the same in all its containers, and the
        inode of the PID namespace (8 bytes).

    Examples
    --------
    >>> len(host_id()), host_id() == host_id()
    (24, True)
    """
    global _host_id
    known = _host_id
    if known is None:
        known = _host_id = _boot_id() + pid_namespace().to_bytes(8, "little")
    return known


def accessible_memory() -> bytes:
    """Return bytes that are equal in two processes that may open each other's memory; empty if unknown.

    The kernel permits it to processes of one user with the same capabilities (ptrace(2), "Ptrace access
    mode checking"), and a process number must mean the same in both.
    """
    try:
        with open("/proc/self/status") as status:
            capabilities = [line.strip() for line in status if line.startswith(("CapPrm:", "CapEff:"))]
        user = f"{VERSION} {os.geteuid()} {os.stat('/proc/self/ns/user').st_ino} {capabilities}"
        return host_id() + user.encode()
    except (OSError, SharedMemoryError):
        return b""  # without /proc, as on other systems than Linux, or without a file descriptor


def broker_number() -> int:
    """Return the random number in the name of this process's broker; its handles carry the number.

    A name made of public facts, such as the process number, could be taken by another user first.
    """
    return _broker_number


def _begin() -> None:
    """In a new process: a forked child can be in another namespace than its parent.

    `host_id` returns another object there, even if the bytes are equal.
    """
    global _broker_number, _host_id
    _broker_number, _host_id = int.from_bytes(os.urandom(8), "little"), None


_begin()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin)


#: Host ID, process, file descriptor, inode, generation, first byte of the block, broker.
_LOCATION = f"{_HOST_BYTES}sIIQQQQ"
_LOCATION_FIELDS = struct.Struct(f"<{_LOCATION}")
LOCATION_BYTES = _LOCATION_FIELDS.size


class Location(NamedTuple):
    """A block of a segment, and the process that has the segment open.

    Attributes
    ----------
    host : bytes
        `host_id` of the process.
    pid, fd : int
        The process, and its file descriptor of the segment.
    inode : int
        The inode of the segment.
    generation : int
        The number in the block's head while the block holds this content. The first number is even,
        and random with 62 bits, so that another process's block does not have the same one. The owner
        adds 1 when it drops the block, and 1 again before it writes other content. An odd number in a
        location means that `pid` is not the owner, but holds a lease or was forked from the owner: the
        block keeps its content after the owner has dropped it.
    start : int
        The first byte of the block's head in the segment.
    broker : int
        `broker_number` of the process.
    """

    host: bytes
    pid: int
    fd: int
    inode: int
    generation: int
    start: int
    broker: int

    def matches(self, generation: int) -> bool:
        """Whether a block with a generation in its head has the content of this location.

        Examples
        --------
        >>> through_owner = Location(bytes(24), 1, 3, 9, 10, 0, 0)
        >>> [through_owner.matches(generation) for generation in (10, 11, 12)]
        [True, False, False]
        >>> through_reader = through_owner._replace(generation=11)
        >>> [through_reader.matches(generation) for generation in (10, 11, 12)]
        [True, True, False]
        """
        expected = self.generation
        return generation == expected or (expected % 2 == 1 and generation == expected - 1)

    def pack(self) -> bytes:
        """Return the fields as bytes."""
        return _LOCATION_FIELDS.pack(*self)

    @classmethod
    def unpack(cls, data: bytes | memoryview, at: int = 0) -> Location:
        """Return the location whose bytes start at position `at`; `data` is long enough."""
        return cls(*_LOCATION_FIELDS.unpack_from(data, at))


MAGIC, VERSION = b"ZCSH", 2
#: Magic number, version, flags, size of the header, size of the object; the location; the first byte of
#: the data in the segment, and the size of the data.
_FIELDS = struct.Struct(f"<4sBBHQ{_LOCATION}QQ")
_CHECKSUM = struct.Struct("<I")
#: The CRC-32 of any bytes followed by their CRC-32.
_RESIDUE = 0x2144DF1C
#: The object is a table or a column.
TABLE = 1
#: The block lies in a slab: readers copy it.
SMALL = 2
#: The data begins with an index of several frames.
INDEXED = 4
#: The array is in CUDA memory; the data is its `zerocopy.shared.cuda.exporting.Descriptor`.
DEVICE = 8
#: The object is a mapping of names to arrays.
MAPPING = 16
#: The most bytes of a small block's data. Copying 64 KiB takes less time than mapping a segment.
LARGEST_SMALL = 64 * 1024
UNCHANGED = "pass the bytes of a handle unchanged: bytes(shared)"


class Handle(NamedTuple):
    """The place and the kind of an object in shared memory.

    Attributes
    ----------
    location : Location
        Its block.
    flags : int
        `TABLE`, `SMALL`, `INDEXED`, `DEVICE` and `MAPPING`.
    first, length : int
        The first byte of its data in the segment, and the size of its data in bytes.
    nbytes : int
        The size of the object in bytes, without its index.
    header : bytes
        The header of `zerocopy.frames`, unless the data is `INDEXED`; then empty.
    """

    location: Location
    flags: int
    first: int
    length: int
    nbytes: int
    header: bytes

    def pack(self) -> bytes:
        """Return the handle as bytes."""
        start = MAGIC, VERSION, self.flags, len(self.header), self.nbytes
        data = _FIELDS.pack(*start, *self.location, self.first, self.length) + self.header
        return data + _CHECKSUM.pack(zlib.crc32(data))


# A handle that arrives again, as in each batch of a loader, takes 0.2 us instead of 1.5 us.
@lru_cache(maxsize=256)
def parse(data: bytes) -> Handle:
    """Return the handle of bytes.

    Raises
    ------
    HandleFormatError
        The bytes are not a handle, are damaged, or have the format of another version.
    """
    if len(data) < _FIELDS.size + _CHECKSUM.size:
        raise _invalid(f"{len(data):,} bytes are too few for a handle")
    fields = _FIELDS.unpack_from(data)
    magic, version, flags, header_bytes, nbytes = fields[:5]
    first, length = fields[-2:]
    if magic != MAGIC:
        raise _invalid("the bytes are not a handle")
    if version != VERSION:
        why = f"the handle has version {version} of the format, and this zerocopy reads version {VERSION}"
        raise _invalid(why, "install the same version of zerocopy in both processes")
    end = _FIELDS.size + header_bytes
    if len(data) != end + _CHECKSUM.size:
        raise _invalid(f"its {len(data):,} bytes do not match the length in it")
    if zlib.crc32(data) != _RESIDUE:
        raise _invalid("its checksum does not match: it was damaged in transit")
    if flags & ~(TABLE | SMALL | INDEXED | DEVICE | MAPPING):
        raise _invalid(f"its flags {flags:#x} are unknown")
    return Handle(Location._make(fields[5:-2]), flags, first, length, nbytes, data[_FIELDS.size : end])


def _invalid(why: str, remedy: str = UNCHANGED) -> HandleFormatError:
    return HandleFormatError("Shared.from_bytes()", why, remedy)


_COUNTS = struct.Struct("<III")
_FRAME = struct.Struct("<IQQ")
#: Stands for the block of the index itself, instead of a position in the list of locations.
SAME_BLOCK = 0xFFFF_FFFF

#: Where a frame lies: the position of its block in the list of locations; its first byte, in the block's
#: segment or counted from the start of the index; its size in bytes.
Frame = tuple[int, int, int]


def pack_index(header: bytes, blocks: Sequence[Location], frames: Sequence[Frame]) -> bytes:
    """Return an index as bytes."""
    parts = [_COUNTS.pack(len(header), len(blocks), len(frames)), header]
    parts += [block.pack() for block in blocks]
    parts += [_FRAME.pack(*frame) for frame in frames]
    return b"".join(parts)


def index_bytes(header: bytes, blocks: int, frames: int) -> int:
    """Return the bytes of an index."""
    return _COUNTS.size + len(header) + blocks * LOCATION_BYTES + frames * _FRAME.size


def unpack_index(data: bytes | memoryview) -> tuple[bytes, list[Location], list[Frame]]:
    """Return the header, the blocks and the frames of an index, which bytes of frames may follow.

    Raises
    ------
    HandleFormatError
        The index is longer than `data`, or refers to a block that it lacks.
    """
    if len(data) < _COUNTS.size:
        raise _damaged()
    length, blocks, frames = _COUNTS.unpack_from(data)
    if len(data) < _COUNTS.size + length + blocks * LOCATION_BYTES + frames * _FRAME.size:
        raise _damaged()
    at = _COUNTS.size
    header = bytes(data[at : at + length])
    at += length
    places = [Location.unpack(data, at + i * LOCATION_BYTES) for i in range(blocks)]
    at += blocks * LOCATION_BYTES
    parts = [_FRAME.unpack_from(data, at + i * _FRAME.size) for i in range(frames)]
    if any(block != SAME_BLOCK and block >= blocks for block, _, _ in parts):
        raise _damaged()
    return header, places, parts


_LENGTHS = struct.Struct("<II")
_NAMES = b"ZCSN"


def pack_names(headers: Mapping[str, bytes]) -> bytes:
    """Return the names and headers of the arrays of a mapping as one header."""
    parts = [_NAMES]
    for name, header in headers.items():
        encoded = name.encode()
        parts += [_LENGTHS.pack(len(encoded), len(header)), encoded, header]
    return b"".join(parts)


def unpack_names(data: bytes) -> dict[str, bytes]:
    """Return the headers by their names.

    Raises
    ------
    HandleFormatError
        The bytes are not such a header, end within a field, or have a name that is not UTF-8.

    Examples
    --------
    >>> unpack_names(pack_names({"a": b"1", "b": b""}))
    {'a': b'1', 'b': b''}
    """
    if data[: len(_NAMES)] != _NAMES:
        raise _damaged()
    headers, at = {}, len(_NAMES)
    while at < len(data):
        if len(data) - at < _LENGTHS.size:
            raise _damaged()
        name, header = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        if len(data) - at < name + header:
            raise _damaged()
        try:
            headers[data[at : at + name].decode()] = data[at + name : at + name + header]
        except UnicodeDecodeError as error:
            raise _damaged() from error
        at += name + header
    return headers


def _damaged() -> HandleFormatError:
    return HandleFormatError("", "the index of the frames of the object is damaged", "share the object again")
