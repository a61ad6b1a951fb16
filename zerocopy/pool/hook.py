"""``PoolHook``: how one framework is put on the pool, and what may stand in the way.

Two ways there are. Some frameworks read *variables* of the environment when they start;
others are told through a call, once they are imported. A framework's hook says what is
its own of either; what is the same for all is here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from zerocopy.errors import Reason
from zerocopy.pool import imports
from zerocopy.pool.outcome import Outcome, Status

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


class PoolHook:
    """Base of all hooks; one for each pool, so it may keep what it has to put back.

    Attributes
    ----------
    name : str
        The framework's import name.
    module : str
        The module that tells it: ``"numba.cuda"``; the framework's own name by default.
    rank : int
        The order in which frameworks are told: RMM's resources before those who take from them.
    title : str
        How people write its name: ``"CuPy"``; the import name by default.
    by_driver : bool
        Whether the driver's pool is what it can share: of RMM's kinds it takes nothing by itself.
    asks : bool
        Whether it asks us for each allocation, so that ``track=True`` has them under any kind.
    own_cap : str
        How it limits itself, where no cap of the pool holds it: ``"framework.set_limit()"``.
    sets_threshold : str
        Who in it writes the release threshold of the driver's pools: nobody by default.
    """

    name: str = ""
    module: str = ""
    rank: int = 50
    title: str = ""
    by_driver: bool = False
    asks: bool = False
    own_cap: str = ""
    sets_threshold: str = ""

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.title or self.name

    # -- what a framework says ----------------------------------------------------

    def cannot(self, pool: Pool) -> Reason | None:
        """Return why the framework cannot have this kind of pool; nothing is imported."""
        return None

    def variables(self, pool: Pool, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what is to stand in the environment before the framework reads it."""
        return {}

    def courtesies(self, pool: Pool) -> dict[str, str]:
        """Return variables that keep a framework that has no part in the pool from taking all memory."""
        return {}

    def conflict(self, pool: Pool, environ: Mapping[str, str]) -> Reason | None:
        """Return what in the environment says otherwise; it is never overruled."""
        for name, value in self.variables(pool, environ).items():
            if environ.get(name, value) != value:
                return Reason(
                    f"the environment has {name}={environ[name]!r}, and the pool needs {value!r}",
                    f"unset {name}, or leave {self.name} out with frameworks=",
                )
        return None

    def too_late(self, pool: Pool) -> Reason | None:
        """Return why an imported framework can no longer be told."""
        return None

    def through(self, pool: Pool) -> str:
        """Return the hook by whose way the framework allocates; nothing if by its own."""
        return ""

    def frees_through(self, pool: Pool) -> str:
        """Return the hook that it is to find as it was when it frees; nothing if its memory needs none."""
        return ""

    def has_read(self) -> bool:
        """Whether an imported framework has read its variables."""
        return True

    def attach(self, pool: Pool) -> str:
        """Tell an imported framework; return what took effect."""
        return ""

    def holds(self, pool: Pool) -> bool:
        """Whether what `attach` did is still so."""
        return True

    def detach(self, pool: Pool) -> Reason | None:
        """Give the framework its own allocator back; return why it cannot be."""
        return None

    def in_use(self) -> bool:
        """Whether ``kind="auto"`` has to reckon with it: imported, or installed for GPUs."""
        return self.imported() or (self.installed() and self.lacks_gpu() is None)

    def lacks_gpu(self) -> Reason | None:
        """Return why this build of the framework has no GPU; nothing is imported."""
        return None

    # -- the same for all ---------------------------------------------------------

    def installed(self) -> bool:
        """Whether it could be imported."""
        if self.name in sys.modules:
            return sys.modules[self.name] is not None
        spec = importlib.util.find_spec(self.name)
        return spec is not None and spec.origin is not None

    def imported(self) -> bool:
        """Whether it has been imported, to its end."""
        return imports.loaded(self.module or self.name)

    def foresee(self, pool: Pool, environ: Mapping[str, str]) -> Outcome:
        """Return what installing would come to; nothing is changed or imported."""
        if not self.installed():
            return Outcome(self.name, Status.ABSENT)
        if pool.no_device() is not None:
            return Outcome(self.name, Status.UNSUPPORTED, "no device")
        reason = self.lacks_gpu() or self.cannot(pool) or self.conflict(pool, environ)
        if reason is not None:
            return Outcome(self.name, Status.UNSUPPORTED, reason.why, reason.remedy)
        if not self.imported():
            waits = Status.ENV_PENDING if self.variables(pool, environ) else Status.PENDING_IMPORT
            return Outcome(self.name, waits, self._waits_for(pool, environ))
        reason = self.too_late(pool)
        if reason is not None:
            return Outcome(self.name, Status.TOO_LATE, reason.why, reason.remedy)
        if self.variables(pool, environ) and not self.has_read():
            return Outcome(self.name, Status.ENV_PENDING, self._waits_for(pool, environ))
        return Outcome(self.name, Status.INSTALLED)

    def _waits_for(self, pool: Pool, environ: Mapping[str, str]) -> str:
        variables = self.variables(pool, environ)
        if variables:
            return ", ".join(f"{name}={value}" for name, value in variables.items()) + ", when it starts"
        return "told when it is imported"

    def now(self, pool: Pool, before: Outcome) -> Outcome:
        """Return what has become of an outcome since."""
        if before.status is Status.ENV_PENDING and self.imported() and self.has_read():
            for name, value in self.variables(pool, os.environ).items():
                if os.environ.get(name) != value:
                    why = f"{name} was changed to {os.environ.get(name)!r} before it was read"
                    return Outcome(self.name, Status.REPLACED, why)
            return Outcome(self.name, Status.INSTALLED, before.what.removesuffix(", when it starts"))
        if before.status is Status.INSTALLED and not self.holds(pool):
            return Outcome(
                self.name,
                Status.REPLACED,
                "somebody has given it another allocator since",
                "pool.refresh() puts the pool's back",
            )
        return before


def hooks() -> list[PoolHook]:
    """Return a fresh hook of RMM and of each framework that has one, in the order in which they are told."""
    from zerocopy.pool.rmm_hook import RMMHook

    return sorted([RMMHook(), *of_frameworks()], key=lambda hook: hook.rank)


def of_frameworks() -> list[PoolHook]:
    """Return a fresh hook of each framework that has one, in the same order."""
    from zerocopy import registry

    return sorted(registry.pool_hooks(), key=lambda hook: int(hook.rank))


def names() -> list[str]:
    """Return the names of the frameworks that can take memory from a pool."""
    return [hook.name for hook in hooks()]
