"""One-shot producers: each method returns its capsule once, and later the same capsule or an error.

The Python specifications of DLPack and of Arrow's PyCapsules allow one consumer for each capsule, and do not
promise that an object exports another.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from helpers.hostile.case import Built, memory
from helpers.hostile.dlpack_capsules import capsule
from helpers.hostile.tables import arrow_values, random_array

_TYPES = ["?", "?", "f4", "f8", "i1", "i8", "u1", "u2", "f2", "c8"]
_CODES = {"b": 6, "i": 0, "u": 1, "f": 2, "c": 5}


class _Once:
    """Returns one value for the first call, and afterwards the same value or an error."""

    def __init__(self, value: Any, later: BaseException | None) -> None:
        self._value, self._later, self._calls = value, later, 0

    def _take(self) -> Any:
        self._calls += 1
        if self._calls > 1 and self._later is not None:
            raise self._later
        return self._value


class Tensor(_Once):
    """A tensor that exports one capsule."""

    def __dlpack__(self, **options: Any) -> Any:
        return self._take()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class LegacyTensor(Tensor):
    """A tensor of a producer that is older than the keywords of DLPack 1.0."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return self._take()


class ArrowArray(_Once):
    """An array that exports one pair of capsules."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._take()


class ArrowStream(_Once):
    """A stream that exports one capsule."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._take()


def build(rng: Random) -> Built:
    """Return a valid producer that can be asked once."""
    later = rng.choice([None, BufferError("exported already"), RuntimeError("exported already")])
    if rng.random() < 0.35:
        array = random_array(rng)
        if rng.random() < 0.5:
            return Built(
                ArrowArray(array.__arrow_c_array__(), later),
                f"array of {array.type}, then {later!r}",
                rows=arrow_values(array),
                once=True,
                plain=True,
            )
        import pyarrow as pa

        chunks = pa.chunked_array([array, array])
        producer = ArrowStream(chunks.__arrow_c_stream__(), later)
        return Built(producer, f"stream of {array.type}, then {later!r}", once=True, plain=True)
    dtype = np.dtype(rng.choice(_TYPES))
    shape = rng.choice([(), (1,), (5,), (2, 3), (0,), (3, 1, 2)])
    block = memory(rng, 1024)
    if dtype.kind == "b":
        block &= 1
    count = int(np.prod(shape, dtype=int))
    start = rng.choice([0, 0, 64, dtype.itemsize])
    values = block[start : start + count * dtype.itemsize].view(dtype).reshape(shape)
    version = rng.choice([None, (1, 0), (1, 1)])
    exported = capsule(
        rng,
        shape=list(shape),
        strides=[stride // dtype.itemsize for stride in values.strides],
        dtype=(_CODES[dtype.kind], 8 * dtype.itemsize, 1),
        data=values.ctypes.data,
        version=version,
    )
    cls = LegacyTensor if version is None and rng.random() < 0.3 else Tensor
    text = f"{cls.__name__} {dtype} {shape}, version {version}, then {later!r}"
    return Built(cls(exported, later), text, [block], values.copy(), once=True, plain=True)
