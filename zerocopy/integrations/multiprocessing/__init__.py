"""multiprocessing, concurrent.futures and PyTorch's DataLoader: arrays and tables are sent by handle.

``install()`` changes how this process sends arrays and tables of 512 KiB or more through
``multiprocessing.Pipe``, ``Queue`` and ``Pool`` and through ``ProcessPoolExecutor``: it sends handles to
shared memory. ``shared_collate()`` returns a collate function for DataLoaders with workers, and needs
no ``install()``.
"""

from zerocopy.integrations.multiprocessing.collating import shared_collate as shared_collate
from zerocopy.integrations.multiprocessing.reducing import (
    in_flight as in_flight,
    install as install,
    release as release,
    uninstall as uninstall,
)

__all__ = ["in_flight", "install", "release", "shared_collate", "uninstall"]
