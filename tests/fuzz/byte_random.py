"""``ByteRandom``: a generator of random numbers whose numbers are the bytes of an input."""

from __future__ import annotations

from random import Random


class ByteRandom(Random):
    """Takes its numbers from bytes, and zeros after their end.

    The builders of ``helpers.hostile`` need a ``Random``. With this one, a fuzzer that changes a byte changes
    one choice of a builder, and keeps the bytes that reach new code.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)  # for `getstate`, which some builders use for a second generator
        self._bytes, self._at = data, 0

    def getrandbits(self, k: int) -> int:
        """Return a number of `k` bits."""
        count = (k + 7) // 8
        part = self._bytes[self._at : self._at + count]
        self._at += count
        return int.from_bytes(part, "little") & ((1 << k) - 1)

    def random(self) -> float:
        """Return a number from 0 up to 1; zeros make a large one, since rare ways have small ones."""
        return (65535 - self.getrandbits(16)) / 65536

    def randbytes(self, n: int) -> bytes:
        """Return the content of memory, which is not of the input: it decides nothing."""
        return super().getrandbits(n * 8).to_bytes(n, "little") if n else b""
