"""`Attachment`: how far one framework is attached to the pool, a row of the report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from zerocopy.formatting.printable import printable


class Status(StrEnum):
    """How far the pool is attached to a framework; each member equals its value as a string.

    Examples
    --------
    >>> Status.TOO_LATE == "too_late"
    True
    >>> print(*Status)
    installed env_pending pending_import too_late absent unsupported replaced restored
    """

    #: The framework allocates from the pool.
    INSTALLED = "installed"
    #: The variables are set; the framework reads them when it is imported or first used.
    ENV_PENDING = "env_pending"
    #: The pool is attached as soon as the framework is imported.
    PENDING_IMPORT = "pending_import"
    #: The framework allocated, or read its variables, before the pool was installed.
    TOO_LATE = "too_late"
    #: The framework is not installed on this machine.
    ABSENT = "absent"
    #: The framework cannot use this kind of pool, or this build of it cannot.
    UNSUPPORTED = "unsupported"
    #: Another package has replaced the pool's allocator since.
    REPLACED = "replaced"
    #: The pool was closed, and the framework has its own allocator back.
    RESTORED = "restored"


@dataclass(frozen=True, slots=True)
class Attachment:
    """One framework and the pool: a row of `Pool.report`.

    Attributes
    ----------
    framework : str
        Import name of the framework.
    status : Status
        How far the pool is attached.
    detail : str
        What took effect, or why nothing did.
    remedy : str
        How to fix it; empty if nothing can be done.

    Examples
    --------
    >>> row = Attachment("mine", Status.TOO_LATE, "it has allocated", "install the pool before")
    >>> print(row)
    mine: too_late, it has allocated (install the pool before)
    >>> row.served
    False
    """

    framework: str
    status: Status
    detail: str = ""
    remedy: str = ""

    @property
    def served(self) -> bool:
        """Whether the framework takes, or will take, its memory from the pool."""
        return self.status in (Status.INSTALLED, Status.ENV_PENDING, Status.PENDING_IMPORT)

    def __str__(self) -> str:
        detail = f", {self.detail}" if self.detail else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return printable(f"{self.framework}: {self.status}{detail}{remedy}", "\n")
