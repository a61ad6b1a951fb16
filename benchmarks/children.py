"""The environment of child processes that are measured."""

from __future__ import annotations

import os
import sys


def environment() -> dict[str, str]:
    """Return an environment in which a child imports the same modules as this process.

    It has no ZEROCOPY_POOL, because that pool would serve everything that is measured.
    """
    path = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))
    return {k: v for k, v in os.environ.items() if k != "ZEROCOPY_POOL"} | {"PYTHONPATH": path}
