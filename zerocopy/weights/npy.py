"""The headers of ``.npy`` files, and of the members of ``.npz`` archives.

Members that are not compressed are aliased where they lie in the archive; zip has no alignment for them.
"""

from __future__ import annotations

import errno
import io
import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from zerocopy.loading.errors import as_read_errors
from zerocopy.weights.file import DAMAGED, Array, Tensor, WeightFile, check_shape
from zerocopy.weights.mistaken import not_of_format

_MAGIC = np.lib.format.MAGIC_PREFIX
#: The largest header that NumPy reads from a file without trust in its origin.
_LARGEST = 10_000
#: APPNOTE.TXT 4.3.7: the local header of a member, before its name and its extra field.
_LOCAL = 30
#: RFC 1951 compresses 258 bytes into 2 bits at most.
_BEST_RATIO = 1032


def read(file: WeightFile) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the array of a ``.npy`` file, under the file's name without its suffix.

    Raises
    ------
    ReadError
        The header is not valid, or the array has Python objects.
    """
    name = os.path.splitext(os.path.basename(file.path))[0]
    with io.BufferedReader(_Reader(file)) as stream:
        if stream.peek(len(_MAGIC))[: len(_MAGIC)] != _MAGIC:
            raise not_of_format(file, "a .npy file", "it does not start with NUMPY")
        tensor, end = _tensor(file, stream, name)
    if end != file.size:
        raise file.error(f"its array ends at byte {end:,}, and the file at {file.size:,}")
    return [tensor], {}


def read_archive(file: WeightFile) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the arrays of a ``.npz`` archive.

    Raises
    ------
    ReadError
        The archive or a header is not valid, or a member is encrypted, or has Python objects.
    """
    if not zipfile.is_zipfile(io.BufferedReader(_Reader(file))):
        if file.read_bytes(0, min(2, file.size)) == b"PK":
            raise file.error("it is a zip archive without its end")
        raise not_of_format(file, "a .npz file", "it is not a zip archive")
    with _errors(file):
        archive = zipfile.ZipFile(io.BufferedReader(_Reader(file)))
        members = archive.infolist()
    tensors = [_member(file, archive, member) for member in members]
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise file.error("two of its members have one name")
    return tensors, {}


def _member(file: WeightFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Tensor:
    """Return one array of an archive."""
    name = member.filename.removesuffix(".npy")
    with _errors(file), archive.open(member) as stream:
        tensor, end = _tensor(file, stream, name)
    if end != member.file_size:
        raise file.error(f"its member {name!r:.200} has {member.file_size:,} bytes; its header needs {end:,}")
    if member.compress_type == zipfile.ZIP_STORED:
        local = file.read_bytes(member.header_offset, _LOCAL)
        # The local header has a name and an extra field of its own lengths.
        start = member.header_offset + _LOCAL + sum(np.frombuffer(local[-4:], "<u2").tolist())
        if start + end > file.size or member.compress_size != end:
            raise file.error(f"its member {name!r:.200} is not within the file")
        return _at(tensor, start + tensor.offset)
    if member.compress_size > file.size:
        raise file.error(f"its member {name!r:.200} is not within the file")
    if member.compress_type != zipfile.ZIP_DEFLATED or end > _BEST_RATIO * (member.compress_size + 1):
        raise file.error(f"its member {name!r:.200} has another compression than NumPy writes")
    return _at(tensor, -1, partial(_decompressed, file, archive, member, tensor))


def _at(tensor: Tensor, offset: int, read: Any = None) -> Tensor:
    return Tensor(tensor.name, tensor.dtype, tensor.shape, tensor.file, offset, order=tensor.order, read=read)


def _decompressed(
    file: WeightFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo, tensor: Tensor
) -> Array:
    """Read a compressed array; zipfile compares its checksum."""
    memory = np.empty(tensor.nbytes, np.uint8)
    view, done = memory.data, 0
    with _errors(file), archive.open(member) as opened:
        stream: Any = opened  # typeshed's IO lacks readinto
        stream.read(tensor.offset)
        while done < len(view) and (count := stream.readinto(view[done:])):
            done += count
        stream.read(1)  # the checksum is compared at the end
    if done < len(view):
        raise file.error(f"its member {tensor.name!r:.200} ends early")
    order: Any = tensor.order
    return np.ndarray(tensor.shape, tensor.dtype, memory, order=order)


def _tensor(file: WeightFile, stream: Any, name: str) -> tuple[Tensor, int]:
    """Return the array that a header describes, and the byte at which it ends."""
    with _errors(file):
        shape, in_fortran_order, dtype = _header(stream)
        offset = stream.tell()
    if dtype.hasobject:
        why = f"the array {name!r:.200} has Python objects, and loading them would run the file's code"
        raise file.error(why, "save arrays of numbers")
    if why := check_shape(shape, dtype.itemsize):
        raise file.error(f"the array {name!r:.200}: {why}")
    end = offset + math.prod(shape) * dtype.itemsize
    order = "F" if in_fortran_order else "C"
    return Tensor(name, dtype, tuple(shape), file.path, offset, order=order), end


class _Short:
    """A stream for NumPy's readers of headers, which read the claimed length before they check it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, count: int) -> bytes:
        if count > _LARGEST:
            raise ValueError(f"its header claims {count:,} bytes, more than the limit of {_LARGEST:,}")
        data: bytes = self._stream.read(count)
        return data


def _header(stream: Any) -> tuple[Any, bool, np.dtype[Any]]:
    stream = _Short(stream)
    version = np.lib.format.read_magic(stream)
    known = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    known[3, 0] = known[2, 0]  # with names of fields in UTF-8
    if version not in known:
        raise ValueError(f"version {version} of the format is not known")
    try:
        return known[version](stream, max_header_size=_LARGEST)
    except (MemoryError, RecursionError) as error:  # from ast.literal_eval of a nested header
        raise ValueError(f"the header cannot be parsed: {type(error).__name__}") from error


@contextmanager
def _errors(file: WeightFile) -> Iterator[None]:
    with as_read_errors(
        lambda error: file.error(f"NumPy or zipfile raised {type(error).__name__}: {error}", DAMAGED)
    ):
        yield


class _Reader(io.RawIOBase):
    """A file object over an open file, which zipfile reads."""

    def __init__(self, file: WeightFile) -> None:
        self._open, self._place = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        start = (0, self._place, self._open.size)[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "a position before the file")
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, memory: Any) -> int:
        count = max(0, min(len(memory), self._open.size - self._place))
        self._open.read_into(memoryview(memory)[:count], self._place)
        self._place += count
        return count
