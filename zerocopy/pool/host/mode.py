"""What a mode of host memory can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from zerocopy import forks
from zerocopy.errors import PoolUnavailableError, Reason

#: Held while modes are installed and taken back: they change what the whole process shares.
CHANGING = forks.lock()


class Mode(ABC):
    """One thing that can be done to the host memory of the whole process.

    Attributes
    ----------
    name : str
        What ``host=`` calls it.
    about : str
        What it does, in one line.
    installed : bool
        Whether it is in effect.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    installed: bool = False

    @abstractmethod
    def check(self) -> Reason | None:
        """Return why this machine or process cannot have it, and what to do; None if it can."""

    def install(self) -> None:
        """Put it in effect; nothing if it is already.

        Raises
        ------
        PoolUnavailableError
            :meth:`check` says why not. Nothing is changed then.
        """
        with CHANGING:
            if self.installed:
                return
            reason = self.check()
            if reason is not None:
                raise self.unavailable(reason)
            self._install()
            self.installed = True

    def restore(self) -> str:
        """Take it back, as far as that goes; nothing if it is not in effect.

        Memory that was allocated under it stays valid, and is given back as any other.

        Returns
        -------
        str
            What could not be brought back; nothing if all is as it was.
        """
        with CHANGING:
            if not self.installed:
                return ""
            self.installed = False
            return self._restore()

    @abstractmethod
    def describe(self) -> str:
        """Return one line that says what took effect, and what did not."""

    def trim(self) -> int:
        """Give memory that is kept for reuse back to the system, and return how many bytes that was."""
        return 0

    @abstractmethod
    def _install(self) -> None: ...

    @abstractmethod
    def _restore(self) -> str: ...

    def unavailable(self, reason: Reason) -> PoolUnavailableError:
        """Return the error for a reason."""
        return PoolUnavailableError(f"host={self.name!r}", reason.why, reason.remedy)
