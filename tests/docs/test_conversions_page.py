"""docs/conversions.md is up to date: it is generated again by converting, and compared."""

from __future__ import annotations

import re

import pytest
from helpers.generated_pages import generate, without_versions
from helpers.paths import ROOT

from zerocopy import registry

PAGE = ROOT / "docs" / "conversions.md"
COMMITTED = PAGE.read_text(encoding="utf-8")


@pytest.mark.full
def test_page_matches_conversions() -> None:
    sources = re.findall(r"^### From (\w+)$", COMMITTED, re.MULTILINE)
    for framework in sources:
        pytest.importorskip(framework)
    missing = [
        known.name
        for known in map(registry.by_name, registry.frameworks())
        if known.installed()
        and "cpu" in known.device_kinds
        and known.kind != "compound"
        and known.name not in sources
    ]
    if missing:
        pytest.skip(f"the page was generated without {', '.join(missing)}")
    assert without_versions(generate("conversions.py")) == without_versions(COMMITTED)


def test_page_lists_every_framework() -> None:
    """Installed frameworks have a section and a version, the others a row."""
    for name, info in registry.frameworks().items():
        if info.kind == "compound":
            continue  # it has no dense arrays
        converted = f"### From {name}\n" in COMMITTED
        assert converted == bool(re.search(rf"^\| {name} \| \d[\w.+]* \|$", COMMITTED, re.MULTILINE)), name
        absent = COMMITTED[COMMITTED.index("## Not run here") :]
        assert converted != (f"\n| {name} | t" in absent), name


def test_grid_agrees_with_sections() -> None:
    """A pair marked "alias" has no layout that copies; a pair marked "copy" has no alias."""
    head, *rows = re.findall(
        r"^\| (.*) \|$", COMMITTED[COMMITTED.index("## Grid") :].split("\n\n")[2], re.MULTILINE
    )
    targets = head.split(" | ")[1:]
    assert len(rows) == len(targets) + 1  # including the line below the head
    for row in rows[1:]:
        source, *words = row.split(" | ")
        source = re.fullmatch(r"\[(\w+)\]\(#from-\w+\)", source)[1]
        section = COMMITTED.split(f"### From {source}\n")[1].split("\n#")[0]
        for target, word in zip(targets, words, strict=True):
            _, zero_copy, _ = re.search(
                rf"^\| {target} \| (.*) \| (.*) \| (.*) \|$", section, re.MULTILINE
            ).groups()
            expected = {"alias": ("yes", "any layout"), "copy": ("no",)}.get(word)
            assert zero_copy in expected if expected else zero_copy.startswith("if 1-D"), (source, target)
