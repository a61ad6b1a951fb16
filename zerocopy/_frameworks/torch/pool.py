"""torch on a memory pool: CUDA's by an environment variable, RMM's by a pluggable allocator."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from zerocopy.errors import PoolUnavailableError, Reason
from zerocopy.framework import version_numbers
from zerocopy.interpreter import imports
from zerocopy.pool.hook import PoolHook, PoolInterface, distribution_version

_BACKEND = "backend:cudaMallocAsync"
# Since 2.9 torch warns that the old name is deprecated (c10/core/AllocatorConfig.cpp).
_NEW, _OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"


class Pool(PoolHook):
    """torch reads its backend at import, and accepts another allocator until its first allocation."""

    name = "torch"
    rank = 20
    shares_driver_pool = True
    own_limit = "torch.cuda.set_per_process_memory_fraction()"
    threshold_writer = "torch"

    def lacks_gpu(self) -> Reason | None:
        fix = "install a CUDA build: https://pytorch.org/get-started/locally"
        if self.imported():
            version = sys.modules["torch"].version
            built = getattr(version, "cuda", None) or getattr(version, "hip", None)
        else:
            built = not _version().endswith("+cpu")
        return None if built else Reason("this build of torch has no CUDA", fix, code="no-gpu-build")

    def unsupported(self, pool: PoolInterface) -> Reason | None:
        if pool.uses_rmm and not pool.settings.named(self.name):
            # RMM provides no record_stream (rmm, _torch_allocator.cpp), without which torch's does nothing
            # (pytorch, torch/csrc/cuda/CUDAPluggableAllocator.cpp).
            return Reason(
                "with RMM's allocator record_stream() does nothing, so memory that another stream still uses "
                "may be reused",
                'use kind="driver"; or accept it by naming torch in frameworks=',
                code="no-record-stream",
            )
        return None

    def allocator_env(self, pool: PoolInterface, environ: Mapping[str, str]) -> dict[str, str]:
        if pool.uses_rmm:
            return {}
        name = _OLD if _OLD in environ or (_version() and version_numbers(_version()) < (2, 9)) else _NEW
        before = environ.get(name, "")
        if "backend:" in before:
            return {name: before}
        return {name: ",".join(part for part in (before, _BACKEND) if part)}

    def conflict(self, pool: PoolInterface, environ: Mapping[str, str]) -> Reason | None:
        for name in (_NEW, _OLD):
            text = environ.get(name, "").replace(" ", "")
            if not pool.uses_rmm and "backend:" in text and _BACKEND not in text:
                return Reason(
                    f"the environment has {name}={environ[name]!r}, and the pool needs {_BACKEND!r}",
                    f"remove the backend from {name}, or leave torch out with frameworks=",
                    code="environment-conflict",
                )
        return None

    def allocates_via(self, pool: PoolInterface) -> str:
        return "rmm" if pool.uses_rmm else ""

    def frees_via(self, pool: PoolInterface) -> str:
        # rmm's _torch_allocator.cpp frees into the current resource of the device, which must be the
        # one that allocated.
        return self.allocates_via(pool)

    def too_late(self, pool: PoolInterface) -> Reason | None:
        cuda = sys.modules["torch"].cuda
        if pool.uses_rmm:
            if cuda.is_initialized():
                return Reason(
                    "torch has initialised CUDA, and keeps its allocator",
                    "call install_pool() before the first tensor is on a GPU",
                    code="too-late",
                )
            return None
        if cuda.get_allocator_backend() == "cudaMallocAsync":
            return None  # the user's variable has selected it
        return Reason(
            "torch was imported before, and selected its allocator then",
            f"call install_pool() before import torch, or set {_NEW}={_BACKEND}",
            code="too-late",
        )

    def attach(self, pool: PoolInterface) -> str:
        import torch

        if not pool.uses_rmm:
            backend = torch.cuda.get_allocator_backend()
            if backend != "cudaMallocAsync":
                raise PoolUnavailableError(
                    "torch.cuda.get_allocator_backend()",
                    f"torch's allocator is {backend!r} although {_NEW} is set",
                    "see the warnings of import torch",
                )
            return "CUDA's pool, backend cudaMallocAsync"
        from rmm.allocators.torch import rmm_torch_allocator

        if rmm_torch_allocator is None:
            raise PoolUnavailableError(
                "rmm.allocators.torch", "torch sees no GPU", "check torch.cuda.is_available()"
            )
        torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
        return "RMM's resource of the device; record_stream() does nothing, so order streams yourself"

    def detach(self, pool: PoolInterface) -> Reason | None:
        return Reason(
            "torch keeps its first allocator until the process ends",
            "end the process",
            code="allocator-in-use",
        )


def _version() -> str:
    """Return torch's version; empty for a source build without metadata, taken as a recent CUDA build."""
    if imports.is_imported("torch"):  # a lazy module would be loaded by reading its attribute
        return str(getattr(sys.modules["torch"], "__version__", ""))
    return distribution_version("torch") or ""
