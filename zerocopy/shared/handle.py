"""``Handle``: the fields that locate an object in shared memory, and their bytes.

The bytes are plain fields with a checksum, so that reading them needs no pickle.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from zerocopy.shared.errors import HandleFormatError
from zerocopy.shared.location import SIZE as LOCATION_BYTES, Location

MAGIC, VERSION = b"ZCSH", 1
#: Magic, version, flags, bytes of the header, bytes of the object.
_START = struct.Struct("<4sBBHQ")
#: First byte of the data in the segment, and its bytes.
_EXTENT = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_FIXED = _START.size + LOCATION_BYTES + _EXTENT.size
#: The object is a table or a column.
TABLE = 1
#: The block lies in a slab: readers copy it.
SMALL = 2
#: The data begins with an index of several frames.
INDEXED = 4
_UNCHANGED = "pass the bytes of a handle unchanged: bytes(shared)"


class Handle(NamedTuple):
    """Where an object lies, and what it is.

    Attributes
    ----------
    location : Location
        Its block.
    flags : int
        `TABLE`, `SMALL` and `INDEXED`.
    first, length : int
        The first byte of its data in the segment, and the bytes of its data.
    nbytes : int
        The bytes of the object, without its index.
    header : bytes
        The header of `zerocopy.frames`, if the data is one frame; else empty.
    """

    location: Location
    flags: int
    first: int
    length: int
    nbytes: int
    header: bytes

    def pack(self) -> bytes:
        """Return the handle as bytes."""
        fields = _START.pack(MAGIC, VERSION, self.flags, len(self.header), self.nbytes)
        data = b"".join((fields, self.location.pack(), _EXTENT.pack(self.first, self.length), self.header))
        return data + _CHECKSUM.pack(zlib.crc32(data))


def parse(data: bytes) -> Handle:
    """Return the handle of bytes.

    Raises
    ------
    HandleFormatError
        The bytes are not a handle, are damaged, or have the format of another version.
    """
    if len(data) < _FIXED + _CHECKSUM.size:
        raise _invalid(f"{len(data):,} bytes are too few for a handle")
    magic, version, flags, header_bytes, nbytes = _START.unpack_from(data)
    if magic != MAGIC:
        raise _invalid("the bytes are not a handle")
    if version != VERSION:
        why = f"the handle has version {version} of the format, and this zerocopy reads version {VERSION}"
        raise _invalid(why, "install the same version of zerocopy in both processes")
    if len(data) != _FIXED + header_bytes + _CHECKSUM.size:
        raise _invalid(f"its {len(data):,} bytes do not match the length in it")
    if zlib.crc32(data[: -_CHECKSUM.size]) != _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)[0]:
        raise _invalid("its checksum does not match: it was damaged on the way")
    if flags & ~(TABLE | SMALL | INDEXED):
        raise _invalid(f"its flags {flags:#x} are unknown")
    location = Location.unpack(data, _START.size)
    first, length = _EXTENT.unpack_from(data, _START.size + LOCATION_BYTES)
    return Handle(location, flags, first, length, nbytes, data[_FIXED : _FIXED + header_bytes])


def _invalid(why: str, remedy: str = _UNCHANGED) -> HandleFormatError:
    return HandleFormatError("Shared.from_bytes()", why, remedy)
