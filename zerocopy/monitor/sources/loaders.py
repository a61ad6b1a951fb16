"""The loaders of this process: how much they delivered, and which side waits."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from zerocopy.monitor.sample import LoaderRecord


def read_loaders() -> list[LoaderRecord]:
    """Return the figures of the loaders that exist, the oldest first.

    A loader stays in the list after its last batch, and leaves it when the program drops it. Nothing is
    imported if no loader was created. Of paths and URLs only the last part is in the name.

    Returns
    -------
    list of LoaderRecord

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> loader = zc.loader({"x": np.arange(10.0)}, to="numpy", batch=4)
    >>> batches = list(loader)
    >>> record = read_loaders()[-1]
    >>> record["name"], record["batches"], record["bytes"], record["running"]
    ('a dict of arrays -> numpy', 3, 80, False)
    """
    # The class is missing while another thread imports the module.
    if not hasattr(sys.modules.get("zerocopy.loading.loader"), "Loader"):
        return []
    from zerocopy.loading.record import read_records

    return cast("list[LoaderRecord]", read_records())
