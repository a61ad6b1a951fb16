"""`VariableHook`: a framework whose allocator an environment variable selects once, when it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar

from zerocopy.errors import Reason
from zerocopy.pool.hook import PoolHook
from zerocopy.pool.protocol import PoolInterface


class VariableHook(PoolHook):
    """Base for frameworks that can share the driver's pool, but take no external allocator.

    Attributes
    ----------
    allocator_variables : dict of str to str
        Variables that select the allocator for the driver's pool.
    prealloc_variables : dict of str to str
        Variables that stop the framework from preallocating the GPU.
    allocator_owner : str
        Component that allocates, as messages name it.
    default_footprint : str
        What it preallocates by default.
    start_event : str
        Event at which it reads its variables, as a clause: ``"JAX has created its client"``.
    start_trigger : str
        User action that causes the event: ``"the first jax array"``.
    """

    shares_driver_pool = True
    allocator_variables: ClassVar[dict[str, str]] = {}
    prealloc_variables: ClassVar[dict[str, str]] = {}
    allocator_owner: str = ""
    default_footprint: str = "the GPU"
    start_event: str = ""
    start_trigger: str = ""

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
