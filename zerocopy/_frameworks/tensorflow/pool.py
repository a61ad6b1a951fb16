"""TensorFlow on a memory pool: variables, read when its devices are made."""

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

_ALLOCATOR = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}


class TensorFlowHook(PoolHook):
    """Its allocator is chosen by a variable, once, when its context is made."""

    name = "tensorflow"
    rank = 70

    def lacks_gpu(self) -> Reason | None:
        if self.imported():
            built = sys.modules["tensorflow"].sysconfig.get_build_info().get("is_cuda_build", False)
        else:
            built = not _installed("tensorflow-cpu") or _installed("tensorflow")
        return None if built else Reason("this build of TensorFlow has no CUDA", "pip install tensorflow")

    def cannot(self, pool: Pool) -> Reason | None:
        if pool.by_rmm:
            return Reason(
                "TensorFlow takes no allocator from outside; it is only kept from taking the card at once",
                'kind="driver" is shared with it',
            )
        return None

    def variables(self, pool: Pool, environ: Mapping[str, str]) -> dict[str, str]:
        return dict(_ALLOCATOR)

    def courtesies(self, pool: Pool) -> dict[str, str]:
        # Otherwise it takes nearly all of the card at once (TensorFlow's guide, "Limiting GPU
        # memory growth").
        return {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}

    def has_read(self) -> bool:
        # Private, for nothing public tells without making the context; without it, the
        # careful answer, that it is too late.
        module = sys.modules.get("tensorflow.python.eager.context")
        if module is None or not hasattr(module, "_context"):
            return True
        return bool(getattr(module._context, "_initialized", False))

    def too_late(self, pool: Pool) -> Reason | None:
        if not self.has_read() or _ALLOCATOR.items() <= os.environ.items():
            return None
        return Reason(
            "TensorFlow has made its devices, and read its variables then",
            "call install_pool() before the first tensor, or set TF_GPU_ALLOCATOR=cuda_malloc_async",
        )

    def detach(self, pool: Pool) -> Reason | None:
        return Reason("TensorFlow keeps the allocator that it began with", "end the process")


def _installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
