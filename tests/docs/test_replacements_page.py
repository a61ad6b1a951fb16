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


def test_page_has_every_pair() -> None:
    for source in FRAMEWORKS:
        section = COMMITTED.partition(f"\n### From {source}\n")[2].partition("\n#")[0]
        targets = re.findall(r"^\| (\w+) \| `", section, re.MULTILINE)
        assert sorted(targets) == sorted(set(FRAMEWORKS) - {source})


def test_zerocopy_copies_only_where_today_copies_too() -> None:
    rows = re.findall(r"^\| \w+ \| `.+?` \| ([^|]+) \| `.+?` \| ([^|]+) \|", COMMITTED, re.MULTILINE)
    assert len(rows) == len(FRAMEWORKS) * (len(FRAMEWORKS) - 1)
    assert {today for today, ours in rows if ours == "copy"} == {"copy"}


def test_page_begins_with_the_rows_whose_copy_becomes_an_alias() -> None:
    rows = re.findall(r"^\| \w+ \| `.+?` \| ([^|]+) \| `.+?` \| ([^|]+) \|", COMMITTED, re.MULTILINE)
    first = COMMITTED.partition("\n## ")[2].partition("\n## ")[0]
    assert first.startswith("Writes now reach the source\n")
    assert f"In {rows.count(('copy', 'alias'))} of the {len(rows)} rows below" in first
