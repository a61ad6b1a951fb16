"""Statistics of a pool: now, since it was installed, and in each open ``with`` block."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, fields, replace
from typing import Any

from zerocopy import forks
from zerocopy.formatting.units import format_bytes


@dataclass(frozen=True, slots=True)
class Stats:
    """Memory of one device, in bytes, from `Pool.stats`; None where the kind of pool does not count it.

    Attributes
    ----------
    current_bytes : int
        Allocated and not yet freed.
    peak_bytes : int
        Largest `current_bytes` since the pool was installed, or in a ``with`` block.
    reserved_bytes : int or None
        Taken from the device or the system, allocated or free.
    current_count : int or None
        Outstanding allocations.
    total_bytes : int or None
        Sum of all allocations.
    total_count : int or None
        Number of all allocations.

    Examples
    --------
    >>> print(Stats(1024, 1 << 20, 2 << 20))
    1 KiB in use, 1 MiB at most, 2 MiB reserved
    """

    current_bytes: int
    peak_bytes: int
    reserved_bytes: int | None = None
    current_count: int | None = None
    total_bytes: int | None = None
    total_count: int | None = None

    def __str__(self) -> str:
        text = f"{format_bytes(self.current_bytes)} in use, {format_bytes(self.peak_bytes)} at most"
        if self.reserved_bytes is not None:
            text += f", {format_bytes(self.reserved_bytes)} reserved"
        return text

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        from zerocopy.notebooks import html

        rows = []
        for field in fields(self):
            value, is_bytes = getattr(self, field.name), field.name.endswith("_bytes")
            text = "not counted" if value is None else format_bytes(value) if is_bytes else f"{value:,}"
            rows.append((field.name.replace("_", " "), text))
        return html.table(str(self), rows)


@dataclass(frozen=True, slots=True)
class StatsDelta:
    """Peak and totals between two reads; None totals where the kind of pool does not count them."""

    peak_bytes: int
    total_bytes: int | None = None
    total_count: int | None = None

    def __add__(self, other: StatsDelta) -> StatsDelta:
        return StatsDelta(
            max(self.peak_bytes, other.peak_bytes),
            _add(self.total_bytes, other.total_bytes),
            _add(self.total_count, other.total_count),
        )


def process_stats() -> Stats:
    """Return the resident memory of this process, now and at most since it began."""
    import resource  # not on Windows, where no pool is supported

    # Kibibytes on Linux, bytes on macOS (getrusage(2)).
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    try:
        with open("/proc/self/statm") as file:
            current = int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # not Linux
        current = peak
    return Stats(current, max(peak, current))


def _add(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


class StatsRecorder:
    """The windows of one device: the first since installation, and one for each open block.

    A device pool reports its figures since the previous read. Each read is added to all open
    windows, so that blocks may nest, and overlap in threads.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._windows = {0: StatsDelta(0)}
        self._numbers = itertools.count(1)
        self._lock = forks.lock()

    def update(self) -> None:
        """Add the figures since the previous read to all windows."""
        with self._lock:
            delta = self._pool.read_delta()
            self._windows = {number: window + delta for number, window in self._windows.items()}

    def begin(self) -> int:
        """Open a window, and return its number."""
        with self._lock:
            self.update()
            number = next(self._numbers)
            self._windows[number] = StatsDelta(0)
            return number

    def end(self, number: int) -> Stats:
        """Close a window, and return its figures."""
        with self._lock:
            self.update()
            return self._stats(self._windows.pop(number))

    def stats(self) -> Stats:
        """Return the figures of the window that was opened last."""
        with self._lock:
            self.update()
            return self._stats(self._windows[max(self._windows)])

    def overall(self) -> Stats:
        """Return the figures since the pool was installed, also while blocks are open."""
        with self._lock:
            self.update()
            return self._stats(self._windows[0])

    def _stats(self, window: StatsDelta) -> Stats:
        now: Stats = self._pool.stats()
        peak = max(window.peak_bytes, now.current_bytes)
        return replace(now, peak_bytes=peak, total_bytes=window.total_bytes, total_count=window.total_count)
