"""The headers of ``.npy`` files, and of the members of ``.npz`` archives.

Members that are not compressed are aliased where they lie in the archive; zip has no alignment for them.
"""

from __future__ import annotations

import copy
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

from zerocopy.errors import ReadError
from zerocopy.protocols.exporter_errors import as_read_errors
from zerocopy.weights.file import DAMAGED, Array, Tensor, WeightFile, check_shape
from zerocopy.weights.mistaken import not_of_format

_format = np.lib.format
_MAGIC = _format.MAGIC_PREFIX
#: The largest header that NumPy reads from a file without trust in its origin.
_LARGEST = 10_000
#: Codes of errors of one member: the others load, and only the use of that member raises the error.
_OF_MEMBERS = ("python-objects", "unreadable-member")
#: APPNOTE.TXT 4.3.7: the local header of a member, before its name and its extra field.
_LOCAL = 30
#: RFC 1951 compresses 258 bytes into 2 bits at most.
_BEST_RATIO = 1032
#: Bytes to inflate at a time: zipfile makes a copy of them.
_CHUNK = 1 << 20


def read(file: WeightFile) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the array of a ``.npy`` file, under the file's name without its suffix.

    Raises
    ------
    ReadError
        The header is not valid, or the array has Python objects.
    """
    name = os.path.splitext(os.path.basename(file.path))[0]
    with io.BufferedReader(_Reader(file)) as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise not_of_format(file, "a .npy file", "it does not start with NUMPY")
        tensor, end = _tensor(file, stream, name, file.size)
    if end != file.size:
        raise file.error(f"its array ends at byte {end:,}, and the file at {file.size:,}")
    return [tensor], {}


def read_archive(file: WeightFile) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the arrays of a ``.npz`` archive.

    Raises
    ------
    ReadError
        The archive or a header is not valid. The use of a member that is not an array of numbers, or that
        is encrypted, raises it too.
    """
    if not zipfile.is_zipfile(io.BufferedReader(_Reader(file))):
        if file.read_bytes(0, min(2, file.size)) == b"PK":
            raise file.error("it is a zip archive without its end")
        raise not_of_format(file, "a .npz file", "it is not a zip archive")
    with _errors(file):
        archive = zipfile.ZipFile(io.BufferedReader(_Reader(file)))
        members = archive.infolist()
    # Not is_dir(): Python 3.11 asks an empty name for its last character.
    members = [member for member in members if not member.filename.endswith("/")]
    if sum(member.compress_size for member in members) > file.size:
        raise file.error("its members claim more bytes than the archive has")
    tensors = [_member(file, archive, member) for member in members]
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise file.error("two of its members have one name")
    return tensors, {}


