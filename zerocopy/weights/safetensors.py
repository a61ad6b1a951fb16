"""The header of a safetensors file: 8 bytes of length, JSON, then the bytes of the tensors without gaps.

The checks are those of the format (github.com/huggingface/safetensors, "Format"), because the files come
from the internet: a header that fails one raises `ReadError`.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from zerocopy.weights.file import (
    MAX_HEADER,
    Tensor,
    WeightFile,
    check_shape,
    element_type,
    packed_shape,
)

#: The names of the format, with those of NumPy and ml_dtypes.
_DTYPES = {
    "BOOL": "bool",
    **{
        f"{kind}{bits}": f"{name}{bits}"
        for bits in (8, 16, 32, 64)
        for kind, name in (("I", "int"), ("U", "uint"))
    },
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
#: Types smaller than a byte, which are packed: bits of an element.
_PACKED = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}

#: Tensors that `align` adds to fill gaps; they are not among those of the model.
PADDING = "zerocopy.padding."


def read(file: WeightFile) -> tuple[list[Tensor], dict[str, Any]]:
    """Return the tensors in the order of their bytes, and the metadata.

    Raises
    ------
    ReadError
        The header is not valid.
    FrameworkNotInstalledError
        A tensor has a type of ml_dtypes, which is not installed.
    """
    length = int.from_bytes(file.read_bytes(0, 8), "little")
    if length > MAX_HEADER:
        raise file.error(f"its header claims {length:,} bytes, more than the limit of {MAX_HEADER:,}")
    header = parse_json(file, file.read_bytes(8, length))
    metadata = header.pop("__metadata__", None) or {}
    if type(metadata) is not dict or not all(type(value) is str for value in metadata.values()):
        raise file.error("the __metadata__ of its header is not a mapping of text to text")
    start = 8 + length
    tensors = [_tensor(file, name, entry, start) for name, entry in header.items()]
    tensors.sort(key=lambda tensor: (tensor.offset, tensor.nbytes))
    end = start
    for tensor in tensors:
        if tensor.offset != end:
            relation = "overlaps the one before it" if tensor.offset < end else "has a gap before it"
            raise file.error(f"the tensor {tensor.name!r:.200} {relation}")
        end += tensor.nbytes
    if end != file.size:
        raise file.error(f"its tensors end at byte {end:,}, and the file at {file.size:,}")
    return [tensor for tensor in tensors if not tensor.name.startswith(PADDING)], metadata


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


def _tensor(file: WeightFile, name: str, entry: Any, start: int) -> Tensor:
    """Return one tensor of the header."""

    def refuse(why: str) -> Exception:
        return file.error(f"the tensor {name!r:.200}: {why}")

    if type(entry) is not dict or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise refuse("its entry lacks dtype, shape or data_offsets")
    kind, offsets = entry["dtype"], entry["data_offsets"]
    if type(kind) is not str or (kind not in _DTYPES and kind not in _PACKED):
        raise refuse(f"its dtype is {kind!r:.40}, which the format does not have")
    if type(offsets) is not list or len(offsets) != 2 or not all(type(n) is int for n in offsets):
        raise refuse("its data_offsets are not two numbers")
    first, end = offsets
    if not 0 <= first <= end <= file.size - start:
        raise refuse(f"its bytes {first} to {end} are not in the file's {file.size - start:,}")
    dtype = np.dtype("uint8") if kind in _PACKED else element_type(_DTYPES[kind], file.path)
    if why := check_shape(entry["shape"], dtype.itemsize):
        raise refuse(why)
    shape = tuple(entry["shape"])
    bits = math.prod(shape) * _PACKED.get(kind, 8 * dtype.itemsize)
    if bits != 8 * (end - first):
        raise refuse(f"its dtype and shape need {bits / 8:,} bytes, and it has {end - first:,}")
    if kind not in _PACKED:
        return Tensor(name, dtype, shape, file.path, start + first)
    elements, nbytes = (2, 1) if kind == "F4" else (4, 3)
    as_bytes = packed_shape(shape, elements, nbytes) or (end - first,)
    return Tensor(name, dtype, as_bytes, file.path, start + first, kind, shape)
