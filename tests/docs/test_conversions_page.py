"""docs/conversions.md says what happens: it is made again by converting, and compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from helpers.paths import ROOT

from zerocopy import registry

PAGE = ROOT / "docs" / "conversions.md"
WRITTEN = PAGE.read_text(encoding="utf-8")


def without_versions(page: str) -> str:
    head, title, _ = page.partition("\n## Versions\n")
    assert title
    return head


def test_the_page_is_what_converting_gives() -> None:
    """In a process of its own, with the frameworks' defaults: here JAX has its 64 bits."""
    sources = re.findall(r"^### From (\w+)$", WRITTEN, re.MULTILINE)
    for framework in sources:
        pytest.importorskip(framework)
    more = [
        known.name
        for known in map(registry.by_name, registry.frameworks())
        if known.installed() and "cpu" in known.device_kinds and known.name not in sources
    ]
    if more:
        pytest.skip(f"the page was made without {', '.join(more)}")
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "conversions.py")],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert without_versions(done.stdout) == without_versions(WRITTEN)


def test_every_framework_that_is_known_is_on_the_page() -> None:
    """Those that were converted with have a section and a version, the others a row."""
    for name in registry.frameworks():
        converted = f"### From {name}\n" in WRITTEN
        assert converted == bool(re.search(rf"^\| {name} \| \d[\w.+]* \|$", WRITTEN, re.MULTILINE)), name
        absent = WRITTEN[WRITTEN.index("## Not run here") :]
        assert converted != (f"\n| {name} | t" in absent), name


def test_the_grid_says_what_the_sections_say() -> None:
    """What the grid calls an alias has no layout that copies; what it calls a copy has no alias."""
    head, *rows = re.findall(
        r"^\| (.*) \|$", WRITTEN[WRITTEN.index("## The grid") :].split("\n\n")[2], re.MULTILINE
    )
    targets = head.split(" | ")[1:]
    assert len(rows) == len(targets) + 1  # with the line below the head
    for row in rows[1:]:
        source, *words = row.split(" | ")
        source = re.fullmatch(r"\[(\w+)\]\(#from-\w+\)", source)[1]
        section = WRITTEN.split(f"### From {source}\n")[1].split("\n#")[0]
        for target, word in zip(targets, words, strict=True):
            _, zero_copy, _ = re.search(
                rf"^\| {target} \| (.*) \| (.*) \| (.*) \|$", section, re.MULTILINE
            ).groups()
            expected = {"alias": ("yes", "any layout"), "copy": ("no",)}.get(word)
            assert zero_copy in expected if expected else zero_copy.startswith("if 1-D"), (source, target)
