"""The header of a GGUF file: metadata, the places of the tensors, then their bytes at aligned offsets.

The format is that of ggml (github.com/ggml-org/ggml, docs/gguf.md), versions 2 and 3. Tensors of quantized
types are loaded as their blocks of bytes. Sizes and types of blocks are those of ``ggml-common.h``.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from zerocopy.errors import ReadError
from zerocopy.weights.file import Tensor, WeightFile, check_shape, element_type, packed_shape
from zerocopy.weights.mistaken import not_of_format

_PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64"}
_PLAIN[30] = "bfloat16"
#: Quantized types: name, elements of a block, bytes of a block.
_BLOCKS = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
#: Types of metadata that have one size, as formats of struct, and the two that do not.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_DEEPEST = 4  # arrays of arrays
_WINDOW = 1 << 20
_MOST_DIMENSIONS = 4  # GGML_MAX_DIMS


def read(file: WeightFile) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the tensors in the order of their bytes, and the metadata.

    Raises
    ------
    ReadError
        The header is not valid.
    FrameworkNotInstalledError
        A tensor has the type bfloat16, and ml_dtypes is not installed.
    """
    header = _Header(file)
    if header.take(4) != b"GGUF":
        raise not_of_format(file, "a GGUF file", "it does not start with GGUF")
    version = header.number("I")
    if version > 0xFFFF:  # of a machine with the other byte order
        header.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in (2, 3):
        raise file.error(f"it has version {version} of the format; open_weights reads versions 2 and 3")
    tensors, pairs = header.number("Q"), header.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = header.text()
        if key in metadata:
            raise file.error(f"its metadata has {key!r:.200} twice")
        metadata[key] = header.value(header.number("I"))
    entries = [_entry(header) for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment <= 0 or alignment % 8:
        raise file.error(f"its general.alignment is {alignment!r:.40}, and not a multiple of 8")
    start = header.place + -header.place % alignment
    placed = sorted((_tensor(file, entry, start, alignment, header.order) for entry in entries), key=_offset)
    if len({tensor.name for tensor in placed}) != len(placed):
        raise file.error("two of its tensors have one name")
    end = start
    for tensor in placed:
        if tensor.nbytes and tensor.offset < end:
            raise file.error(f"the tensor {tensor.name!r:.200} overlaps the one before it")
        end = max(end, tensor.offset + tensor.nbytes)
    return placed, metadata


def _offset(tensor: Tensor) -> tuple[int, int]:
    return tensor.offset, tensor.nbytes


_Entry = tuple[str, tuple[int, ...], int, int]


def _entry(header: _Header) -> _Entry:
    """Return the name, shape, type and offset of a tensor."""
    name, count = header.text(), header.number("I")
    if count > _MOST_DIMENSIONS:
        raise header.file.error(f"the tensor {name!r:.200} has {count:,} dimensions")
    # The format lists the fastest dimension first.
    shape = tuple(header.number("Q") for _ in range(count))[::-1]
    return name, shape, header.number("I"), header.number("Q")


def _tensor(file: WeightFile, entry: _Entry, start: int, alignment: int, order: str) -> Tensor:
    name, shape, kind, offset = entry
    if kind in _PLAIN:
        dtype, packed, as_bytes = element_type(_PLAIN[kind], file.path), "", shape
        if order == ">" and dtype.itemsize > 1:
            if _PLAIN[kind] == "bfloat16":
                why = f"the tensor {name!r:.200} has big-endian bfloat16, which NumPy lacks"
                raise file.error(why, "convert the file to little-endian with gguf-convert-endian")
            dtype = dtype.newbyteorder(">")
    elif kind in _BLOCKS:
        packed, elements, nbytes = _BLOCKS[kind]
        blocks = packed_shape(shape, elements, nbytes)
        if blocks is None:
            raise file.error(f"the tensor {name!r:.200} has rows that are not whole blocks of {packed}")
        dtype, as_bytes = np.dtype("uint8"), blocks
    else:
        raise file.error(f"the tensor {name!r:.200} has the unknown type {kind}")
    if why := check_shape(as_bytes, dtype.itemsize):
        raise file.error(f"the tensor {name!r:.200}: {why}")
    tensor = Tensor(name, dtype, as_bytes, file.path, start + offset, packed, shape if packed else ())
    if offset % alignment or tensor.offset + tensor.nbytes > file.size:
        raise file.error(f"the tensor {name!r:.200} is not at an aligned offset within the file")
    return tensor


class _Header:
    """Fields of a header in their order, read from the file in windows."""

    def __init__(self, file: WeightFile) -> None:
        self.file, self.place, self.order = file, 0, "<"
        self._window, self._start = b"", 0
        self._end = min(file.header_limit(), file.size)

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        if self.place + count > self._end:
            raise self._too_long(self.place + count)
        first = self.place - self._start
        if first + count > len(self._window):
            size = min(max(count, _WINDOW), self.file.size - self.place)
            self._window, self._start = self.file.read_bytes(self.place, size), self.place
            first = 0
        self.place += count
        return self._window[first : first + count]

    def _too_long(self, needed: int) -> ReadError:
        if needed > self.file.size:
            return self.file.error(f"its header does not end within {self.file.size:,} bytes")
        return self.file.above_limit(self.file.size, self._end, f"its header has at least {needed:,} bytes")

    def number(self, kind: str) -> Any:
        """Return the next number, of a format of struct."""
        form = self.order + kind
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        """Return the next text; tokens of some models are not UTF-8."""
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """Return the next value of a type; an array is a list."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY or depth == _DEEPEST:
            raise self.file.error(f"its metadata has a value of type {kind}, or too many nested arrays")
        inner, count = self.number("I"), self.number("Q")
        if inner in _SCALARS:
            form = np.dtype(self.order + _SCALARS[inner])
            return np.frombuffer(self.take(count * form.itemsize), form).tolist()
        return [self.value(inner, depth + 1) for _ in range(count)]
