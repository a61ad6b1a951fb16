"""docs/replacements.md is up to date: it is generated again by running both calls, and compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from helpers.paths import ROOT

PAGE = ROOT / "docs" / "replacements.md"
COMMITTED = PAGE.read_text(encoding="utf-8")
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas", "polars", "duckdb")


def without_versions(page: str) -> str:
    head, title, _ = page.partition("\n## Versions\n")
    assert title
    return head


def test_page_matches_calls() -> None:
    """In a separate process with the frameworks' defaults, because JAX has x64 on in this one."""
    for framework in FRAMEWORKS:
        pytest.importorskip(framework)
    completed = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "replacements.py")],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert completed.returncode == 0, completed.stderr
    assert without_versions(completed.stdout) == without_versions(COMMITTED)


def test_page_has_every_pair() -> None:
    for source in FRAMEWORKS:
        section = COMMITTED.partition(f"\n### From {source}\n")[2].partition("\n#")[0]
        targets = re.findall(r"^\| (\w+) \| `", section, re.MULTILINE)
        assert sorted(targets) == sorted(set(FRAMEWORKS) - {source})


def test_zerocopy_copies_only_where_today_copies_too() -> None:
    rows = re.findall(r"^\| \w+ \| `.+?` \| ([^|]+) \| `.+?` \| ([^|]+) \|", COMMITTED, re.MULTILINE)
    assert len(rows) == len(FRAMEWORKS) * (len(FRAMEWORKS) - 1)
    assert {today for today, ours in rows if ours == "copy"} == {"copy"}
