"""Devices over host memory: the owner of each address, and the bytes in use."""

from __future__ import annotations

import itertools
import weakref

import numpy as np

from helpers import cuda_stubs

TOTAL = 1 << 37  # bytes of a simulated device: more than any test allocates, less than 4 TiB

#: Handles of created streams: unique, and different from DLPack's numbers.
HANDLES = itertools.count(1001)


class Devices(cuda_stubs.Machine):
    """Devices that know their allocated memory.

    One allocator serves all memory, and freed memory is returned at once. Memory that a pool keeps,
    and memory that is reused while a kernel still reads it, are not simulated.
    """

    def __init__(self, count: int):
        super().__init__()
        self.count = count
        self._blocks: dict[int, tuple[int, int]] = {}

    @property
    def used(self) -> int:
        """Bytes in use on all devices."""
        return sum(size for size, _ in self._blocks.copy().values())

    @property
    def free(self) -> int:
        return TOTAL - self.used

    def allocate(self, nbytes: int, device: int | None = None) -> np.ndarray:
        if nbytes > TOTAL:
            raise MemoryError(f"{nbytes} bytes of {TOTAL}")
        memory = np.zeros(nbytes + 256, np.uint8)
        start = memory.ctypes.data
        self._blocks[start] = memory.nbytes, self.current if device is None else device
        # NumPy frees the memory after this callback, so the address is not reused yet.
        weakref.finalize(memory, self._blocks.pop, start)
        aligned = -start % 256
        return memory[aligned : aligned + nbytes]

    def ordinal(self, ptr: int) -> int | None:
        # Not list(items()), which allocates: a garbage collection may free a block meanwhile.
        for start, (size, device) in self._blocks.copy().items():
            if start <= ptr < start + size:
                return device
        return None
