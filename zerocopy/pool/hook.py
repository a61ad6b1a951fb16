"""`PoolHook`: how one framework is attached to the pool, and what prevents it.

Some frameworks read environment variables when they start; others get an allocator through a
call once they are imported. A hook implements what is specific to its framework.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import metadata

from zerocopy.errors import Reason
from zerocopy.pool import imports
from zerocopy.pool.attachment import Attachment, Status
from zerocopy.pool.protocol import PoolInterface


class PoolHook:
    """Base of all hooks. Each pool has its own instances, which may keep the state to restore.

    Attributes
    ----------
    name : str
        Import name of the framework.
    module : str
        Module whose import attaches the pool, such as ``"numba.cuda"``. Default: `name`.
    rank : int
        Order of attachment: RMM's resources come before the frameworks that allocate via them.
    title : str
        Name in messages, such as ``"CuPy"``. Default: `name`.
    shares_driver_pool : bool
        Whether the framework can share only the driver's pool by default, and no RMM resource.
    calls_pool : bool
        Whether the framework calls the pool for each allocation, which ``track=True`` then records.
    own_limit : str
        Call that limits the framework where no limit of the pool applies: ``"framework.set_limit()"``.
    threshold_writer : str
        Component that writes the release threshold of the driver's pools; empty if none does.
    pool_kind : str
        Kind of pool that is built from this framework's own memory resources; empty if none.
    """

    name: str = ""
    module: str = ""
    rank: int = 50
    title: str = ""
    shares_driver_pool: bool = False
    calls_pool: bool = False
    own_limit: str = ""
    threshold_writer: str = ""
    pool_kind: str = ""

    @property
    def display_name(self) -> str:
        """Name of the framework in messages."""
        return self.title or self.name

    def unsupported(self, pool: PoolInterface) -> Reason | None:
        """Return why the framework cannot use this kind of pool; nothing is imported."""
        return None

    def allocator_env(self, pool: PoolInterface, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that select the pool, read when the framework starts."""
        return {}

    def prealloc_env(self, pool: PoolInterface) -> dict[str, str]:
        """Return the variables that stop the framework from preallocating the GPU."""
        return {}

    def conflict(self, pool: PoolInterface, environ: Mapping[str, str]) -> Reason | None:
        """Return which of the user's variables contradicts the pool; they are never overridden."""
        for name, value in self.allocator_env(pool, environ).items():
            if environ.get(name, value) != value:
                return Reason(
                    f"the environment has {name}={environ[name]!r}, and the pool needs {value!r}",
                    f"unset {name}, or leave {self.name} out with frameworks=",
                    code="environment-conflict",
                )
        return None

    def too_late(self, pool: PoolInterface) -> Reason | None:
        """Return why an imported framework can no longer be attached."""
        return None

    def allocates_via(self, pool: PoolInterface) -> str:
        """Return the name of the hook whose allocator the framework uses; empty if its own."""
        return ""

    def frees_via(self, pool: PoolInterface) -> str:
        """Return the name of the hook whose allocator must still be in place when the framework frees."""
        return ""

    def has_read_env(self) -> bool:
        """Whether an imported framework has read its variables."""
        return True

    def attach(self, pool: PoolInterface) -> str:
        """Attach the pool to an imported framework; return what took effect."""
        return ""

    def is_attached(self, pool: PoolInterface) -> bool:
        """Whether the effect of `attach` is still in place."""
        return True

    def detach(self, pool: PoolInterface) -> Reason | None:
        """Restore the framework's own allocator; return why that is not possible."""
        return None

    def lacks_gpu(self) -> Reason | None:
        """Return why this build of the framework has no GPU; nothing is imported."""
        return None

    def installed(self) -> bool:
        """Whether the framework can be imported."""
        from zerocopy.framework import is_installed  # imports NumPy, which parsing options does not need

        return is_installed(self.name)

    def imported(self) -> bool:
        """Whether the import of the framework has finished."""
        return imports.is_imported(self.module or self.name)

    def in_use(self) -> bool:
        """Whether ``kind="auto"`` considers the framework: imported, or installed for GPUs."""
        return self.imported() or (self.installed() and self.lacks_gpu() is None)

    def predict(self, pool: PoolInterface, environ: Mapping[str, str]) -> Attachment:
        """Return what installing would do; nothing is changed or imported."""
        if not self.installed():
            return Attachment(self.name, Status.ABSENT)
        if pool.missing_device() is not None:
            return Attachment(self.name, Status.UNSUPPORTED, "no device")
        reason = self.lacks_gpu() or self.unsupported(pool) or self.conflict(pool, environ)
        if reason is not None:
            return Attachment(self.name, Status.UNSUPPORTED, reason.why, reason.remedy)
        variables = self.allocator_env(pool, environ)
        setting = ", ".join(f"{name}={value}" for name, value in variables.items())
        if not self.imported():
            if variables:
                return Attachment(self.name, Status.ENV_PENDING, setting)
            return Attachment(self.name, Status.PENDING_IMPORT, "attached when it is imported")
        reason = self.too_late(pool)
        if reason is not None:
            return Attachment(self.name, Status.TOO_LATE, reason.why, reason.remedy)
        if variables and not self.has_read_env():
            return Attachment(self.name, Status.ENV_PENDING, setting)
        return Attachment(self.name, Status.INSTALLED)

    def current(self, pool: PoolInterface, before: Attachment) -> Attachment:
        """Return the present state of an attachment."""
        if before.status is Status.ENV_PENDING and self.imported() and self.has_read_env():
            for name, value in self.allocator_env(pool, os.environ).items():
                if os.environ.get(name) != value:
                    why = f"{name} was changed to {os.environ.get(name)!r} before it was read"
                    return Attachment(self.name, Status.REPLACED, why)
            return Attachment(self.name, Status.INSTALLED, before.detail)
        if before.status is Status.INSTALLED and not self.is_attached(pool):
            return Attachment(
                self.name,
                Status.REPLACED,
                "another package has replaced the pool's allocator since",
                "pool.refresh() restores the pool's allocator",
            )
        return before


def distribution_version(name: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def join_names(names: Iterable[str]) -> str:
    """Return names joined for a sentence.

    Examples
    --------
    >>> join_names(["a", "b", "c"]), join_names(["a"])
    ('a, b and c', 'a')
    """
    *most, last = [*names] or [""]
    return f"{', '.join(most)} and {last}" if most else last
