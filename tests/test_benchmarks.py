"""The benchmarks compare like with like: all contenders of a pair do the same work."""

import re

import pytest
from conftest import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")

from benchmarks.conversion.contenders import IDIOMS, check, contenders, pairs
from benchmarks.conversion.subjects import SUBJECTS, aligned_values


def rows():
    return [
        pytest.param(pair, contender, id=f"{pair[0]}-{pair[1]}-{contender.role}-{i}")
        for pair in pairs()
        for i, contender in enumerate(contenders(pair))
    ]


def test_every_pair_has_a_row():
    assert set(IDIOMS) == {(a, b) for a in SUBJECTS for b in SUBJECTS if a != b}


@pytest.mark.parametrize(("pair", "contender"), rows())
def test_contenders_give_the_same_values_in_the_same_memory(pair, contender):
    # With warnings as errors a row that warns and does not say so fails here too.
    values = aligned_values(1000)
    refused = check(contender, pair, SUBJECTS[pair[0]].make(values), values)
    raised = refused.startswith("raises") and "Warning:" not in refused
    if raised and contender.role in ("documented", "library"):
        pytest.skip(f"{contender.code} {refused}: it is left out of the timing too")
    assert refused == "", contender.code


def test_the_page_is_what_its_results_say() -> None:
    """No figure of docs/benchmarks.md is typed by hand: it is written anew and compared."""
    from benchmarks.page import page

    written = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    (named,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", written))
    assert written == page(ROOT / "benchmarks" / "results" / named)
