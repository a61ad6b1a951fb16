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


def rows(page: str, title: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without the head."""
    _, _, *lines = re.findall(
        r"^\| (.*) \|$", page.partition(f"\n{title}\n")[2].split("\n#")[0], re.MULTILINE
    )
    return [line.split(" | ") for line in lines]


SOURCES = [source for source, *_ in rows(PAIRS, "### Sources")]


@pytest.mark.full
def test_page_matches_conversions(tmp_path) -> None:
    sources = SOURCES
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
    """Installed frameworks have a row of the sources and a version, the others a row of their own."""
    tested = COMMITTED.partition("\n## Versions\n")[2]
    absent = [name for name, *_ in rows(COMMITTED, "## Not run here")]
    for name, info in registry.frameworks().items():
        if info.kind == "compound":
            continue  # it has no dense arrays
        converted = name in SOURCES
        assert converted == bool(re.search(rf"\b{name} \d", tested)), name
        assert converted != (name in absent), name


def copied_layouts(source: str, target: str) -> set[str]:
    """Return the layouts that a pair copies, of the table of copies and refusals."""
    lacks = next(row[2] for row in rows(PAIRS, "### Sources") if row[0] == source).split(", ")
    copied: set[str] = set()
    for targets, outcome, inputs, _ in rows(PAIRS, "### Copies and refusals"):
        names = targets.split(", ")
        if outcome == "copies" and (target in names or (names == ["all others"] and target != source)):
            for part in inputs.split("; "):
                items, _, sources = part.partition(" from ")
                if not sources or source in sources.split(", "):
                    copied |= {*items.split(", ")}
    return (copied & {"all", "1-D", "at 16 bytes", "every second", "reversed", "2-D", "column-major"}) - {
        *lacks
    }


def test_grid_agrees_with_reasons() -> None:
    """A pair marked "alias" copies no layout; a pair marked "copy" copies all."""
    head = COMMITTED[COMMITTED.index("| from \\ to |") :].partition("\n")[0]
    targets = head.strip("| ").split(" | ")[1:]
    assert targets == SOURCES
    for source, *words in rows(COMMITTED, "## Grid")[: len(targets)]:
        for target, word in zip(targets, words, strict=True):
            copied = copied_layouts(source, target)
            expected = "alias" if not copied else "copy" if "all" in copied else "1-D"
            assert word == ("aligned" if "at 16 bytes" in copied else expected), (source, target, copied)
