"""``Descriptor``: where an array lies in CUDA memory, in fields of fixed width; a lease block holds it."""

from __future__ import annotations

import struct
from typing import NamedTuple

from zerocopy.protocols.cuda_ipc import HANDLE_BYTES, UUID_BYTES
from zerocopy.shared.errors import HandleFormatError

_MAGIC = b"ZCCU"
_FIELDS = struct.Struct(f"<4s{UUID_BYTES}s{HANDLE_BYTES}s{HANDLE_BYTES}sQQQ")


class Descriptor(NamedTuple):
    """An array in an allocation of another process.

    Attributes
    ----------
    uuid : bytes
        The device's.
    memory, event : bytes
        The driver's handles of the allocation, and of the event after which the array has its values. In a
        pool `memory` is the allocation's export data.
    size, offset : int
        Bytes of the allocation, and those before the array.
    pool : int
        The number of the pool's offer (:mod:`zerocopy.shared.offers`); 0 for memory of ``cudaMalloc``.
    """

    uuid: bytes
    memory: bytes
    event: bytes
    size: int
    offset: int
    pool: int = 0

    def pack(self) -> bytes:
        """Return the descriptor as bytes."""
        return _FIELDS.pack(_MAGIC, *self)

    @classmethod
    def unpack(cls, data: bytes, nbytes: int) -> Descriptor:
        """Return the descriptor of an array of `nbytes`.

        Raises
        ------
        HandleFormatError
            The bytes are not a descriptor, or the array leaves its allocation.
        """
        if len(data) != _FIELDS.size or data[:4] != _MAGIC:
            raise HandleFormatError("", "its descriptor of CUDA memory is damaged", "share the array again")
        descriptor = cls(*_FIELDS.unpack(data)[1:])
        if descriptor.offset + nbytes > descriptor.size:
            start, size = descriptor.offset, descriptor.size
            why = f"it names {nbytes:,} bytes from byte {start:,} of an allocation of {size:,}"
            raise HandleFormatError("", why, "share the array again")
        return descriptor
