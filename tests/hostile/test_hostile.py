"""Hostile inputs: every promise holds for 2,000 of them; ``python -m tests.hostile`` runs more.

A finding names its seed, and the command that repeats it. With ``ZEROCOPY_HOSTILE_SEED=random``, as in CI,
half of the seeds are new in each run; a number in its place is the first of them.
"""

from __future__ import annotations

import os

import pytest
from helpers.hostile import runner
from helpers.hostile.check import check
from helpers.hostile.generate import case
from helpers.warm import WarmProcess

COUNT, PARTS = 2_000, 4

#: Seeds that found bugs: NULL as a name, format strings, offsets, page-locked memory, seconds into polars,
#: records without fields.
FOUND = [500591, 501594, 503304, 504270, 504776, 505499, 508121, 509649, 700475, 808564, 904011]


def _first(part: int) -> int:
    """Return the first seed of a part; the environment chooses those of the last half."""
    chosen = os.environ.get("ZEROCOPY_HOSTILE_SEED", "")
    if part < PARTS // 2 or not chosen:
        return part * COUNT // PARTS
    start = int.from_bytes(os.urandom(4)) if chosen == "random" else int(chosen)
    return start + part * COUNT // PARTS


@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_inputs_are_converted_correctly_or_refused(part: int, warm_process: WarmProcess) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorflow")
    size, first = COUNT // PARTS, _first(part)
    print(f"seeds {first} to {first + size - 1}")
    report = runner.run(first, first + size, warm=warm_process)
    assert sum(report.counts.values()) == size
    assert not report.findings, str(report)


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_bugs(seed: int) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorflow")
    outcome = check(case(seed))
    assert outcome.kind != "finding", outcome.detail
