"""Pages of the site in a browser: axe has no serious findings, and no page is wider than a phone.

Needs the groups ``docs`` and ``test``, Chromium, and axe: ``npm install --no-save axe-core`` in the
repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.chromium import CHROMIUM, launched
from helpers.paths import ROOT

for module in ("sphinx", "myst_nb", "numpydoc", "pydata_sphinx_theme", "sphinx_copybutton"):
    pytest.importorskip(module, reason="part of the group docs")
pytest.importorskip("playwright", reason="part of the group test")

AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
needs_axe = pytest.mark.skipif(
    not AXE.exists(), reason="axe is not installed: npm install --no-save axe-core"
)
pytestmark = [pytest.mark.full, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]

DESKTOP, PHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def files(site: Path) -> list[Path]:
    """All pages, without listings of source code."""
    pages = [file for file in site.rglob("*.html") if not {"_static", "_modules"} & set(file.parts)]
    assert len(pages) > 100
    return sorted(pages)


def findings(page: Any, files: list[Path], rules: list[str] | None = None) -> list[str]:
    """Return the serious findings of axe, each as the page, the rule and the first element."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": rules}
    script, serious = AXE.read_text(encoding="utf-8"), []
    for file in files:
        page.goto(file.as_uri())
        page.evaluate(script)
        violations = page.evaluate("options => axe.run(document, options)", options)["violations"]
        serious += [
            f"{file.name}: {violation['id']}: {violation['nodes'][0]['html'][:120]}"
            for violation in violations
            if violation["impact"] in SERIOUS
        ]
    return serious


@needs_axe
def test_pages_have_no_serious_findings(browser: Any, files: list[Path]) -> None:
    page = browser.new_page(viewport=DESKTOP, color_scheme="light", reduced_motion="reduce")
    assert findings(page, files) == []


@needs_axe
def test_dark_pages_have_contrast(browser: Any, files: list[Path]) -> None:
    page = browser.new_page(viewport=DESKTOP, color_scheme="dark", reduced_motion="reduce")
    assert findings(page, files, ["color-contrast"]) == []


@needs_axe
def test_keyboard_scrolls_elements_wider_than_a_phone(browser: Any, files: list[Path]) -> None:
    page = browser.new_page(viewport=PHONE, reduced_motion="reduce")
    assert findings(page, files, ["scrollable-region-focusable"]) == []


def test_no_page_is_wider_than_a_phone(browser: Any, files: list[Path]) -> None:
    page, wider = browser.new_page(viewport=PHONE), []
    for file in files:
        page.goto(file.as_uri())
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wider.append(file.name)
    assert wider == []
