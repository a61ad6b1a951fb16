"""`Mode`: base of the modes of host memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from zerocopy import forks
from zerocopy.errors import PoolUnavailableError, Reason

#: Held while modes are installed and restored, because they change the whole process.
CHANGING = forks.lock()


class Mode(ABC):
    """One change to the host memory of the whole process."""

    name: ClassVar[str]
    about: ClassVar[str]  # one-line description
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

    @abstractmethod
    def _install(self) -> None: ...

    @abstractmethod
    def _restore(self) -> str: ...
