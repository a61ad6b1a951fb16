"""Processes that something is measured in: what they find in their environment."""

from __future__ import annotations

import os
import sys


def environment() -> dict[str, str]:
    """Return the environment of a child: it finds what this process finds, however it was told of it.

    A pool that the user's environment asks for is not in it: it would be under all that is measured.
    """
    path = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    return {k: v for k, v in os.environ.items() if k != "ZEROCOPY_POOL"} | {"PYTHONPATH": path}
