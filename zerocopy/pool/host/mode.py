"""`Mode`: base of the modes of host memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass
from typing import ClassVar

from zerocopy import forks
from zerocopy.errors import PoolUnavailableError, Reason
from zerocopy.formatting.units import format_bytes

#: Held while modes are installed and restored, because they change the whole process.
CHANGING = forks.lock()


@dataclass(frozen=True, slots=True)
class HostStats:
    """Memory of one mode of host memory, in bytes, from `Pool.host_stats`; None where it is not counted.

    Attributes
    ----------
    in_use : int or None
        Allocated and not yet freed.
    kept : int or None
        Freed, and kept for the next allocation.
    peak : int or None
        The most that the mode had taken from the system at once, in use or kept.

    Examples
    --------
    >>> HostStats(4096, 1024, 8192).kept
    1024
    """

    in_use: int | None = None
    kept: int | None = None
    peak: int | None = None


class HostFigures(dict[str, HostStats]):
    """The figures by the name of the mode; notebooks show a table."""

    def _repr_html_(self) -> str:
        from zerocopy.notebooks import html

        rows = [
            (name, *("not counted" if n is None else format_bytes(n) for n in astuple(each)))
            for name, each in self.items()
        ]
        return html.table("Host memory", rows, ("mode", "in use", "kept", "peak"))


class Mode(ABC):
    """One change to the host memory of the whole process."""

    name: ClassVar[str]
    about: ClassVar[str]  # one-line description
    memory: ClassVar[str]  # whose memory it is: modes with the same share their figures
    installed: bool = False

    @abstractmethod
    def check(self) -> Reason | None:
        """Return why this machine or process does not support the mode; None if it does."""

    def install(self) -> None:
        """Put the mode into effect unless it already is."""
        with CHANGING:
            if self.installed:
                return
            reason = self.check()
            if reason is not None:
                raise PoolUnavailableError(f"host={self.name!r}", reason.why, reason.remedy, code=reason.code)
            self._install()
            self.installed = True

    def restore(self) -> str:
        """Undo the mode as far as possible.

        Memory that was allocated in the mode stays valid, and is freed as usual.
        """
        with CHANGING:
            if not self.installed:
                return ""
            self.installed = False
            return self._restore()

    @abstractmethod
    def describe(self) -> str:
        """Return one line about what took effect, and what did not."""

    def trim(self) -> int:
        """Return unused memory to the system; return the number of bytes."""
        return 0

    def stats(self) -> HostStats:
        """Return the bytes in use, kept, and at most; without figures if the mode is not installed."""
        return self._stats() if self.installed else HostStats()

    @abstractmethod
    def keep_at_most(self, limit: int | None) -> None:
        """Limit the memory that is kept for reuse, now and later; None keeps all."""

    @abstractmethod
    def _stats(self) -> HostStats: ...

    @abstractmethod
    def _install(self) -> None: ...

    @abstractmethod
    def _restore(self) -> str: ...
