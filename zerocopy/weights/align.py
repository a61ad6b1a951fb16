"""``align``: a copy of a safetensors file in which tensors start at multiples of 64 bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from zerocopy.errors import ReadError
from zerocopy.protocols.array_interface import ALIGNMENT
from zerocopy.weights import safetensors
from zerocopy.weights.file import MAX_HEADER, Tensor, WeightFile
from zerocopy.weights.new_file import NewFile
from zerocopy.weights.safetensors import Entry

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
    entries = [_entry(original, tensor) for tensor in tensors]
    header, placed = safetensors.header_of(entries, metadata, ALIGNMENT, pad)
    if len(header) - 8 > MAX_HEADER:
        raise original.error(f"its aligned header has {len(header):,} bytes, more than the format allows")
    with NewFile(output, "pass -o with an existing folder that you can write to") as file:
        safetensors.write(file, header, placed)
        file.sync()
        shutil.copymode(path, file.readable)
        report = _verify(original, tensors, metadata, file.readable)
        file.publish()
    return report


def _entry(file: WeightFile, tensor: Tensor) -> Entry:
    parts = partial(_parts, file, tensor)
    if tensor.packed:
        return Entry(tensor.name, tensor.packed, tensor.packed_shape, tensor.nbytes, parts)
    kind = safetensors.KINDS[tensor.dtype.name]
    return Entry(tensor.name, kind, tensor.shape, tensor.nbytes, parts)


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
