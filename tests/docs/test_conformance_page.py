"""docs/conformance.md is what docs/conformance.py writes from its results, which have each producer."""

from __future__ import annotations

import json
import runpy

from helpers import conformance_producers
from helpers.paths import ROOT

from zerocopy.testing.cases import cases_of

RESULTS = json.loads((ROOT / "docs" / "conformance.json").read_text("utf-8"))


def test_the_page_is_that_of_the_results() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "conformance.py"))
    assert script["page"](RESULTS) == (ROOT / "docs" / "conformance.md").read_text("utf-8")


def test_the_results_have_each_producer_and_each_case() -> None:
    producers = {name for name in RESULTS if ":" not in name}
    made = {
        name
        for name, value in vars(conformance_producers).items()
        if callable(value) and name[0].islower() and name != "annotations"
    }
    assert producers == made
    ids = {case.id for case in cases_of("producer")}
    assert all(set(RESULTS[name]["cases"]) == ids for name in producers), "run docs/conformance.py run"


def test_known_hazards_are_findings() -> None:
    """A deleted array of JAX, a negative bit of torch, capsules of Tensorflow without copies."""
    findings = {name: {each["case"] for each in RESULTS[name]["findings"]} for name in RESULTS}
    assert "dlpack.export" in findings["jax_deleted"]
    assert "dlpack.copy" in findings["torch_negative_bit"]
