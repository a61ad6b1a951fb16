"""Outstanding allocations, recorded with the Python stack that requested them (``track=True``)."""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from dataclasses import dataclass

from zerocopy.errors import PoolOptionError
from zerocopy.formatting.printable import printable
from zerocopy.formatting.units import format_bytes

_DEPTH = 16
# Frames of this package do not help to find a leak.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


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
        self.number = 0

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
            raise PoolOptionError(asked, why, "free each allocation once, with its size")

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
