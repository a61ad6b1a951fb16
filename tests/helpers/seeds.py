"""Seeds of generated tests, which the environment variable ``ZEROCOPY_HOSTILE_SEED`` chooses.

Tests call these functions when they run and print the seeds, because pytest-xdist requires that all its
processes collect the same ids.
"""

from __future__ import annotations

import os


def chosen_seed(default: int) -> int:
    """Return the seed of the variable, a new one if it is "random", or `default` if it is not set."""
    chosen = os.environ.get("ZEROCOPY_HOSTILE_SEED", "")
    if chosen == "random":
        return int.from_bytes(os.urandom(4))
    return int(chosen) if chosen else default


def seeds_of_part(part: int, parts: int, count: int) -> range:
    """Return the seeds of one of `parts` tests, which share `count`; the variable sets the last half."""
    start = 0 if part < parts // 2 else chosen_seed(0)
    return range(start + part * count // parts, start + (part + 1) * count // parts)
