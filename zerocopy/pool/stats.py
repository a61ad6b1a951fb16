"""What a pool counts: statistics, outstanding allocations (``track=True``), and both for ``with`` blocks."""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from zerocopy import forks
from zerocopy.errors import OptionError
from zerocopy.errors.warning import warn
from zerocopy.formatting import format_bytes, printable
from zerocopy.pool.host import HostStats
from zerocopy.pool.host.c_library import resident

_DEPTH = 16
# Frames of this package do not help to find a leak.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


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
        from zerocopy.formatting import html

        rows = []
        for field in fields(self):
            value, is_bytes = getattr(self, field.name), field.name.endswith("_bytes")
            text = "not counted" if value is None else format_bytes(value) if is_bytes else f"{value:,}"
            rows.append((field.name.replace("_", " "), text))
        return html.table(str(self), rows)


def process_stats() -> Stats:
    """Return the resident memory of this process, now and at most since it began."""
    import resource  # not on Windows, where no pool is supported

    # Kibibytes on Linux, bytes on macOS (getrusage(2)).
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    try:
        current = resident()
    except OSError:  # not Linux
        current = peak
    return Stats(current, max(peak, current))


def host_sum(figures: Mapping[str, HostStats]) -> Stats | None:
    """Return the sum of the modes of host memory; None if none of them counts."""
    known = [each for each in figures.values() if each.in_use is not None]
    if not known:
        return None
    in_use = sum(each.in_use or 0 for each in known)
    held = in_use + sum(each.kept or 0 for each in known)
    return Stats(in_use, max(held, sum(each.peak or 0 for each in known)), held)


@dataclass(slots=True, eq=False)
class Window:
    """A span of time: the figures at its begin, and the peak since."""

    start: Stats
    peak_bytes: int = 0


