"""TensorFlow on a memory pool: variables, read when its devices are made."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import ClassVar

from zerocopy.errors import Reason
from zerocopy.pool.variable_hook import VariableHook


class TensorFlowHook(VariableHook):
    """Its allocator is chosen by a variable, once, when its context is made."""

    name = "tensorflow"
    title = "TensorFlow"
    rank = 70
    choice: ClassVar[dict[str, str]] = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    # Otherwise it takes nearly all of the card at once (TensorFlow's guide, "Limiting GPU memory growth").
    manners: ClassVar[dict[str, str]] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    allocates = "TensorFlow"
    began = "TensorFlow has made its devices"
    first = "the first tensor"

    def lacks_gpu(self) -> Reason | None:
        if self.imported():
            built = sys.modules["tensorflow"].sysconfig.get_build_info().get("is_cuda_build", False)
        else:
            built = not _installed("tensorflow-cpu") or _installed("tensorflow")
        return None if built else Reason("this build of TensorFlow has no CUDA", "pip install tensorflow")

    def has_read(self) -> bool:
        # Private, for nothing public tells without making the context; without it, the
        # careful answer, that it is too late.
        module = sys.modules.get("tensorflow.python.eager.context")
        if module is None or not hasattr(module, "_context"):
            return True
        return bool(getattr(module._context, "_initialized", False))


def _installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
