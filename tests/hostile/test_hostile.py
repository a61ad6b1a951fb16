"""Hostile inputs: every promise holds for 2,000 of them; ``python -m tests.hostile`` runs more.

A finding names its seed: ``python -m tests.hostile --seed SEED --count 1`` repeats it.
"""

from __future__ import annotations

import pytest
from helpers.hostile import runner

COUNT, PARTS = 2_000, 4


@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_inputs_are_converted_correctly_or_refused(part: int) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorflow")
    size = COUNT // PARTS
    report = runner.run(part * size, (part + 1) * size)
    assert sum(report.counts.values()) == size
    assert not report.findings, str(report)
