"""Who holds what: allocations that were noted, with the lines of Python that asked for them."""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from dataclasses import dataclass

from zerocopy.errors import PoolOptionError
from zerocopy.pool.sizes import show_size

_DEPTH = 16
# Frames of this package say nothing to who looks for a leak.
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


@dataclass(frozen=True, slots=True)
class Leak:
    """Memory that is outstanding: an entry of `Pool.check_leaks`.

    Attributes
    ----------
    nbytes : int
        How much, in bytes.
    device : int
        On which device, as CUDA numbers them.
    ptr : int or None
        Its address; None where only the sum is known: pools without ``track=True``.
    through : str
        Who asked: a framework's name, ``"allocate()"``, or nothing where it is not known.
    stack : str
        The lines of Python that asked, the last call last; without Python's part in it, RMM's
        own stack. Nothing without ``track=True``.
    number : int
        Which of the allocations that were noted, from 1 on; 0 where it was not.

    Examples
    --------
    >>> print(Leak(1536, 0))
    1.5 KiB on device 0
    >>> print(Leak(1536, 0, 0xD00, "allocate()"))
    1.5 KiB at 0xd00 on device 0, asked for through allocate()
    """

    nbytes: int
    device: int
    ptr: int | None = None
    through: str = ""
    stack: str = ""
    number: int = 0

    def __str__(self) -> str:
        at = f" at {self.ptr:#x}" if self.ptr is not None else ""
        by = f", asked for through {self.through}" if self.through else ""
        head = f"{show_size(self.nbytes)}{at} on device {self.device}{by}"
        return f"{head}\n{self.stack.rstrip()}" if self.stack else head


class Ledger:
    """Notes of allocations, by address; safe to use in threads, and when a finalizer frees."""

    def __init__(self) -> None:
        # No lock: each step is one operation of a dict, and finalizers may come at any time.
        self._notes: dict[tuple[int, int], Leak] = {}
        self._numbers = itertools.count(1)
        self.number = 0

    def note(self, device: int, ptr: int, nbytes: int, through: str) -> None:
        """Write an allocation down, with the stack of who asked from outside."""
        outside = sys._getframe(1)
        while outside.f_back is not None and outside.f_code.co_filename.startswith(_OURS):
            outside = outside.f_back
        stack = traceback.StackSummary.extract(traceback.walk_stack(outside), limit=_DEPTH)
        stack.reverse()
        self.number = number = next(self._numbers)
        self._notes[device, ptr] = Leak(nbytes, device, ptr, through, "".join(stack.format()), number)

    def strike(self, device: int, ptr: int) -> None:
        """Cross a freed allocation out."""
        self._notes.pop((device, ptr), None)

    def check(self, device: int, ptr: int, nbytes: int) -> None:
        """Refuse to have freed what was not noted, or with another size."""
        note = self._notes.get((device, ptr))
        if note is None or note.nbytes != nbytes:
            why = "nothing of that address is out" if note is None else f"it has {note.nbytes} bytes"
            raise PoolOptionError(
                f"deallocate({ptr:#x}, {nbytes})", why, "free once, and with the size that was asked for"
            )

    def find(self, device: int, ptr: int, nbytes: int) -> Leak | None:
        """Return the note about an allocation; None if it was another's, of another size."""
        note = self._notes.get((device, ptr))
        return note if note is not None and note.nbytes == nbytes else None

    def keep(self, device: int, outstanding: set[int], number: int) -> None:
        """Cross out what is not outstanding, of allocations up to a number: others free them."""
        for (at, ptr), note in self._notes.copy().items():
            if at == device and ptr not in outstanding and note.number <= number:
                self._notes.pop((at, ptr), None)

    def outstanding(self, device: int) -> list[Leak]:
        """Return what was noted and not crossed out."""
        return [leak for (at, _), leak in self._notes.copy().items() if at == device]
