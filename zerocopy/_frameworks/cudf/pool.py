"""cuDF on a memory pool: it allocates through RMM; its import must not undo the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocopy.errors import Reason
from zerocopy.pool.hook import PoolHook

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


class CuDFHook(PoolHook):
    """``import cudf`` gives CuPy and Numba RMM's plain allocators: they get the pool's back."""

    name = "cudf"
    title = "cuDF"
    rank = 50

    def through(self, pool: Pool) -> str:
        return "rmm"

    def attach(self, pool: Pool) -> str:
        back = pool.refresh()
        what = "RMM's resource of the device"
        return f"{what}; put right after its import: {', '.join(back)}" if back else what

    def detach(self, pool: Pool) -> Reason | None:
        return None
