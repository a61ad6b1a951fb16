"""JAX on a memory pool: XLA's client for CUDA reads variables when it is made."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING

from zerocopy.errors import Reason
from zerocopy.pool.hook import PoolHook

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool

_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
_ALLOCATOR = {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}


class JAXHook(PoolHook):
    """Its allocator is chosen by a variable, once, when the first array or device is asked for."""

    name = "jax"
    rank = 60

    def lacks_gpu(self) -> Reason | None:
        for name in _PLUGINS:
            try:
                metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
            return None
        return Reason("JAX has no CUDA plugin here", 'pip install "jax[cuda13]", or "jax[cuda12]"')

    def cannot(self, pool: Pool) -> Reason | None:
        if pool.by_rmm:
            return Reason(
                "XLA takes no allocator from outside; it is only kept from taking most of the card at once",
                'kind="driver" is shared with it',
            )
        return None

    def variables(self, pool: Pool, environ: Mapping[str, str]) -> dict[str, str]:
        return dict(_ALLOCATOR)

    def courtesies(self, pool: Pool) -> dict[str, str]:
        # Otherwise it takes three quarters of the card at once (JAX's manual, "GPU memory
        # allocation").
        return {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}

    def has_read(self) -> bool:
        # Private, for nothing public tells without making the client; without it, the careful
        # answer, that it is too late.
        bridge = sys.modules.get("jax._src.xla_bridge")
        ready = getattr(bridge, "backends_are_initialized", None)
        return bool(ready()) if callable(ready) else True

    def too_late(self, pool: Pool) -> Reason | None:
        if not self.has_read() or _ALLOCATOR.items() <= os.environ.items():
            return None
        return Reason(
            "JAX has made its client, and read its variables then",
            "call install_pool() before the first jax array, or set XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
        )

    def detach(self, pool: Pool) -> Reason | None:
        return Reason("XLA keeps the allocator that it began with", "end the process")
