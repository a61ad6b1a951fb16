"""cuDF on a memory pool: it allocates via RMM, and its import replaces other frameworks' allocators."""

from __future__ import annotations

from zerocopy.pool.hook import PoolHook, PoolInterface


class Pool(PoolHook):
    """``import cudf`` sets RMM's plain allocators in CuPy and Numba; the hook attaches the pool again."""

    name = "cudf"
    title = "cuDF"
    rank = 50

    def allocates_via(self, pool: PoolInterface) -> str:
        return "rmm"

    def attach(self, pool: PoolInterface) -> str:
        repaired = pool.refresh()
        detail = "RMM's resource of the device"
        return f"{detail}; attached again after its import: {', '.join(repaired)}" if repaired else detail
