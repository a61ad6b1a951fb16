"""The site is built without a warning, has a page for every public name, and its links lead somewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from helpers.paths import ROOT

import zerocopy

for module in ("sphinx", "myst_parser", "numpydoc", "pydata_sphinx_theme", "sphinx_copybutton"):
    pytest.importorskip(module, reason="it is in the extra docs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it by its one command; warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [sys.executable, *command, str(ROOT / "docs"), str(folder / "html")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Page(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = (file for file in site.rglob("*.html") if "_static" not in file.parts)  # the theme's own there
    return {file: Page(file) for file in found}


@pytest.mark.parametrize("name", zerocopy.__all__)
def test_every_public_name_is_in_the_reference(name: str, site: Path, pages: dict[Path, Page]) -> None:
    page = "index" if name == "__version__" else f"generated/zerocopy.{name}"
    assert f"zerocopy.{name}" in pages[site / "api" / f"{page}.html"].ids


def test_every_page_is_in_the_navigation(site: Path, pages: dict[Path, Page]) -> None:
    """Beside the content, on every page: so from the index."""
    files = [f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md") if page.stem != "index"]
    files += ["api/index.html", "project/contributing.html", "project/changes.html"]
    assert [file for file in files if file not in pages[site / "index.html"].links] == []


def test_links_lead_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    lost = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchors = pages[there].ids if there in pages else {unquote(parts.fragment)}
            if not there.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                lost.append(f"{file.relative_to(site)}: {link}")
    assert lost == []


def test_links_to_the_repository_lead_to_files_that_are_there(pages: dict[Path, Page]) -> None:
    """Those that a forge shows beside the pages lead to the forge from here."""
    start = "https://github.com/zerocopy/zerocopy/"
    found = {link for page in pages.values() for link in page.links if link.startswith(start)}
    files = {urlsplit(link).path.split("/main/", 1)[1] for link in found if "/main/" in link}
    assert any(file.startswith("benchmarks/results/") for file in files)
    assert [file for file in files if not (ROOT / file).exists()] == []
