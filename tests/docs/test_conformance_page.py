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


def test_the_page_about_testing_lists_the_cases() -> None:
    text = (ROOT / "docs" / "testing.md").read_text("utf-8")
    assert SCRIPT["with_cases"](text) == text, "run python docs/conformance.py cases"


def test_each_finding_has_a_row() -> None:
    rows = [line for line in SCRIPT["page"](RESULTS).splitlines() if line.startswith("| `")]
    for reports in RESULTS.values():
        for name, report in reports.items():
            for each in report["findings"]:
                words = (f"`{name}`", f" {each['severity']} ", f"`{each['case']}`")
                assert any(all(word in row for word in words) for row in rows), words


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_the_results_have_functions_and_cases_that_exist(side: str) -> None:
    functions = set(SCRIPT["makers"](SCRIPT["MODULES"][side]))
    assert set(RESULTS[side]) <= functions
    absent = {"awkward_array", "datasets_table", "tensorflow_variable"}  # they offer none of the protocols
    assert side == "consumer" or functions - set(RESULTS[side]) == absent
    ids = {case.id for case in cases_of(side)}
    wrong = [name for name, report in RESULTS[side].items() if not set(report["cases"]) <= ids]
    assert not wrong, "python docs/conformance.py run"


def test_known_hazards_are_findings() -> None:
    """A deleted array of JAX, torch's negative bits and strides, an array that ONNX Runtime does not hold."""
    findings = {
        (side, name): {each["case"] for each in report["findings"]}
        for side, reports in RESULTS.items()
        for name, report in reports.items()
    }
    assert "dlpack.export" in findings["producer", "jax_deleted"]
    assert "dlpack.copy" in findings["producer", "torch_negative_bit"]
    assert "dlpack.alive" in findings["producer", "onnxruntime_value"]
    assert "dlpack.consume-negative-strides" in findings["consumer", "torch_from_dlpack"]
