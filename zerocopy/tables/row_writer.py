"""Columns with items of one size, written to a row-major matrix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from zerocopy._native import core
from zerocopy.layout.record_type import RecordType, record_type
from zerocopy.layout.transposition import to_rows
from zerocopy.source import Array

#: From this size on, in bytes, NumPy's allocator gets fresh pages from the kernel.
LARGE = 1 << 22


def fill(out: Array, columns: Sequence[Array]) -> None:
    """Write columns with equal lengths and item sizes to `out`, a row-major matrix."""
    if core is not None and out.nbytes < LARGE:
        # 8192 x 28 float32: 68 us instead of 114. Several threads write larger matrices faster.
        core.interleave(out, columns)
        return
    record = _record(len(columns), out.itemsize)
    kind = record.leaves[0].dtype
    to_rows([column.view(kind) for column in columns], record, out.view(record.dtype)[:, 0], None)


@lru_cache(maxsize=64)
def _record(width: int, itemsize: int) -> RecordType:
    """Return the type of a row as a record of equally large values, which the kernels write."""
    return record_type(np.dtype([(f"{k}", f"V{itemsize}") for k in range(width)]))
