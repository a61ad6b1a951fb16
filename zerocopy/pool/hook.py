"""What attaches a framework to a pool: `PoolHook`, its `Attachment`, and `Block` for the framework's memory.

Some frameworks read environment variables when they start; others get an allocator through a
call once they are imported. A hook has the part that is specific to its framework.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from typing import Any, ClassVar, NoReturn, Protocol

from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.errors import Reason
from zerocopy.formatting import printable
from zerocopy.interpreter import imports


class Status(StrEnum):
    """How far the pool is attached to a framework; each member equals its value as a string.

    Examples
    --------
    >>> Status.TOO_LATE == "too_late"
    True
    >>> print(*Status)
    installed env_pending pending_import too_late absent unsupported replaced restored
    """

    INSTALLED = "installed"  # the framework allocates from the pool
    ENV_PENDING = "env_pending"  # it reads the variables when it is imported or first used
    PENDING_IMPORT = "pending_import"  # the pool is attached as soon as it is imported
    TOO_LATE = "too_late"  # it allocated, or read its variables, before the pool was installed
    ABSENT = "absent"  # it is not installed on this machine
    UNSUPPORTED = "unsupported"  # it cannot use this kind of pool, or this build of it cannot
    REPLACED = "replaced"  # another package has replaced the pool's allocator since
    RESTORED = "restored"  # the pool was closed, and it has its own allocator back


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


class PoolInterface(Protocol):
    """The part of `Pool` that a `PoolHook` may use. Streams are driver handles: 1 is the legacy default."""

    closed: bool
    devices: tuple[int, ...]
    settings: Any  # `wants(framework)` and `named(framework)` are its ``frameworks=``
    pools: dict[int, Any]  # the allocator of each device on which the pool allocates
    uses_rmm: bool  # whether these are built from RMM's resources
    tracked: bool  # whether the pool records each allocation
    missing_device: Reason | None  # why the pool has no device

    def memory_info(self, device: int) -> tuple[int, int]: ...
    def allocate_for(self, requester: str, nbytes: int, stream: int, device: int) -> int: ...
    def free(self, ptr: int, nbytes: int, stream: int, device: int) -> None: ...
    def record(self, device: int, ptr: int, nbytes: int, requester: str) -> None: ...
    def refuse(self, nbytes: int, device: int, error: MemoryError) -> NoReturn: ...
    def frameworks_freeing_via(self, name: str) -> list[str]: ...
    def refresh(self) -> list[str]: ...


class PoolHook:
    """Base of all hooks. Each pool has its own instances, which may keep the state to restore."""

    name: str = ""  # import name of the framework
    module: str = ""  # module whose import attaches the pool, such as "numba.cuda"; default: `name`
    title: str = ""  # name in messages, such as "CuPy"; default: `name`
    #: Order of attachment: RMM's resources come before the frameworks that allocate via them.
    rank: int = 50
    #: Whether the framework can share only the driver's pool by default, and no RMM resource.
    shares_driver_pool: bool = False
    #: Whether the framework calls the pool for each allocation, which ``track=True`` then records.
    calls_pool: bool = False
    #: Call that limits the framework where no limit of the pool applies: "framework.set_limit()".
    own_limit: str = ""
    #: Component that writes the release threshold of the driver's pools; empty if none does.
    threshold_writer: str = ""

    @property
    def display_name(self) -> str:
        """Name of the framework in messages."""
        return self.title or self.name

    # Whether the pool is possible. Nothing is imported.

    def installed(self) -> bool:
        """Whether the framework can be imported."""
        from zerocopy.framework import is_installed  # imports NumPy, which parsing options does not need

        return is_installed(self.name)

    def lacks_gpu(self) -> Reason | None:
        """Return why this build of the framework has no GPU."""
        return None

    def imported(self) -> bool:
        """Whether the import of the framework has finished."""
        return imports.is_imported(self.module or self.name)

    def in_use(self) -> bool:
        """Whether ``kind="auto"`` considers the framework: imported, or installed for GPUs."""
        return self.imported() or (self.installed() and self.lacks_gpu() is None)

    def unsupported(self, pool: PoolInterface) -> Reason | None:
        """Return why the framework cannot use this kind of pool."""
        return None

    def too_late(self, pool: PoolInterface) -> Reason | None:
        """Return why an imported framework can no longer be attached."""
        return None

    # The environment variables that a framework reads when it starts.

    def allocator_env(self, pool: PoolInterface, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that select the pool."""
        return {}

    def prealloc_env(self, pool: PoolInterface) -> dict[str, str]:
        """Return the variables that stop the framework from preallocating the GPU."""
        return {}

    def has_read_env(self) -> bool:
        """Whether an imported framework has read its variables."""
        return True

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

    # The allocator that a call sets.

    def allocates_via(self, pool: PoolInterface) -> str:
        """Return the name of the hook whose allocator the framework uses; empty if its own."""
        return ""

    def frees_via(self, pool: PoolInterface) -> str:
        """Return the name of the hook whose allocator must still be in place when the framework frees."""
        return ""

    def attach(self, pool: PoolInterface) -> str:
        """Attach the pool to an imported framework; return the effects."""
        return ""

    def is_attached(self, pool: PoolInterface) -> bool:
        """Whether the effect of `attach` is still in place."""
        return True

    def detach(self, pool: PoolInterface) -> Reason | None:
        """Restore the framework's own allocator; return why that is not possible."""
        return None

    def predict(self, pool: PoolInterface, environ: Mapping[str, str]) -> Attachment:
        """Return the effects of an installation; nothing is changed or imported."""
        if not self.installed():
            return Attachment(self.name, Status.ABSENT)
        if pool.missing_device is not None:
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


