"""The loaders of this process: what they delivered, and the time that each side waited."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from zerocopy.monitor.sample import LoaderRecord


def read_loaders() -> list[LoaderRecord]:
    """Return the figures of the loaders that exist, the oldest first.

    A loader stays in the list until the program releases it, also after its last batch. Nothing is
    imported if no loader was created. The name contains only the last part of a path or URL.

    Returns
    -------
    list of LoaderRecord
        One record for each loader.

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
    from zerocopy.loading.stats import read_records

    return cast("list[LoaderRecord]", read_records())
