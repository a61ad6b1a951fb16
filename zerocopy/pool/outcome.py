"""What became of one framework: a row of the pool's report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How far the pool has got under a framework; equal to its name as a string.

    Examples
    --------
    >>> Status.TOO_LATE == "too_late"
    True
    >>> print(*Status)
    installed env_pending pending_import too_late absent unsupported replaced restored
    """

    #: It allocates from the pool.
    INSTALLED = "installed"
    #: The variables stand; the framework reads them when it is imported or first used.
    ENV_PENDING = "env_pending"
    #: It is told as soon as somebody imports it.
    PENDING_IMPORT = "pending_import"
    #: It has allocated, or read its variables, before the pool came.
    TOO_LATE = "too_late"
    #: It is not installed on this machine.
    ABSENT = "absent"
    #: It cannot be had under this pool, or not with what is installed.
    UNSUPPORTED = "unsupported"
    #: It was told, and somebody has told it otherwise since.
    REPLACED = "replaced"
    #: The pool was closed, and the framework has its own allocator back.
    RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One framework and the pool: a row of `Pool.report`.

    Attributes
    ----------
    framework : str
        Its import name.
    status : Status
        How far the pool has got.
    what : str
        What took effect, or why it did not.
    remedy : str
        What to do about it, if there is anything.

    Examples
    --------
    >>> row = Outcome("mine", Status.TOO_LATE, "it has allocated", "install the pool before")
    >>> print(row)
    mine: too_late, it has allocated (install the pool before)
    >>> row.served
    False
    """

    framework: str
    status: Status
    what: str = ""
    remedy: str = ""

    @property
    def served(self) -> bool:
        """Whether the framework takes, or is going to take, its memory from the pool."""
        return self.status in (Status.INSTALLED, Status.ENV_PENDING, Status.PENDING_IMPORT)

    def __str__(self) -> str:
        text = (
            f"{self.framework}: {self.status}, {self.what}"
            if self.what
            else f"{self.framework}: {self.status}"
        )
        return f"{text} ({self.remedy})" if self.remedy else text
