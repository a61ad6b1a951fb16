"""docs/conformance.md is what docs/conformance.py writes from its results, which have each producer."""

from __future__ import annotations

import json
import runpy

import pytest
from helpers.paths import ROOT

from zerocopy.testing.cases import cases_of

SCRIPT = runpy.run_path(str(ROOT / "docs" / "conformance.py"))
RESULTS = json.loads((ROOT / "docs" / "conformance.json").read_text("utf-8"))


def test_the_page_is_that_of_the_results() -> None:
    assert SCRIPT["page"](RESULTS) == (ROOT / "docs" / "conformance.md").read_text("utf-8")


@pytest.mark.parametrize("side", ["producer"])
def test_the_results_have_each_function_and_each_case(side: str) -> None:
    assert set(RESULTS[side]) == set(SCRIPT["makers"](SCRIPT["MODULES"][side]))
    ids = {case.id for case in cases_of(side)}
    wrong = [name for name, report in RESULTS[side].items() if set(report["cases"]) != ids]
    assert not wrong, "python docs/conformance.py run"


def test_known_hazards_are_findings() -> None:
    """A deleted array of JAX, a negative bit of torch, an array that ONNX Runtime does not hold."""
    findings = {
        name: {each["case"] for each in report["findings"]} for name, report in RESULTS["producer"].items()
    }
    assert "dlpack.export" in findings["jax_deleted"]
    assert "dlpack.copy" in findings["torch_negative_bit"]
    assert "dlpack.alive" in findings["onnxruntime_value"]
