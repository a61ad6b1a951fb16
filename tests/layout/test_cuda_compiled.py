"""The figures in docs/layouts-gpu.md: the compilers' output, and the plans of the tiles."""

from __future__ import annotations

import json
import re

import pytest
from helpers.paths import ROOT

from benchmarks import layout_cuda_compiled as compiled
from benchmarks.sass_loops import Loop, innermost_loops

PAGE = (ROOT / "docs" / "layouts-gpu.md").read_text(encoding="utf-8")


@pytest.fixture
def results() -> dict:
    """The results file that the page names."""
    (named,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", PAGE))
    return json.loads((compiled.RESULTS / named).read_text())


def test_register_table_matches_the_results(results: dict) -> None:
    assert compiled.compiled_table(results["kernels"]) in PAGE
    assert results["command"] in PAGE
    for version in results["versions"].values():
        assert version in PAGE
    assert "the kernels have no spills and no stack" in PAGE
    assert not any(
        one[key]
        for one in results["kernels"]
        for key in ("stack_bytes", "spill_store_bytes", "spill_load_bytes")
    )
    every = {(one["kernel"], one["architecture"]) for one in results["kernels"]}
    assert len(every) == len(results["kernels"]) == 4 * len(compiled.ARCHITECTURES)


def test_instruction_table_matches_the_results(results: dict) -> None:
    assert compiled.loops_table(results["kernels"]) in PAGE
    for one in results["kernels"]:
        assert ("loops" in one) == (one["architecture"] == compiled.DISASSEMBLED)


def test_innermost_loops_are_counted() -> None:
    sass = """
    .L_x_0:
      /*0010*/ MOV R1, R2 ;
    .L_x_1:
      /*0020*/ @P0 LDS.U8 R2, [R3] ;
      /*0030*/ @!P1 BRA `(.L_x_2) ;
      /*0040*/ STG.E.64 desc[UR4][R4.64], R2 ;
    .L_x_2:
      /*0050*/ @!P0 BRA `(.L_x_1) ;
      /*0060*/ @!UP0 BRA `(.L_x_0) ;
      /*0070*/ EXIT ;
    .L_x_3:
      /*0080*/ BRA `(.L_x_3);
    """
    assert list(innermost_loops(sass)) == [Loop(4, ("LDS.U8", "STG.64"))]


def test_bank_conflict_table_matches_the_plans(results: dict) -> None:
    """The figures are computed from the plans alone, so the present plans must give them."""
    assert results["tiles"] == list(compiled.tiles())
    assert compiled.tiles_table(results["tiles"]) in PAGE
