"""Files of weights that tests write without the libraries of their formats."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import zerocopy as zc

#: The names of safetensors for NumPy's types.
NAMES = {
    "bool": "BOOL",
    **{f"{n}{b}": f"{c}{b}" for b in (8, 16, 32, 64) for n, c in (("int", "I"), ("uint", "U"))},
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def entry(array: np.ndarray, first: int) -> dict[str, Any]:
    kind = NAMES[array.dtype.name]
    return {"dtype": kind, "shape": list(array.shape), "data_offsets": [first, first + array.nbytes]}


def file_of(header: Any, data: bytes = b"", multiple: int = 8) -> bytes:
    """Return the bytes of a safetensors file whose tensors start at a multiple of some bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % multiple)
    return len(text).to_bytes(8, "little") + text + data


def safetensors_bytes(
    tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None, multiple: int = 8
) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    data = b""
    for name, array in tensors.items():
        header[name] = entry(array, len(data))
        data += array.tobytes()
    return file_of(header, data, multiple)


def write(path: Path, tensors: Mapping[str, np.ndarray], **options: Any) -> str:
    path.write_bytes(safetensors_bytes(tensors, **options))
    return str(path)


def text(value: str | bytes, order: str = "<") -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(data)) + data


def number(kind: int, form: str, value: Any) -> bytes:
    return struct.pack("<I" + form, kind, value)


def gguf_bytes(
    tensors: Mapping[str, tuple[tuple[int, ...], int, bytes]],
    metadata: Mapping[str, bytes] | None = None,
    alignment: int = 32,
    version: int = 3,
    order: str = "<",
) -> bytes:
    """Return a file with tensors of a shape, a type and bytes."""
    pairs = dict(metadata or {})
    head = b"GGUF" + struct.pack(order + "IQQ", version, len(tensors), len(pairs))
    head += b"".join(text(key, order) + value for key, value in pairs.items())
    data = b""
    for name, (shape, kind, content) in tensors.items():
        data += bytes(-len(data) % alignment)
        head += text(name, order) + struct.pack(f"{order}I{len(shape)}Q", len(shape), *shape[::-1])
        head += struct.pack(order + "IQ", kind, len(data))
        data += content
    return head + bytes(-len(head) % alignment) + data


def model() -> dict[str, np.ndarray]:
    """Return tensors of which each has a multiple of 64 bytes."""
    rng = np.random.default_rng(0)
    return {
        "embed.weight": rng.random((32, 16)).astype("float32"),
        "layer.weight": rng.random((16, 32)).astype(ml_dtypes.bfloat16),
        "layer.bias": rng.random(32).astype("float16"),
    }


def mutated(data: bytes, seed: int) -> bytes:
    """Return a file with a few random changes: flipped, removed, repeated and inserted bytes."""
    rng = np.random.default_rng(seed)
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        # Most changes hit the header.
        place = int(rng.integers(0, max(1, len(changed) if rng.random() < 0.2 else min(len(changed), 300))))
        kind = int(rng.integers(6))
        if kind == 0 and changed:
            changed[place % len(changed)] = int(rng.integers(256))
        elif kind == 1:
            del changed[place : place + int(rng.integers(1, 40))]
        elif kind == 2:
            changed[place:place] = changed[place : place + int(rng.integers(1, 40))]
        elif kind == 3:
            changed[place:place] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 4:
            digits = b'0123456789-.e[]{},:" \\'
            changed[place : place + 1] = bytes([digits[int(rng.integers(len(digits)))]])
        else:
            del changed[int(rng.integers(len(changed) + 1)) :]
    return bytes(changed)


def check(path: Path) -> bool:
    """Load all tensors of a file; return whether it is valid."""
    try:
        weights = zc.open_weights(path, to="numpy")
        read = weights.read()
    except zc.errors.ReadError as error:
        return not str(error)
    for name, array in read.items():
        tensor = weights.tensors[name]
        assert (array.shape, array.dtype) == (tensor.shape, tensor.dtype)
        assert tensor.offset + tensor.nbytes <= os.path.getsize(tensor.file) or tensor.offset < 0
        array.tobytes()
    return True
