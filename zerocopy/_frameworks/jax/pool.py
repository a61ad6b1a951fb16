"""JAX on a memory pool: XLA's CUDA client reads environment variables when it is created."""

from __future__ import annotations

import sys
from typing import ClassVar

from zerocopy.errors import Reason
from zerocopy.pool.hook import VariableHook, distribution_version

_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")


class Pool(VariableHook):
    """A variable selects JAX's allocator once, when the first array or device is requested."""

    name = "jax"
    title = "JAX"
    rank = 60
    threshold_writer = "XLA"
    allocator_variables: ClassVar[dict[str, str]] = {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}
    # By default JAX preallocates three quarters of the GPU (JAX's manual, "GPU memory allocation").
    prealloc_variables: ClassVar[dict[str, str]] = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    allocator_owner = "XLA"
    default_footprint = "most of the GPU"
    start_event = "JAX has created its client"
    start_trigger = "the first jax array"

    def lacks_gpu(self) -> Reason | None:
        if any(distribution_version(name) for name in _PLUGINS):
            return None
        return Reason(
            "JAX has no CUDA plugin here", 'pip install "jax[cuda13]", or "jax[cuda12]"', code="no-gpu-build"
        )

    def has_read_env(self) -> bool:
        # Private: no public call reports it without creating the client. Default: too late.
        bridge = sys.modules.get("jax._src.xla_bridge")
        ready = getattr(bridge, "backends_are_initialized", None)
        return bool(ready()) if callable(ready) else True
