"""``VariableHook``: a framework whose allocator a variable of the environment chooses, once, at its start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zerocopy.errors import Reason
from zerocopy.pool.hook import PoolHook

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


class VariableHook(PoolHook):
    """It shares the driver's pool by its own allocator for that, and takes none from outside.

    Attributes
    ----------
    choice : dict of str to str
        The variables that choose its allocator for the driver's pool.
    manners : dict of str to str
        Those that keep it from taking the card at once where it has no part in the pool.
    allocates : str
        Who allocates in it, as messages have it.
    greed : str
        What it takes of the card without its manners.
    began : str
        What it has done when it has read its variables.
    first : str
        What makes it do that.
    """

    by_driver = True
    choice: ClassVar[dict[str, str]] = {}
    manners: ClassVar[dict[str, str]] = {}
    allocates: str = ""
    greed: str = "the card"
    began: str = ""
    first: str = ""

    def cannot(self, pool: Pool) -> Reason | None:
        if pool.by_rmm:
            return Reason(
                f"{self.allocates} takes no allocator from outside; "
                f"it is only kept from taking {self.greed} at once",
                'kind="driver" is shared with it',
            )
        return None

    def variables(self, pool: Pool, environ: Mapping[str, str]) -> dict[str, str]:
        return dict(self.choice)

    def courtesies(self, pool: Pool) -> dict[str, str]:
        return dict(self.manners)

    def too_late(self, pool: Pool) -> Reason | None:
        if not self.has_read() or self.choice.items() <= os.environ.items():
            return None
        told = ", ".join(f"{name}={value}" for name, value in self.choice.items())
        return Reason(
            f"{self.began}, and read its variables then",
            f"call install_pool() before {self.first}, or set {told}",
        )

    def detach(self, pool: Pool) -> Reason | None:
        return Reason(f"{self.allocates} keeps the allocator that it began with", "end the process")
