"""Blocks of rows: between rows and columns one side is always walked with a stride.

Column by column over all rows, each cache line of the rows is fetched once a column. In
blocks that stay in the cache, it is fetched once.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Bytes of a block of rows. Measured, 1M rows x 10 float64 to rows: 34 ms with 20 KiB, 25 with
#: 80 KiB, 20 with 640 KiB, 18 with 1.25 MiB, 20 with 5 MiB, 38 for all rows at once. The second
#: level of the cache has 1 MiB there; with small blocks the calls themselves take the time.
BLOCK = 1 << 20


def blocks(rows: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices that cover rows, each of some :data:`BLOCK` bytes.

    Examples
    --------
    >>> [(s.start, s.stop) for s in blocks(300_000, 8)]
    [(0, 131072), (131072, 262144), (262144, 300000)]
    """
    step = max(1, BLOCK // max(1, row_bytes))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
