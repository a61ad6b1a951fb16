"""Reads and writes safetensors files: 8 bytes of length, a header in JSON, the tensors without gaps.

The checks are those of the format (github.com/huggingface/safetensors, "Format"), because the files come
from the internet: a header that fails one raises `ReadError`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from zerocopy.dtype import by_name
from zerocopy.errors import ReadError
from zerocopy.weights.file import Tensor, WeightFile, check_shape, element_type, packed_shape
from zerocopy.weights.mistaken import not_of_format
from zerocopy.weights.new_file import NewFile


class _Element(NamedTuple):
    """A type of the format: its name in NumPy and ml_dtypes, its bits, and the elements that share bytes."""

    name: str
    bits: int
    group: int = 0


_NAMES = {
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "BF16": "bfloat16",
    "C64": "complex64",
    **{
        f"{kind}{bits}": f"{name}{bits}"
        for bits in (8, 16, 32, 64)
        for kind, name in (("I", "int"), ("U", "uint"))
    },
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
}
_ELEMENTS = {kind: _Element(name, by_name(name).bits) for kind, name in _NAMES.items()}
#: Types smaller than a byte, which are packed.
_ELEMENTS |= {"F4": _Element("", 4, 2), "F6_E2M3": _Element("", 6, 4), "F6_E3M2": _Element("", 6, 4)}
PACKED = frozenset(kind for kind, element in _ELEMENTS.items() if element.group)
_PLACE = itemgetter(0, 1)
#: The types of the format by their standard names; torch's pairs of float4 are its packed type.
KINDS = {name: kind for kind, name in _NAMES.items()} | {"float4_e2m1fn_x2": "F4"}

#: Tensors that are added to fill gaps; they are not among those of the model.
PADDING = "zerocopy.padding."
METADATA = "__metadata__"


class Entry(NamedTuple):
    """A tensor to write: its name, the format's type and shape, and a function that yields its bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    nbytes: int
    parts: Callable[[], Iterable[bytes | memoryview]]


def header_of(
    entries: Sequence[Entry], metadata: Mapping[str, Any], align: int, pad: bool
) -> tuple[bytes, list[tuple[int, Entry]]]:
    """Return a file's bytes before its tensors, and each tensor with the number of zeros before it.

    The format allows spaces after the header, and no gaps between tensors. So spaces align the first tensor,
    and the order aligns others: those whose size is a multiple of `align` bytes come first. The zeros before
    others are tensors themselves, and are added with `pad` only.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    placed, place = [], 0
    for entry in sorted(entries, key=lambda entry: -_power(entry.nbytes, align)):
        gap = -place % align if pad else 0
        if gap:
            offsets = [place, place + gap]
            header[f"{PADDING}{len(header)}"] = {"dtype": "U8", "shape": [gap], "data_offsets": offsets}
        place += gap
        offsets = [place, place + entry.nbytes]
        header[entry.name] = {"dtype": entry.kind, "shape": entry.shape, "data_offsets": offsets}
        placed.append((gap, entry))
        place += entry.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % align)
    return len(text).to_bytes(8, "little") + text, placed


def _power(nbytes: int, align: int) -> int:
    """Return the largest power of 2 up to `align` that divides a size.

    In descending order of it, each tensor starts at a multiple of its own power, and so of its element size.
    """
    return min(nbytes & -nbytes, align) or align


def write(file: NewFile, header: bytes, placed: Iterable[tuple[int, Entry]]) -> None:
    """Write the result of `header_of`."""
    file.write(header)
    for gap, entry in placed:
        file.write(bytes(gap))
        for part in entry.parts():
            file.write(part)
            del part  # before the next array is copied


def read(file: WeightFile) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the tensors in the order of their bytes, and the metadata.

    Raises
    ------
    ReadError
        The header is not valid.
    FrameworkNotInstalledError
        A tensor has a type of ml_dtypes, which is not installed.
    """
    length, limit = int.from_bytes(file.read_bytes(0, 8), "little"), file.header_limit()
    if length > limit:
        if length <= file.size - 8:
            raise file.above_limit(length, limit)
        why = f"its header claims {length:,} bytes, more than the limit of {limit:,}"
        raise not_of_format(file, "a safetensors file", why)
    header = parse_json(file, file.read_bytes(8, length))
    metadata = header.pop(METADATA, None) or {}
    if type(metadata) is not dict or not all(type(value) is str for value in metadata.values()):
        raise file.error("the __metadata__ of its header is not a mapping of text to text")
    start = 8 + length
    placed = sorted([_tensor(file, name, entry, start) for name, entry in header.items()], key=_PLACE)
    last = start
    for first, end, tensor in placed:
        if first != last:
            relation = "overlaps the one before it" if first < last else "has a gap before it"
            raise file.error(f"the tensor {tensor.name!r:.200} {relation}")
        last = end
    if last != file.size:
        raise file.error(f"its tensors end at byte {last:,}, and the file at {file.size:,}")
    return [tensor for _, _, tensor in placed if not tensor.name.startswith(PADDING)], metadata


def parse_json(file: WeightFile, data: bytes) -> dict[str, Any]:
    """Return a JSON object, without duplicate keys and names that are not Unicode."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
        if "\\u" in text:  # JSON can spell halves of surrogate pairs, which have no UTF-8
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        why = f"its JSON cannot be read: {type(error).__name__}: {error}"
        raise file.error(why) from error
    if type(value) is not dict:
        raise file.error("its JSON is not an object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key occurs twice in an object")
    return unique


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _tensor(file: WeightFile, name: str, entry: Any, start: int) -> tuple[int, int, Tensor]:
    """Return the first byte of one tensor of the header, the byte at its end, and the tensor."""
    try:
        kind, shape, (first, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        element = _ELEMENTS[kind]
    except (KeyError, TypeError, ValueError):
        why = "its entry lacks dtype, shape or two data_offsets, or its dtype is not one of the format"
        raise _refused(file, name, why) from None
    if not (type(first) is type(end) is int and 0 <= first <= end <= file.size - start):
        raise _refused(file, name, f"its data_offsets {first!r:.40} to {end!r:.40} are not within the file")
    if why := check_shape(shape, 1):
        raise _refused(file, name, why)
    shape = tuple(shape)
    bits = math.prod(shape) * element.bits
    if bits != 8 * (end - first):
        raise _refused(file, name, f"its dtype and shape need {bits / 8:,} bytes, and it has {end - first:,}")
    place = start + first
    if not element.group:
        return (
            place,
            start + end,
            Tensor(name, element_type(element.name, file.path), shape, file.path, place),
        )
    as_bytes = packed_shape(shape, element.group, element.group * element.bits // 8) or (end - first,)
    return place, start + end, Tensor(name, np.dtype("uint8"), as_bytes, file.path, place, kind, shape)


def _refused(file: WeightFile, name: str, why: str) -> ReadError:
    return file.error(f"the tensor {name!r:.200}: {why}")
