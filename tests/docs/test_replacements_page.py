"""docs/replacements.md is up to date: it is generated again by running both calls, and compared."""

from __future__ import annotations

import re

import pytest
from helpers.generated_pages import generate, without_versions
from helpers.paths import ROOT

PAGE = ROOT / "docs" / "replacements.md"
COMMITTED = PAGE.read_text(encoding="utf-8")
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas", "polars", "duckdb")


@pytest.mark.full
def test_page_matches_calls() -> None:
    for framework in FRAMEWORKS:
        pytest.importorskip(framework)
    assert without_versions(generate("replacements.py")) == without_versions(COMMITTED)


#: The source, the target and whose memory both results are, of each row.
ROWS = re.findall(r"^\| (\w+) \| (\w+) \| `.+?` \| (\w+), (\w+) \|", COMMITTED, re.MULTILINE)


def test_page_has_every_pair() -> None:
    pairs = {(source, target) for source in FRAMEWORKS for target in FRAMEWORKS if source != target}
    assert sorted((source, target) for source, target, _, _ in ROWS) == sorted(pairs)


def test_nan_of_pandas_is_a_difference() -> None:
    """By hand it becomes null; zerocopy keeps it."""
    rows = re.findall(r"^\| pandas \| (\w+) \|.*floats with NaN: (.+?); (.+?) \|", COMMITTED, re.MULTILINE)
    assert [target for target, *_ in rows] == ["pyarrow", "polars", "duckdb"]
    assert all("[1.0, None, 3.0]" in by_hand and "[1.0, nan, 3.0]" in ours for _, by_hand, ours in rows)


def test_zerocopy_copies_only_where_today_copies_too() -> None:
    assert {today for _, _, today, ours in ROWS if ours == "copy"} == {"copy"}


def test_page_begins_with_the_rows_whose_copy_becomes_an_alias() -> None:
    first = COMMITTED.partition("\n## ")[2].partition("\n## ")[0]
    assert first.startswith("Writes now reach the source\n")
    count = [memory for _, _, *memory in ROWS].count(["copy", "alias"])
    assert f"In {count} of the {len(ROWS)} rows below" in first
