"""docs/layouts-gpu.md says what the compilers have said, and what the plans are."""

from __future__ import annotations

import json
import re

import pytest
from helpers.paths import ROOT

from benchmarks import layout_cuda_compiled as compiled

PAGE = (ROOT / "docs" / "layouts-gpu.md").read_text(encoding="utf-8")


@pytest.fixture
def told() -> dict:
    """The results that the page names."""
    (named,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", PAGE))
    return json.loads((compiled.RESULTS / named).read_text())


def test_registers(told: dict) -> None:
    assert compiled.compiled_table(told["kernels"]) in PAGE
    assert told["command"] in PAGE
    for version in told["versions"].values():
        assert version in PAGE
    assert "nothing is spilled, and there is no stack" in PAGE
    assert not any(
        one[key]
        for one in told["kernels"]
        for key in ("stack_bytes", "spill_store_bytes", "spill_load_bytes")
    )
    every = {(one["kernel"], one["architecture"]) for one in told["kernels"]}
    assert len(every) == len(told["kernels"]) == 4 * len(compiled.ARCHITECTURES)


def test_reads_in_turn(told: dict) -> None:
    """They come from the plans alone: so they are those of the plans that there are now."""
    assert told["tiles"] == list(compiled.tiles())
    assert compiled.tiles_table(told["tiles"]) in PAGE
