"""A ``with`` block over a pool: what was used in it at most, and what is left over."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocopy.pool.ledger import Leak
from zerocopy.pool.stats import Stats

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


@dataclass(frozen=True, slots=True)
class Scope:
    """What happened in a ``with`` block, on one device.

    Attributes
    ----------
    stats : Stats
        Its peak and totals are the block's own, under RMM's kinds; the driver counts for the
        process, and its peak is the block's.
    leaks : list of Leak
        What was asked for in the block and is outstanding at its end.
    """

    stats: Stats
    leaks: list[Leak]


class OpenScope:
    """A block that has begun."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._held = {(leak.ptr, leak.nbytes) for leak in pool.check_leaks()}
        self._before = {device: pool.device_pool(device).begin() for device in pool.served}

    def end(self) -> dict[int, Scope]:
        """Return what happened, by device."""
        return {device: self._ended(device, before) for device, before in self._before.items()}

    def _ended(self, device: int, before: Stats) -> Scope:
        pool = self._pool.device_pool(device)
        now, stats = pool.stats(), pool.end()
        if self._pool.tracked:
            mine = [leak for leak in self._pool.check_leaks() if leak.device == device]
            return Scope(stats, [leak for leak in mine if (leak.ptr, leak.nbytes) not in self._held])
        # RMM counts a scope from nothing; the driver's figures are those of the process.
        more = stats.current_bytes if pool.follows else now.current_bytes - before.current_bytes
        return Scope(stats, [Leak(more, device)] if more > 0 else [])


def warn(scopes: dict[int, Scope]) -> None:
    """Warn of what is left over: a ``ResourceWarning``, which Python shows where it is asked to."""
    leaks = [leak for scope in scopes.values() for leak in scope.leaks]
    if leaks:
        told = "\n".join(map(str, leaks))
        warnings.warn(f"outstanding at the end of the block:\n{told}", ResourceWarning, stacklevel=3)
