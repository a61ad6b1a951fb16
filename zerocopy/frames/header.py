"""The bytes of a header: a magic number, the version, the kind, and fields that are parsed strictly."""

from __future__ import annotations

import struct

from zerocopy.errors import UnsupportedConversionError

MAGIC = b"ZF"
VERSION = 1
ARRAY, TABLE = b"A", b"T"
_ASKED = "from_frames(header, frames)"
_START = MAGIC + bytes([VERSION])


def start(kind: bytes) -> bytes:
    """Return the first bytes of a header."""
    return _START + kind


def kind_of(header: bytes) -> bytes:
    """Return the kind of a header, or raise for bytes that are not a header of this version."""
    if header[:2] != MAGIC or len(header) < 4:
        raise invalid("the bytes are not a header of frames")
    if header[2] != VERSION:
        raise UnsupportedConversionError(
            _ASKED,
            f"the header has version {header[2]}, and this zerocopy reads version {VERSION}",
            "install the same version of zerocopy on both sides",
            code="protocol-version",
        )
    kind = header[3:4]
    if kind not in (ARRAY, TABLE):
        raise invalid(f"the kind {kind!r} does not exist")
    return kind


def invalid(why: str) -> UnsupportedConversionError:
    """Return the error for a header or frames that do not describe an object."""
    return UnsupportedConversionError(
        _ASKED, why, "pass the header and all frames of to_frames(), unchanged", code="invalid-frames"
    )


def text(value: str) -> bytes:
    """Return a text with its length before it, in two bytes."""
    encoded = value.encode()
    return struct.pack("<H", len(encoded)) + encoded


class Reader:
    """Reads fields one after the other; a field past the end is an error."""

    __slots__ = ("_at", "_bytes")

    def __init__(self, header: bytes) -> None:
        self._bytes, self._at = header, 4

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        part = self._bytes[self._at : self._at + count]
        if len(part) != count:
            raise invalid(f"the header ends after {len(self._bytes)} bytes, within a field")
        self._at += count
        return part

    def unpack(self, layout: str) -> tuple[int, ...]:
        """Return the integers of a ``struct`` layout."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def text(self) -> str:
        """Return a text that `text` wrote."""
        (length,) = self.unpack("<H")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise invalid("a text in the header is not UTF-8") from error

    def rest(self, multiple: int) -> bytes:
        """Return all bytes that are left, of which there must be a multiple of `multiple`."""
        part = self._bytes[self._at :]
        if len(part) % multiple:
            raise invalid(f"the header ends with {len(part)} bytes, which is not a multiple of {multiple}")
        self._at = len(self._bytes)
        return part

    def end(self) -> None:
        """Raise unless all bytes were read."""
        if self._at != len(self._bytes):
            raise invalid(f"the header has {len(self._bytes) - self._at} bytes too many")


def framework_of(header: bytes) -> str:
    """Return the framework and form of a header's object; empty if it had protocols and no framework."""
    kind_of(header)
    return Reader(header).text()
