"""Host memory of the whole process, ``install_pool(host=...)``: modes, and page-locked memory."""

from __future__ import annotations

from zerocopy.pool.host.modes import MODES, HostFigures, HostStats, Mode, Pinned, parse
from zerocopy.pool.host.page_locked import CudaHostMemory, PinnedPool

__all__ = [
    "MODES",
    "CudaHostMemory",
    "HostFigures",
    "HostStats",
    "Mode",
    "Pinned",
    "PinnedPool",
    "parse",
]
