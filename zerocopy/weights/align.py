"""``align``: a copy of a safetensors file in which tensors start at multiples of 64 bytes.

The format allows spaces after the header, and no gaps between tensors. So spaces align the first tensor, and
the order aligns others: those whose size is a multiple of 64 bytes come first.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from zerocopy.loading.errors import ReadError
from zerocopy.protocols.array_interface import ALIGNMENT
from zerocopy.weights import safetensors
from zerocopy.weights.file import MAX_HEADER, Tensor, WeightFile

_CHUNK = 16 << 20


@dataclass(frozen=True, slots=True)
class Alignment:
    """How many tensors of two files start at multiples of 64 bytes.

    Attributes
    ----------
    tensors, before, after : int
        All tensors, those aligned in the original, and those aligned in the copy.
    nbytes, aligned_bytes : int
        Bytes of all tensors, and of those aligned in the copy.
    """

    tensors: int
    before: int
    after: int
    nbytes: int
    aligned_bytes: int


def align(path: str, output: str, pad: bool = False) -> Alignment:
    """Write an aligned copy of a file, compare it with the original, and rename it to its name.

    Parameters
    ----------
    path, output : str
        The file, and the copy; an existing file is replaced when the copy has been verified.
    pad : bool
        Whether tensors of bytes, named ``zerocopy.padding.N``, fill the gaps after tensors of other sizes
        than multiples of 64 bytes. `open_weights` leaves them out; other readers see them.

    Returns
    -------
    Alignment

    Raises
    ------
    ReadError
        The file is not valid, or the copy differs from it.
    OSError
        The copy cannot be written.
    """
    original = WeightFile(path)
    tensors, metadata = safetensors.read(original)
    ordered = sorted(tensors, key=_order)
    entries = _entries(original, ordered, pad)
    folder, name = os.path.split(output)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder or ".")
    except OSError as error:  # its text has the temporary name
        why = f"{error.strerror}; pass -o with an existing folder that you can write to"
        raise OSError(error.errno, why, output) from error
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, original, ordered, entries, metadata)
        shutil.copymode(path, temporary)
        report = _verify(original, tensors, metadata, temporary)
        os.replace(temporary, output)
    except BaseException:
        os.unlink(temporary)
        raise
    return report


def _order(tensor: Tensor) -> tuple[int, int, str]:
    """Return a sort key: the largest power of 2 that divides the size, at most 64, then the size.

    Each tensor then starts at a multiple of that power, which its element's size divides.
    """
    power = min(tensor.nbytes & -tensor.nbytes, ALIGNMENT) or ALIGNMENT
    return -power, -tensor.nbytes, tensor.name


def _entries(original: WeightFile, ordered: list[Tensor], pad: bool) -> dict[str, Any]:
    """Return the entries of the new header, whose types and shapes are those of the original."""
    length = int.from_bytes(original.read_bytes(0, 8), "little")
    header = safetensors.parse_json(original, original.read_bytes(8, length))
    entries: dict[str, Any] = {}
    place = 0
    for tensor in ordered:
        gap = -place % ALIGNMENT
        if pad and gap:
            name = f"{safetensors.PADDING}{len(entries)}"
            entries[name] = {"dtype": "U8", "shape": [gap], "data_offsets": [place, place + gap]}
            place += gap
        kind, shape = header[tensor.name]["dtype"], header[tensor.name]["shape"]
        offsets = [place, place + tensor.nbytes]
        entries[tensor.name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
        place += tensor.nbytes
    return entries


def _write(
    file: BinaryIO,
    original: WeightFile,
    ordered: list[Tensor],
    entries: dict[str, Any],
    metadata: dict[str, Any],
) -> None:
    header = ({"__metadata__": metadata} if metadata else {}) | entries
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    if len(text) > MAX_HEADER:
        raise original.error(f"its aligned header has {len(text):,} bytes, more than the format allows")
    file.write(len(text).to_bytes(8, "little") + text)
    place = 0
    for tensor in ordered:
        first = entries[tensor.name]["data_offsets"][0]
        file.write(bytes(first - place))  # padding
        for part in _parts(original, tensor):
            file.write(part)
        place = first + tensor.nbytes
    file.flush()
    os.fsync(file.fileno())


def _parts(file: WeightFile, tensor: Tensor) -> Iterator[bytes]:
    for start in range(0, tensor.nbytes, _CHUNK):
        yield file.read_bytes(tensor.offset + start, min(_CHUNK, tensor.nbytes - start))


def _verify(original: WeightFile, tensors: list[Tensor], metadata: dict[str, Any], path: str) -> Alignment:
    """Compare a copy with the original: names, types, shapes, bytes and metadata."""
    copy = WeightFile(path)
    copied, own = safetensors.read(copy)
    by_name = {tensor.name: tensor for tensor in copied}
    if by_name.keys() != {tensor.name for tensor in tensors} or own != metadata:
        raise _different(original, "its names or metadata")
    for tensor in tensors:
        other = by_name[tensor.name]
        same_type = (tensor.dtype, tensor.shape, tensor.packed, tensor.packed_shape) == (
            other.dtype,
            other.shape,
            other.packed,
            other.packed_shape,
        )
        pairs = zip(_parts(original, tensor), _parts(copy, other), strict=True)
        if not same_type or any(one != two for one, two in pairs):
            raise _different(original, f"the tensor {tensor.name!r:.200}")
    original.check()
    aligned = [tensor for tensor in copied if _is_aligned(tensor)]
    return Alignment(
        len(tensors),
        sum(map(_is_aligned, tensors)),
        len(aligned),
        sum(tensor.nbytes for tensor in tensors),
        sum(tensor.nbytes for tensor in aligned),
    )


def _is_aligned(tensor: Tensor) -> bool:
    return tensor.offset % ALIGNMENT == 0 or tensor.nbytes == 0


def _different(original: WeightFile, part: str) -> ReadError:
    why = f"the aligned copy differs in {part}, and was removed"
    return original.error(why, "try again; check the disk if it fails again", "changed-file")
