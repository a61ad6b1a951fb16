"""What a pool has given out, in figures."""

from __future__ import annotations

from dataclasses import dataclass

from zerocopy.pool.sizes import show_size


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of one device, in bytes, of `Pool.stats`; None where the kind of pool does not count it.

    Attributes
    ----------
    current_bytes : int
        Given out and not yet freed.
    peak_bytes : int
        The most at any time: since the pool was installed, or in a ``with`` block.
    reserved_bytes : int or None
        Taken from the device, what is given out included.
    current_count : int or None
        Allocations that are outstanding.
    total_bytes : int or None
        All that was ever given out.
    total_count : int or None
        All allocations that there were.

    Examples
    --------
    >>> print(Stats(1024, 1 << 20, 2 << 20))
    1 KiB in use, 1 MiB at most, 2 MiB taken from the device
    """

    current_bytes: int
    peak_bytes: int
    reserved_bytes: int | None = None
    current_count: int | None = None
    total_bytes: int | None = None
    total_count: int | None = None

    def __str__(self) -> str:
        text = f"{show_size(self.current_bytes)} in use, {show_size(self.peak_bytes)} at most"
        if self.reserved_bytes is not None:
            text += f", {show_size(self.reserved_bytes)} taken from the device"
        return text


@dataclass(frozen=True, slots=True)
class Segment:
    """What happened between two looks: the most that was out, and what was asked for.

    The totals are None where the kind of pool does not count them.
    """

    peak_bytes: int
    total_bytes: int | None = None
    total_count: int | None = None
