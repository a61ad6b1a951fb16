"""docs/conversions.md and the page below it are up to date: they are generated again, and compared."""

from __future__ import annotations

import re

import pytest
from helpers.generated_pages import generate, without_versions
from helpers.paths import ROOT

from zerocopy import registry

PAGE = ROOT / "docs" / "conversions.md"
COMMITTED = PAGE.read_text(encoding="utf-8")
PAIRS = (ROOT / "docs" / "conversions" / "pairs.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_page_matches_conversions(tmp_path) -> None:
    sources = re.findall(r"^### From (\w+)$", PAIRS, re.MULTILINE)
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
    generate("conversions.py", str(tmp_path))
    page, pairs = ((tmp_path / f"conversions{name}.md").read_text("utf-8") for name in ("", "/pairs"))
    assert without_versions(page) == without_versions(COMMITTED)
    assert pairs == PAIRS


def test_page_lists_every_framework() -> None:
    """Installed frameworks have a section and a version, the others a row."""
    for name, info in registry.frameworks().items():
        if info.kind == "compound":
            continue  # it has no dense arrays
        converted = f"### From {name}\n" in PAIRS
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
        source = re.fullmatch(r"\[(\w+)\]\(conversions/pairs.md#from-\w+\)", source)[1]
        section = PAIRS.split(f"### From {source}\n")[1].split("\n#")[0]
        for target, word in zip(targets, words, strict=True):
            _, zero_copy, _ = re.search(
                rf"^\| {target} \| (.*) \| (.*) \| (.*) \|$", section, re.MULTILINE
            ).groups()
            expected = {"alias": ("yes", "any layout"), "copy": ("no",)}.get(word)
            assert zero_copy in expected if expected else zero_copy.startswith("if 1-D"), (source, target)
