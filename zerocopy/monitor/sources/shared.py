"""Shared memory of this process: its own segments, and those of others that it has opened."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocopy.monitor.sample import SharedRecord

#: It exists once the process has shared or opened an object.
_MODULE = "zerocopy.shared.figures"


def read_shared() -> SharedRecord:
    """Return how much memory this process shares, and how much memory of other processes it has mapped.

    Nothing is imported if the process has neither shared nor opened an object. Objects of up to 64 KiB
    are copied when they are opened, and are then not mapped. CUDA memory counts as handles only.

    Returns
    -------
    SharedRecord
        All figures are 0 if the process has neither shared nor opened an object.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> before = read_shared()["handles"]
    >>> with zc.share(np.zeros(1000)) as shared:
    ...     read_shared()["handles"] - before
    1
    >>> read_shared()["handles"] - before
    0
    """
    module = sys.modules.get(_MODULE)
    if module is None:
        return {
            "segments": 0,
            "segment_bytes": 0,
            "handles": 0,
            "mapped": 0,
            "mapped_bytes": 0,
            "leases": 0,
        }
    from zerocopy.shared.figures import read_figures

    figures = read_figures()
    return {
        "segments": figures.segments,
        "segment_bytes": figures.segment_bytes,
        "handles": figures.handles,
        "mapped": figures.mapped,
        "mapped_bytes": figures.mapped_bytes,
        "leases": figures.leases,
    }
