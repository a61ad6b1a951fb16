"""torch's ``DataLoader`` around the loader: its base class, and its worker processes."""

from __future__ import annotations

import sys

from zerocopy.loading.hook import LoadingHook


class TorchLoading(LoadingHook):
    """A loader of tensors is an ``IterableDataset``, of which each worker delivers a part."""

    def bases(self) -> tuple[type, ...]:
        """Return ``IterableDataset``, which the ``DataLoader`` requires of a data set without indices."""
        from torch.utils.data import IterableDataset

        return (IterableDataset,)

    def worker(self) -> tuple[int, int]:
        """Return the number of this worker of a ``DataLoader``, and the number of its workers."""
        data = sys.modules.get("torch.utils.data")
        info = data.get_worker_info() if data is not None else None
        return (0, 1) if info is None else (info.id, info.num_workers)
