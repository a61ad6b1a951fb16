"""A ``with`` block over a pool: what was used in it at most, and what is left over."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocopy.pool.ledger import Leak
from zerocopy.pool.stats import Stats
from zerocopy.pool.timeline import Span

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


@dataclass(frozen=True, slots=True)
class Scope:
    """What happened in a ``with`` block, on one device: an entry of `Pool.scopes`.

    Attributes
    ----------
    stats : Stats
        What is in use at its end; its peak is the most that was in use in the block, what was
        there before included; its totals are the block's.
    leaks : list of Leak
        What was asked for in the block and is outstanding at its end. Without ``track=True`` the
        sum by which more is in use than at its beginning.

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

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._number = pool.ledger.number if pool.ledger is not None else 0
        held = pool.check_leaks() if pool.ledger is not None else []
        self._held = {(leak.device, leak.ptr, leak.nbytes) for leak in held}
        self._before = {device: pool.device_pool(device).stats().current_bytes for device in pool.served}
        self._spans = {device: pool.timeline(device).begin() for device in pool.served}

    def end(self) -> dict[int, Scope]:
        """Return what happened, by device."""
        leaks = self._pool.check_leaks() if self._pool.ledger is not None else None
        return {device: self._ended(device, span, leaks) for device, span in self._spans.items()}

    def _ended(self, device: int, span: Span, leaks: list[Leak] | None) -> Scope:
        stats = self._pool.timeline(device).end(span)
        if leaks is not None:
            return Scope(stats, [leak for leak in leaks if leak.device == device and self._is_new(leak)])
        more = stats.current_bytes - self._before[device]
        return Scope(stats, [Leak(more, device)] if more > 0 else [])

    def _is_new(self, leak: Leak) -> bool:
        if leak.number:  # noted: so it is known when, though an address may have come again
            return leak.number > self._number
        return (leak.device, leak.ptr, leak.nbytes) not in self._held


def warn(scopes: dict[int, Scope]) -> None:
    """Warn of what is left over: a ``ResourceWarning``, which Python shows where it is asked to."""
    leaks = [leak for scope in scopes.values() for leak in scope.leaks]
    if leaks:
        told = "\n".join(map(str, leaks))
        warnings.warn(f"outstanding at the end of the block:\n{told}", ResourceWarning, stacklevel=3)
