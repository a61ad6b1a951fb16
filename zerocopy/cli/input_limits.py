"""Limits of input files: their kind, their size, and their size after decompression.

A compressed file of a few kilobytes can hold terabytes. The sizes here are those that the files
declare, and that their readers allocate.
"""

from __future__ import annotations

import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

#: Default of ``--max-bytes``: 1 GiB, of the file and of its content.
MAX_BYTES = 1 << 30

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # Message.fbs, "MessageHeader"
#: Bytes of one decoded value by Parquet's physical type; of texts, an offset.
_PARQUET_WIDTHS = {"INT64": 8, "DOUBLE": 8, "INT96": 8, "BOOLEAN": 1}


class LimitError(ValueError):
    """A file exceeds a limit; the message is the reason."""


def check_file(path: Path, max_bytes: int) -> None:
    """Refuse a file that is not regular, which may never end, or that is larger than `max_bytes`."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(21, "Is a directory", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise LimitError("it is not a regular file")
    check_size(status.st_size, max_bytes, "it has")


def check_size(nbytes: int, max_bytes: int, what: str) -> None:
    """Refuse a size above `max_bytes`; `what` is the beginning of the message."""
    if nbytes > max_bytes:
        raise LimitError(f"{what} {nbytes:,} bytes, more than the limit of {max_bytes:,}: pass --max-bytes")


def check_archive(path: Path, max_bytes: int) -> None:
    """Refuse a zip archive whose members have more than `max_bytes` after decompression."""
    with zipfile.ZipFile(path) as archive:
        # zipfile reads no more than the size in the directory.
        total = sum(member.file_size for member in archive.infolist())
    check_size(total, max_bytes, "uncompressed it has")


def check_parquet(file: Any, max_bytes: int) -> None:
    """Refuse an open Parquet file whose values need more than `max_bytes`."""
    metadata, total, values = file.metadata, 0, 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            total += max(column.total_uncompressed_size, 0)
            values += max(column.num_values, 0) * _PARQUET_WIDTHS.get(column.physical_type, 4)
    check_size(max(total, values), max_bytes, "uncompressed it has")


# -- Arrow's files and streams: "IPC File Format" and "Encapsulated message format" ----------


def check_messages(path: Path, max_bytes: int) -> None:
    """Refuse an Arrow file or stream whose batches have more than `max_bytes` after decompression.

    Raises
    ------
    LimitError
        They have, or the messages are malformed.
    """
    total = 0
    with path.open("rb") as file:
        is_file = file.read(len(_MAGIC)) == _MAGIC
        try:
            for nbytes in _file_batches(file) if is_file else _stream_batches(file):
                total += nbytes
                check_size(total, max_bytes, "uncompressed it has at least")
        except (struct.error, IndexError, OverflowError, OSError) as error:
            raise LimitError(f"malformed: its messages cannot be read ({error})") from error


def _file_batches(file: BinaryIO) -> Iterator[int]:
    """Yield the size of each batch in the footer, which may name one batch several times."""
    end = file.seek(0, 2) - len(_MAGIC) - 4
    (length,) = struct.unpack("<i", _read(file, end, 4))
    footer = _Flatbuffer(_read(file, end - length, length))
    root = footer.root()
    for slot in (2, 3):  # Footer.fbs: dictionaries, recordBatches
        start, count = footer.vector(root, slot)
        for i in range(count):
            (offset,) = footer.unpack("<q", start + 24 * i)  # File.fbs, "Block"
            nbytes, _ = _batch(file, offset)
            yield nbytes


def _stream_batches(file: BinaryIO) -> Iterator[int]:
    end, position = file.seek(0, 2), 0
    while position + 4 <= end:
        nbytes, following = _batch(file, position)
        if following <= position:  # the end of the stream
            return
        position = following
        yield nbytes


def _batch(file: BinaryIO, position: int) -> tuple[int, int]:
    """Return the decompressed bytes of the message at a position, and the position after it."""
    (size,) = struct.unpack("<I", _read(file, position, 4))
    position += 4
    if size == _CONTINUATION:
        (size,) = struct.unpack("<i", _read(file, position, 4))
        position += 4
    if not size:
        return 0, 0
    message = _Flatbuffer(_read(file, position, size))
    root = message.root()
    body = position + size
    kind, body_length = message.scalar(root, 1, "<B"), message.scalar(root, 3, "<q")
    following = body + max(body_length, 0)
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return 0, following
    batch = message.table(root, 2)
    if kind == _DICTIONARY_BATCH:
        batch = message.table(batch, 1)
    if not message.slot(batch, 3):  # RecordBatch.compression
        return max(body_length, 0), following
    total = 0
    start, count = message.vector(batch, 2)
    for i in range(count):
        offset, length = message.unpack("<qq", start + 16 * i)
        if length >= 8:  # -1: this buffer is not compressed
            (nbytes,) = struct.unpack("<q", _read(file, body + offset, 8))
            total += length if nbytes < 0 else nbytes
    return total, following


def _read(file: BinaryIO, position: int, count: int) -> bytes:
    if position < 0 or count < 0:
        raise struct.error(f"{count} bytes at position {position}")
    file.seek(position)
    data = file.read(count)
    if len(data) < count:
        raise struct.error("the file ends too early")
    return data


class _Flatbuffer:
    """The few parts of FlatBuffers that Arrow's messages need; offsets outside the bytes raise."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def unpack(self, form: str, position: int) -> tuple[Any, ...]:
        if position < 0:
            raise struct.error(f"position {position}")
        return struct.unpack_from(form, self.data, position)

    def root(self) -> int:
        return int(self.unpack("<I", 0)[0])

    def slot(self, table: int, index: int) -> int:
        """Return the position of a table's field; 0 if it is absent."""
        vtable = table - self.unpack("<i", table)[0]
        if 4 + 2 * index >= self.unpack("<H", vtable)[0]:
            return 0
        (offset,) = self.unpack("<H", vtable + 4 + 2 * index)
        return table + offset if offset else 0

    def scalar(self, table: int, index: int, form: str) -> int:
        position = self.slot(table, index)
        return int(self.unpack(form, position)[0]) if position else 0

    def table(self, table: int, index: int) -> int:
        position = self.slot(table, index)
        if not position:
            raise struct.error("a message has no content")
        return int(position + self.unpack("<I", position)[0])

    def vector(self, table: int, index: int) -> tuple[int, int]:
        """Return the position of a vector's first element, and the number of elements."""
        position = self.slot(table, index)
        if not position:
            return 0, 0
        start = position + self.unpack("<I", position)[0]
        return start + 4, int(self.unpack("<I", start)[0])
