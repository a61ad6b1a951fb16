"""The loading hook of PyTorch: workers of its ``DataLoader``, and tensors of a device."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.dtype import from_numpy
from zerocopy.loading.hook import LoadingHook


class Loading(LoadingHook):
    """A loader of tensors is an ``IterableDataset``, of which each worker delivers a part.

    Tensors of a device belong to torch's caching allocator and to torch's current stream.
    """

    can_allocate = True
    has_workers = True
    state_fix = (
        "pass num_workers=0 to the DataLoader; or use torchdata's StatefulDataLoader and its state_dict(), "
        "which asks the workers; or, after an epoch, call loader.set_epoch(epoch + 1) first"
    )
    repeat_fix = (
        "call loader.set_epoch(epoch) before each epoch, or pass persistent_workers=True to the DataLoader"
    )

    def bases(self) -> tuple[type, ...]:
        """Return ``IterableDataset``, which the ``DataLoader`` requires of a data set without indices."""
        from torch.utils.data import IterableDataset

        return (IterableDataset,)

    def worker(self) -> tuple[int, int] | None:
        """Return the number of this worker of a ``DataLoader``, and the number of its workers."""
        data = sys.modules.get("torch.utils.data")
        info = data.get_worker_info() if data is not None else None
        return None if info is None else (info.id, info.num_workers)

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