def _member(file: WeightFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Tensor:
    """Return one array of an archive; if it cannot be read, a tensor whose use raises the error."""
    try:
        return _array(file, archive, member)
    except ReadError as error:
        if error.code not in _OF_MEMBERS:
            raise
        name = member.filename.removesuffix(".npy")
        return Tensor(name, np.dtype("V0"), (), file.path, -1, read=partial(_raise, error))


def _raise(error: ReadError) -> Array:
    raise copy.copy(error)


def _array(file: WeightFile, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Tensor:
    """Return one array of an archive; an error of this member alone has a code of `_OF_MEMBERS`."""
    name, of_zip = member.filename.removesuffix(".npy"), f"zipfile.ZipFile({file.path!r})"
    if member.flag_bits & 1:
        fix = f"{of_zip}.read({member.filename!r}, pwd=password) decrypts it"
        raise file.error(f"its member {name!r:.200} is encrypted", fix, code="unreadable-member")
    with _errors(file), archive.open(member) as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            fix = f"{of_zip}.read({member.filename!r}) returns its bytes"
            raise file.error(
                f"its member {name!r:.200} is not an array of NumPy", fix, code="unreadable-member"
            )
        tensor, end = _tensor(file, stream, name, member.file_size)
    if end != member.file_size:
        raise file.error(f"its member {name!r:.200} has {member.file_size:,} bytes; its header needs {end:,}")
    if member.compress_type == zipfile.ZIP_STORED:
        local = file.read_bytes(member.header_offset, _LOCAL)
        # The local header has a name and an extra field of its own lengths.
        start = member.header_offset + _LOCAL + sum(np.frombuffer(local[-4:], "<u2").tolist())
        if start + end > file.size or member.compress_size != end:
            raise file.error(f"its member {name!r:.200} is not within the file")
        return _at(tensor, start + tensor.offset)
    if member.compress_type != zipfile.ZIP_DEFLATED:
        fix = f"numpy.load({file.path!r})[{name!r}] reads it"
        raise file.error(
            f"its member {name!r:.200} is compressed by a method that NumPy does not write",
            fix,
            code="unreadable-member",
        )
    if end > _BEST_RATIO * (member.compress_size + 1):
        raise file.error(f"its member {name!r:.200} claims more bytes than its compression can hold")
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
        while done < len(view) and (count := stream.readinto(view[done : done + _CHUNK])):
            done += count
        stream.read(1)  # the checksum is compared at the end
    if done < len(view):
        raise file.error(f"its member {tensor.name!r:.200} ends early")
    order: Any = tensor.order
    return np.ndarray(tensor.shape, tensor.dtype, memory, order=order)


def _tensor(file: WeightFile, stream: Any, name: str, size: int) -> tuple[Tensor, int]:
    """Return the array that a header describes, and its end in a stream of `size` bytes."""
    with _errors(file):
        shape, in_fortran_order, dtype = _header(file, stream, size)
        offset = stream.tell()
    by_numpy = f"numpy.load({file.path!r}, allow_pickle=True)"
    if file.path.lower().endswith(".npz"):
        by_numpy += f"[{name!r}]"
    if dtype.hasobject:
        why = f"the array {name!r:.200} has Python objects, and loading them would run the file's code"
        raise file.error(
            why,
            f"{by_numpy} loads it and runs its code, if you trust the file; or save numbers",
            code="python-objects",
        )
    why = check_shape(shape, dtype.itemsize)
    if dtype.subdtype is not None:
        why = "its data type has dimensions, which NumPy writes as those of the array"
    if why:
        raise file.error(f"the array {name!r:.200}: {why}")
    if _is_uncounted(dtype, shape):
        why = f"the array {name!r:.200} has elements of 0 bytes, so their number cannot be checked"
        raise file.error(why, f"{by_numpy} reads it, if you trust the file", code="unreadable-member")
    end = offset + math.prod(shape) * dtype.itemsize
    order = "F" if in_fortran_order else "C"
    return Tensor(name, dtype, tuple(shape), file.path, offset, order=order), end


def _is_uncounted(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether elements have 0 bytes, so that a file of any size can claim any number of them."""
    if dtype.itemsize == 0:
        return math.prod(shape) > 0
    fields = [field for field, *_ in (dtype.fields or {}).values()]
    return any(
        _is_uncounted(*(field.subdtype or (field, ()))) for field in fields if field.shape or field.itemsize
    )


def _header(file: WeightFile, stream: Any, size: int) -> tuple[Any, bool, np.dtype[Any]]:
    """Return the fields of a header, whose claimed length is checked before it is read."""
    version = tuple(_exactly(stream, 2))
    known = {(1, 0): (2, _format.read_array_header_1_0), (2, 0): (4, _format.read_array_header_2_0)}
    known[3, 0] = known[2, 0]
    if version not in known:
        raise ValueError(f"version {version} of the format is not known")
    digits, read_header = known[version]
    length, limit = int.from_bytes(_exactly(stream, digits), "little"), file.header_limit(_LARGEST)
    if length > limit:
        if length <= size:
            raise file.above_limit(length, limit)
        raise ValueError(f"its header claims {length:,} bytes, more than the limit of {limit:,}")
    text = _exactly(stream, length)
    if version == (3, 0):  # UTF-8; NumPy has no public reader of it, and escapes are the same in latin1
        text = text.decode("utf-8").encode("ascii", "backslashreplace")
    header = io.BytesIO(len(text).to_bytes(digits, "little") + text)
    try:
        return read_header(header, max_header_size=len(text))
    except (MemoryError, RecursionError) as error:  # from ast.literal_eval of a nested header
        raise ValueError(f"the header cannot be parsed: {type(error).__name__}") from error


def _exactly(stream: Any, count: int) -> bytes:
    data: bytes = stream.read(count)
    if len(data) != count:
        raise ValueError("the header is truncated")
    return data


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
