"""Hostile inputs: every promise holds for 2,000 of them; ``python -m tests.hostile`` runs more.

A finding names its seed, and the command that repeats it. With ``ZEROCOPY_HOSTILE_SEED=random``, as each
night, half of the seeds are new in each run; a number in its place is the first of them.
"""

from __future__ import annotations

import pytest
from helpers.hostile import runner
from helpers.hostile.check import check
from helpers.hostile.generate import case
from helpers.seeds import seeds_of_part
from helpers.warm import WarmProcess

COUNT, PARTS = 2_000, 4

#: Seeds that found bugs: NULL as a name, format strings, offsets, page-locked memory, seconds into polars,
#: records without fields, misaligned complex128.
FOUND = [2872080702, 500591, 501594, 503304, 504270, 504776, 505499, 508121, 509649, 700475, 808564, 904011]


@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_inputs_are_converted_correctly_or_refused(part: int, warm_process: WarmProcess) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorflow")
    seeds = seeds_of_part(part, PARTS, COUNT)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    report = runner.run(seeds.start, seeds.stop, warm=warm_process)
    assert sum(report.counts.values()) == len(seeds)
    assert not report.findings, str(report)


@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_found_bugs(seed: int) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorflow")
    outcome = check(case(seed))
    assert outcome.kind != "finding", outcome.detail