class StatsRecorder:
    """The windows of one device: the first since installation, and one for each open block.

    A device pool reports its peak since the previous read. Each read is added to all open windows,
    so that blocks may nest, and overlap in threads.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._windows = [Window(Stats(0, 0, total_bytes=0, total_count=0))]
        self._lock = forks.lock()

    def begin(self) -> Window:
        """Open a window."""
        with self._lock:
            window = Window(self._read())
            self._windows.append(window)
            return window

    def end(self, window: Window) -> Stats:
        """Close a window, and return its figures."""
        with self._lock:
            stats = self._stats(window)
            self._windows.remove(window)
            return stats

    def stats(self) -> Stats:
        """Return the figures of the window that was opened last."""
        with self._lock:
            return self._stats(self._windows[-1])

    def overall(self) -> Stats:
        """Return the figures since the pool was installed, also while blocks are open."""
        with self._lock:
            return self._stats(self._windows[0])

    def _read(self) -> Stats:
        peak, now = self._pool.read_peak(), self._pool.stats()
        for window in self._windows:
            window.peak_bytes = max(window.peak_bytes, peak, now.current_bytes)
        return now  # type: ignore[no-any-return]

    def _stats(self, window: Window) -> Stats:
        now, start = self._read(), window.start
        if now.total_bytes is None:  # CUDA's pools count no allocations
            return replace(now, peak_bytes=window.peak_bytes)
        total_bytes = now.total_bytes - (start.total_bytes or 0)
        total_count = (now.total_count or 0) - (start.total_count or 0)
        return replace(now, peak_bytes=window.peak_bytes, total_bytes=total_bytes, total_count=total_count)


@dataclass(frozen=True, slots=True)
class Leak:
    """Outstanding memory: an entry of `Pool.check_leaks`.

    Attributes
    ----------
    nbytes : int
        Size in bytes.
    device : int
        Device, as CUDA numbers them.
    ptr : int or None
        Address; None where only the sum is known, without ``track=True``.
    requester : str
        Import name of the framework that allocated, ``"allocate()"``, or empty if unknown.
    stack : str
        Python stack of the allocation, innermost call last; RMM's own stack if no Python code
        was involved. Empty without ``track=True``.
    number : int
        Sequence number of the recorded allocation, from 1; 0 if it was not recorded.

    Examples
    --------
    >>> print(Leak(1536, 0))
    1.5 KiB on device 0
    >>> print(Leak(1536, 0, 0xD00, "allocate()"))
    1.5 KiB at 0xd00 on device 0, requested by allocate()
    """

    nbytes: int
    device: int
    ptr: int | None = None
    requester: str = ""
    stack: str = ""
    number: int = 0

    def __str__(self) -> str:
        at = f" at {self.ptr:#x}" if self.ptr is not None else ""
        by = f", requested by {self.requester}" if self.requester else ""
        head = f"{format_bytes(self.nbytes)}{at} on device {self.device}{by}"
        return printable(f"{head}\n{self.stack.rstrip()}" if self.stack else head, "\n")


class AllocationTracker:
    """Outstanding allocations by address; safe in threads and in finalizers."""

    def __init__(self) -> None:
        # No lock: each step is one dict operation, and a finalizer may run at any point.
        self._allocations: dict[tuple[int, int | None], Leak] = {}
        self._numbers = itertools.count(1)
        self.number: int = 0

    def record(self, device: int, ptr: int, nbytes: int, requester: str) -> None:
        """Record an allocation with the stack of the first caller outside this package."""
        caller = sys._getframe(1)
        while caller.f_back is not None and caller.f_code.co_filename.startswith(_PACKAGE):
            caller = caller.f_back
        stack = traceback.StackSummary.extract(traceback.walk_stack(caller), limit=_DEPTH)
        stack.reverse()
        self.number = number = next(self._numbers)
        text = "".join(stack.format())
        # Replaces the record of a block that was freed without a call of the pool.
        self._allocations[device, ptr] = Leak(nbytes, device, ptr, requester, text, number)

    def remove(self, device: int, ptr: int | None) -> None:
        """Remove a freed allocation."""
        self._allocations.pop((device, ptr), None)

    def check(self, device: int, ptr: int, nbytes: int) -> None:
        """Raise unless an allocation of that address and size is outstanding."""
        leak = self._allocations.get((device, ptr))
        if leak is None or leak.nbytes != nbytes:
            outstanding = "no allocation at that address is outstanding"
            why = outstanding if leak is None else f"it has {leak.nbytes} bytes"
            asked = f"deallocate({ptr:#x}, {nbytes})"
            raise OptionError(asked, why, "free each allocation once, with its size")

    def find(self, leak: Leak) -> Leak | None:
        """Return the record of an allocation; None if its address was reused with another size."""
        recorded = self._allocations.get((leak.device, leak.ptr))
        return recorded if recorded is not None and recorded.nbytes == leak.nbytes else None

    def prune(self, device: int, outstanding: set[int | None], number: int) -> None:
        """Remove allocations up to `number` that are no longer outstanding."""
        for (at, ptr), leak in self._allocations.copy().items():
            if at == device and ptr not in outstanding and leak.number <= number:
                self.remove(at, ptr)

    def outstanding(self, device: int) -> list[Leak]:
        """Return the recorded allocations of a device."""
        return [leak for (at, _), leak in self._allocations.copy().items() if at == device]

    def totals(self) -> dict[str, int]:
        """Return the outstanding bytes of each requester."""
        sums: dict[str, int] = {}
        for leak in self._allocations.copy().values():
            sums[leak.requester] = sums.get(leak.requester, 0) + leak.nbytes
        return sums


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
    """A block that has begun: `recorders` by device, and `leaks`, which returns the outstanding memory."""

    def __init__(
        self,
        recorders: Mapping[int, StatsRecorder],
        tracker: AllocationTracker | None,
        leaks: Callable[[], list[Leak]],
    ) -> None:
        self._recorders, self._tracker, self._leaks = dict(recorders), tracker, leaks
        self._number = tracker.number if tracker is not None else 0
        held = leaks() if tracker is not None else []
        self._held = {(leak.device, leak.ptr, leak.nbytes) for leak in held}
        self._windows = {device: each.begin() for device, each in recorders.items()}

    def end(self) -> dict[int, Scope]:
        """Return the figures of the block by device."""
        leaks = self._leaks() if self._tracker is not None else None
        return {device: self._end(device, window, leaks) for device, window in self._windows.items()}

    def _end(self, device: int, window: Window, leaks: list[Leak] | None) -> Scope:
        stats = self._recorders[device].end(window)
        if leaks is not None:
            return Scope(stats, [leak for leak in leaks if leak.device == device and self._is_new(leak)])
        growth = stats.current_bytes - window.start.current_bytes
        return Scope(stats, [Leak(growth, device)] if growth > 0 else [])

    def _is_new(self, leak: Leak) -> bool:
        if leak.number:  # decisive even if the address was reused
            return leak.number > self._number
        return (leak.device, leak.ptr, leak.nbytes) not in self._held


def warn_of_leaks(scopes: Mapping[int, Scope]) -> None:
    """Emit a ``ResourceWarning`` for the leaks of a block."""
    leaks = [leak for scope in scopes.values() for leak in scope.leaks]
    if leaks:
        listing = "\n".join(map(str, leaks))
        warn(f"outstanding at the end of the block:\n{listing}", ResourceWarning)
