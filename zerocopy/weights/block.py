"""``read_block``: tensors read from their files into one aligned block, in parallel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from zerocopy.protocols.array_interface import ALIGNMENT, address
from zerocopy.weights.file import Array, Tensor, WeightFile

#: The size of one read. Smaller blocks are read without threads, which take longer to start.
_CHUNK = 16 << 20
_MOST_THREADS = 8


def read_block(tensors: Sequence[tuple[WeightFile, Tensor]]) -> list[Array]:
    """Return arrays that each start at a multiple of 64 bytes; they share one new block of memory.

    The bytes are read with ``preadv``, not from a mapping: it takes no page faults of the file, and a file
    that is cut off meanwhile raises an error.

    Raises
    ------
    ReadError
        A file ends too early, or cannot be read.
    """
    starts, total = [], 0
    for _, tensor in tensors:
        starts.append(total)
        total += tensor.nbytes + -tensor.nbytes % ALIGNMENT
    memory = np.empty(total + ALIGNMENT, np.uint8)
    memory = memory[-address(memory) % ALIGNMENT :]
    reads = [
        (file, memory[start + part : start + min(part + _CHUNK, tensor.nbytes)].data, tensor.offset + part)
        for (file, tensor), start in zip(tensors, starts, strict=True)
        for part in range(0, tensor.nbytes, _CHUNK)
    ]
    threads = min(_MOST_THREADS, os.cpu_count() or 1, len(reads))
    if threads < 2 or total <= _CHUNK:
        for file, part, offset in reads:
            file.read_into(part, offset)
    else:
        with ThreadPoolExecutor(threads, "zerocopy-weights") as pool:
            list(pool.map(lambda read: read[0].read_into(read[1], read[2]), reads))
    return [_shaped(memory, start, tensor) for (_, tensor), start in zip(tensors, starts, strict=True)]


def _shaped(memory: Array, start: int, tensor: Tensor) -> Array:
    order: Any = tensor.order
    return np.ndarray(tensor.shape, tensor.dtype, memory[start : start + tensor.nbytes], order=order)
