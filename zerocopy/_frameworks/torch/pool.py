"""torch on a memory pool: CUDA's by its environment, RMM's by a pluggable allocator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING

from zerocopy.errors import PoolUnavailableError, Reason
from zerocopy.pool import imports
from zerocopy.pool.hook import PoolHook

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool

_BACKEND = "backend:cudaMallocAsync"
# Since 2.9 the second name warns of the first (c10/core/AllocatorConfig.cpp).
_NEW, _OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"


class TorchHook(PoolHook):
    """Reads its backend when it is imported; takes another allocator until it has begun to allocate."""

    name = "torch"
    rank = 20
    by_driver = True
    own_cap = "torch.cuda.set_per_process_memory_fraction()"
    sets_threshold = "torch"

    def lacks_gpu(self) -> Reason | None:
        fix = "install a CUDA build: https://pytorch.org/get-started/locally"
        if self.imported():
            version = sys.modules["torch"].version
            built = getattr(version, "cuda", None) or getattr(version, "hip", None)
        else:
            built = not _version().endswith("+cpu")
        return None if built else Reason("this build of torch has no CUDA", fix)

    def cannot(self, pool: Pool) -> Reason | None:
        if pool.by_rmm and not pool.settings.named(self.name):
            # RMM's functions know no record_stream (rmm, _torch_allocator.cpp; CUDAPluggableAllocator
            # does nothing without one, pytorch: torch/csrc/cuda/CUDAPluggableAllocator.cpp).
            return Reason(
                "on RMM's allocator record_stream() does nothing, so memory that another stream still uses "
                "may be given out again",
                'kind="driver" is free of that; to have it all the same, name torch in frameworks=',
            )
        return None

    def variables(self, pool: Pool, environ: Mapping[str, str]) -> dict[str, str]:
        if pool.by_rmm:
            return {}
        name = _OLD if _OLD in environ or _numbers(_version()) < (2, 9) else _NEW
        before = environ.get(name, "")
        if "backend:" in before:
            return {name: before}
        return {name: ",".join(part for part in (before, _BACKEND) if part)}

    def conflict(self, pool: Pool, environ: Mapping[str, str]) -> Reason | None:
        for name in (_NEW, _OLD):
            text = environ.get(name, "").replace(" ", "")
            if not pool.by_rmm and "backend:" in text and _BACKEND not in text:
                return Reason(
                    f"the environment has {name}={environ[name]!r}, and the pool needs {_BACKEND!r}",
                    f"take the backend out of {name}, or leave torch out with frameworks=",
                )
        return None

    def through(self, pool: Pool) -> str:
        return "rmm" if pool.by_rmm else ""

    def frees_through(self, pool: Pool) -> str:
        # rmm's _torch_allocator.cpp looks the resource of the device up when it frees: another one
        # there would be given memory that is not its own.
        return self.through(pool)

    def too_late(self, pool: Pool) -> Reason | None:
        cuda = sys.modules["torch"].cuda
        if pool.by_rmm:
            if cuda.is_initialized():
                return Reason(
                    "torch has begun to use CUDA, and keeps the allocator that it has",
                    "call install_pool() before the first tensor goes to a GPU",
                )
            return None
        if cuda.get_allocator_backend() == "cudaMallocAsync":
            return None  # by the user's own variable
        return Reason(
            "torch was imported before, and chose its allocator then",
            f"call install_pool() before import torch, or set {_NEW}={_BACKEND}",
        )

    def attach(self, pool: Pool) -> str:
        import torch

        if not pool.by_rmm:
            backend = torch.cuda.get_allocator_backend()
            if backend != "cudaMallocAsync":
                raise PoolUnavailableError(
                    "torch.cuda.get_allocator_backend()",
                    f"it is {backend!r}, whatever {_NEW} says",
                    "see the warnings of import torch",
                )
            return "CUDA's pool, backend cudaMallocAsync"
        from rmm.allocators.torch import rmm_torch_allocator

        if rmm_torch_allocator is None:
            raise PoolUnavailableError(
                "rmm.allocators.torch", "torch sees no GPU", "check torch.cuda.is_available()"
            )
        torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
        return "RMM's resource of the device; record_stream() does nothing, so see to the order of streams"

    def detach(self, pool: Pool) -> Reason | None:
        return Reason("torch keeps the allocator that it began with", "end the process")


def _version() -> str:
    if imports.loaded("torch"):  # and not one that is loaded when it is first looked at
        return str(getattr(sys.modules["torch"], "__version__", ""))
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""  # a build from source, perhaps: then it is taken for a recent one with CUDA


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [part for part in version.split("+")[0].split(".")[:2] if part.isdigit()]
    return tuple(map(int, numbers)) or (99,)
