"""PyTorch's part of ``zerocopy.loader``."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.dtype import from_numpy
from zerocopy.loading.hook import LoadingHook


class TorchLoading(LoadingHook):
    """Tensors of torch's caching allocator, and torch's current stream."""

    can_allocate = True

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], index: int) -> tuple[Any, int]:
        torch = registry.by_name("torch").module()
        known = from_numpy(dtype)
        assert known is not None  # the plan of a batch has refused other types
        with torch.cuda.device(index):
            tensor = torch.empty(shape, dtype=getattr(torch, known.name), device=f"cuda:{index}")
        return tensor, tensor.data_ptr()

    def current_stream(self, index: int) -> int:
        torch = registry.by_name("torch").module()
        return torch.cuda.current_stream(index).cuda_stream or LEGACY_DEFAULT_STREAM