class VariableHook(PoolHook):
    """Base for frameworks that can share the driver's pool, but take no external allocator."""

    shares_driver_pool = True
    #: Variables that select the allocator for the driver's pool.
    allocator_variables: ClassVar[dict[str, str]] = {}
    #: Variables that stop the framework from preallocating the GPU.
    prealloc_variables: ClassVar[dict[str, str]] = {}
    allocator_owner: str = ""  # component that allocates, as messages name it
    default_footprint: str = "the GPU"  # memory that it preallocates by default
    start_event: str = ""  # when it reads its variables, as a clause: "JAX has created its client"
    start_trigger: str = ""  # user action that causes the event: "the first jax array"

    def unsupported(self, pool: PoolInterface) -> Reason | None:
        if not pool.uses_rmm:
            return None
        return Reason(
            f"{self.allocator_owner} has no interface for an external allocator; "
            f"the pool only stops it from preallocating {self.default_footprint}",
            'use kind="driver", which it can share',
            code="no-external-allocator",
        )

    def allocator_env(self, pool: PoolInterface, environ: Mapping[str, str]) -> dict[str, str]:
        return dict(self.allocator_variables)

    def prealloc_env(self, pool: PoolInterface) -> dict[str, str]:
        return dict(self.prealloc_variables)

    def too_late(self, pool: PoolInterface) -> Reason | None:
        if not self.has_read_env() or self.allocator_variables.items() <= os.environ.items():
            return None
        settings = ", ".join(f"{name}={value}" for name, value in self.allocator_variables.items())
        return Reason(
            f"{self.start_event}, and read its variables then",
            f"call install_pool() before {self.start_trigger}, or set {settings}",
            code="too-late",
        )

    def detach(self, pool: PoolInterface) -> Reason | None:
        return Reason(
            f"{self.allocator_owner} keeps its first allocator until the process ends",
            "end the process",
            code="allocator-in-use",
        )


class Block:
    """One allocation of a pool, freed with its last reference, on the stream on which it was allocated.

    Parameters
    ----------
    stream : int or object
        A handle, or a stream with its handle as ``ptr``, which is kept alive as long as the memory.

    Attributes
    ----------
    ptr, nbytes : int
        Both 0 for an allocation of 0 bytes.
    """

    __slots__ = ("_handle", "_pool", "_stream", "device", "nbytes", "ptr")

    def __init__(self, pool: PoolInterface, nbytes: int, stream: Any, device: int, requester: str) -> None:
        self.ptr: int = 0  # `__del__` reads it if the allocation fails
        self.nbytes: int = nbytes
        self.device: int = device
        self._pool, self._stream = pool, stream
        # 0 means the default stream of the framework's build: the legacy one.
        self._handle = int(getattr(stream, "ptr", stream)) or LEGACY_DEFAULT_STREAM
        if nbytes:
            self.ptr = pool.allocate_for(requester, nbytes, self._handle, device)

    def __del__(self) -> None:
        if self.ptr:
            self._pool.free(self.ptr, self.nbytes, self._handle, self.device)


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
