"""JAX on a memory pool: XLA's client for CUDA reads variables when it is made."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import ClassVar

from zerocopy.errors import Reason
from zerocopy.pool.variable_hook import VariableHook

_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")


class JAXHook(VariableHook):
    """Its allocator is chosen by a variable, once, when the first array or device is asked for."""

    name = "jax"
    title = "JAX"
    rank = 60
    sets_threshold = "XLA"
    choice: ClassVar[dict[str, str]] = {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}
    # Otherwise it takes three quarters of the card at once (JAX's manual, "GPU memory allocation").
    manners: ClassVar[dict[str, str]] = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    allocates = "XLA"
    greed = "most of the card"
    began = "JAX has made its client"
    first = "the first jax array"

    def lacks_gpu(self) -> Reason | None:
        for name in _PLUGINS:
            try:
                metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
            return None
        return Reason("JAX has no CUDA plugin here", 'pip install "jax[cuda13]", or "jax[cuda12]"')

    def has_read(self) -> bool:
        # Private, for nothing public tells without making the client; without it, the careful
        # answer, that it is too late.
        bridge = sys.modules.get("jax._src.xla_bridge")
        ready = getattr(bridge, "backends_are_initialized", None)
        return bool(ready()) if callable(ready) else True
