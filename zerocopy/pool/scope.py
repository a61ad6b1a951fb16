"""A ``with`` block over a pool: its peak, its totals and its leaks."""

from __future__ import annotations

from dataclasses import dataclass

from zerocopy.errors.warning import warn
from zerocopy.pool.pool_base import PoolBase
from zerocopy.pool.stats import Stats
from zerocopy.pool.tracker import Leak


@dataclass(frozen=True, slots=True)
class Scope:
    """Figures of a ``with`` block on one device: an entry of `Pool.scopes`.

    Attributes
    ----------
    stats : Stats
        Memory in use at the end of the block. The peak includes memory allocated before the
        block; the totals are the block's own.
    leaks : list of Leak
        Allocations of the block that are outstanding at its end. Without ``track=True``, one
        entry with the growth of the memory in use.

    Examples
    --------
    >>> scope = Scope(Stats(1024, 4096), [Leak(1024, 0)])
    >>> scope.stats.peak_bytes, [leak.nbytes for leak in scope.leaks]
    (4096, [1024])
    """

    stats: Stats
    leaks: list[Leak]


class OpenScope:
    """A block that has begun."""

    def __init__(self, pool: PoolBase) -> None:
        self._pool = pool
        self._number = pool.tracker.number if pool.tracker is not None else 0
        held = pool.leaks() if pool.tracker is not None else []
        self._held = {(leak.device, leak.ptr, leak.nbytes) for leak in held}
        devices = pool.active_devices
        self._before = {device: pool.device_pool(device).stats().current_bytes for device in devices}
        self._windows = {device: pool.recorder(device).begin() for device in devices}

    def end(self) -> dict[int, Scope]:
        """Return the figures of the block by device."""
        leaks = self._pool.leaks() if self._pool.tracker is not None else None
        return {device: self._end(device, window, leaks) for device, window in self._windows.items()}

    def _end(self, device: int, window: int, leaks: list[Leak] | None) -> Scope:
        stats = self._pool.recorder(device).end(window)
        if leaks is not None:
            return Scope(stats, [leak for leak in leaks if leak.device == device and self._is_new(leak)])
        growth = stats.current_bytes - self._before[device]
        return Scope(stats, [Leak(growth, device)] if growth > 0 else [])

    def _is_new(self, leak: Leak) -> bool:
        if leak.number:  # decisive even if the address was reused
            return leak.number > self._number
        return (leak.device, leak.ptr, leak.nbytes) not in self._held


def warn_of_leaks(scopes: dict[int, Scope]) -> None:
    """Emit a ``ResourceWarning`` for the leaks of a block."""
    leaks = [leak for scope in scopes.values() for leak in scope.leaks]
    if leaks:
        listing = "\n".join(map(str, leaks))
        warn(f"outstanding at the end of the block:\n{listing}", ResourceWarning)
