"""TensorFlow on a memory pool: it reads environment variables when it creates its devices."""

from __future__ import annotations

import sys
from typing import ClassVar

from zerocopy.errors import Reason
from zerocopy.pool.hook import VariableHook, distribution_version


class Pool(VariableHook):
    """A variable selects TensorFlow's allocator once, when it creates its context."""

    name = "tensorflow"
    title = "TensorFlow"
    rank = 70
    allocator_variables: ClassVar[dict[str, str]] = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    # By default TensorFlow preallocates nearly all of the GPU (its guide, "Limiting GPU memory growth").
    prealloc_variables: ClassVar[dict[str, str]] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    allocator_owner = "TensorFlow"
    start_event = "TensorFlow has created its devices"
    start_trigger = "the first tensor"

    def lacks_gpu(self) -> Reason | None:
        if self.imported():
            built = sys.modules["tensorflow"].sysconfig.get_build_info().get("is_cuda_build", False)
        else:
            cpu_only = distribution_version("tensorflow-cpu") and not distribution_version("tensorflow")
            built = not cpu_only
        return (
            None
            if built
            else Reason("this build of TensorFlow has no CUDA", "pip install tensorflow", code="no-gpu-build")
        )

    def has_read_env(self) -> bool:
        # Private: no public call reports it without creating the context. Default: too late.
        module = sys.modules.get("tensorflow.python.eager.context")
        if module is None or not hasattr(module, "_context"):
            return True
        return bool(getattr(module._context, "_initialized", False))
