"""The site builds without warnings, has a page for every public name, and its links resolve."""

from __future__ import annotations

import html
import json
import posixpath
import re
import subprocess
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from helpers.chromium import CHROMIUM
from helpers.paths import ROOT

import zerocopy

PLUGINS = ("myst_nb", "numpydoc", "pydata_sphinx_theme", "sphinx_copybutton", "sphinx_llms_txt")
for module in ("sphinx", *PLUGINS):
    pytest.importorskip(module, reason="part of the group docs")


class Page(HTMLParser):
    """The links and the anchors of a page."""

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
    files = (file for file in site.rglob("*.html") if "_static" not in file.parts)
    return {file: Page(file) for file in files}


#: The first function of each public module, and the errors, which have one place.
PLACES = {"errors": "errors.ReadError", "monitor": "monitor.record", "shared": "shared.start_broker"}
PLACES |= {name: f"errors.{name}" for name in vars(zerocopy.errors) if name.endswith("Error")}


@pytest.mark.parametrize("name", [*zerocopy.__all__, "OptionError"])
def test_reference_has_every_public_name(name: str, site: Path, pages: dict[Path, Page]) -> None:
    name = PLACES.get(name, name)
    page = "index" if name == "__version__" else f"generated/zerocopy.{name}"
    assert f"zerocopy.{name}" in pages[site / "api" / f"{page}.html"].ids


def test_navigation_has_every_page(site: Path, pages: dict[Path, Page]) -> None:
    """The sidebar of each page has all pages; those below a page are in its own sidebar."""
    docs = ROOT / "docs"
    files = [f"{page.stem}.html" for page in docs.glob("*.md") if page.stem != "index"]
    top = [file for file in files if not file.endswith("benchmarks.html")]
    top += ["api/index.html", "project/contributing.html", "project/changes.html"]
    listed = {"index": top, "measurements": [file for file in files if file.endswith("benchmarks.html")]}
    for parent in docs.glob("*.md"):
        below = [f"{parent.stem}/{page.stem}.html" for page in parent.with_suffix("").glob("*.md")]
        listed |= {parent.stem: below} if below else {}
    for page, expected in listed.items():
        html = (site / f"{page}.html").read_text(encoding="utf-8")
        sidebar = html.partition('class="bd-docs-nav')[2].partition("</nav>")[0]
        assert not [file for file in expected if f'href="{file}"' not in sidebar]
    written = [file.read_text(encoding="utf-8") for file in pages if "generated" not in file.parts]
    titles = [text.partition("<title>")[2].partition("</title>")[0] for text in written]
    assert len(titles) == len(set(titles))


def test_links_resolve(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchors = pages[target].ids if target in pages else {unquote(parts.fragment)}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert broken == []


def test_links_to_repository_files_are_downloads(site: Path, pages: dict[Path, Page]) -> None:
    """Files that GitHub shows are part of the site, unchanged, under the text of the link."""
    assert [file.name for file in pages if "&lt;inline" in file.read_text(encoding="utf-8")] == []
    links = {
        (file.parent / unquote(link)).resolve()
        for file, page in pages.items()
        for link in page.links
        if "_downloads/" in link
    }
    files = {file.name: file for file in links}
    results = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    assert any(result.name in files for result in results)
    for result in results:
        if result.name in files:
            assert files[result.name].read_bytes() == result.read_bytes()


#: Search queries, each with the page that must come first.
QUERIES = {
    "nulls": "tables/to-tensors",
    "install": "quickstart",
    "segfault": "troubleshooting",
    "alignment": "semantics",
    "lightning": "training-frameworks",
    "cite": "faq",
    "DataLoader": "loader",
    "shuffle": "loader",
    "checkpoint": "loader",
    "dates": "tables/to-tensors",
    "missing values": "tables/to-tensors",
    "gradients": "bridge",
    "shared memory": "processes",
    "multiprocessing": "processes",
    "Dask": "processes/dask-ray-flight",
    "slurm": "clusters",
    "ResourceClaim": "clusters",
    "Docker": "clusters",
    "out of memory": "pool",
    "migration": "replacements",
    "safetensors": "weights",
    "embeddings": "embeddings",
    "plugin": "adding-a-framework",
    "minimum version": "support",
    "glossary": "glossary",
    "sparse": "sparse",
    "pandas": "pandas-3",
    "GPU": "gpu",
    "benchmarks": "measurements",
    "changelog": "project/changes",
    "convert": "api/generated/zerocopy.convert",
}

#: A page that runs the site's own search for each query and writes the names of the first pages.
SEARCH_PAGE = """<html data-content_root="../"><body><pre id="result"></pre>
<script src="documentation_options.js"></script><script src="doctools.js"></script>
<script src="sphinx_highlight.js"></script><script src="language_data.js"></script>
<script src="searchtools.js"></script><script src="../searchindex.js"></script>
<script>
const search = (query) => Search._performSearch(...Search._parseQuery(query)).reverse();
const pages = (query) => search(query).slice(0, 5).map((one) => one[0]);
const first = Object.fromEntries(QUERIES.map((query) => [query, pages(query)]));
document.getElementById("result").textContent = JSON.stringify(first);
</script></body></html>"""


def run_in_chromium(page: Path, text: str) -> Any:
    """Write a page, and return the JSON that it writes into its element ``result``."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    page.write_text(text, encoding="utf-8")
    # A profile of its own: another Chromium of this user may run.
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.with_suffix('')}"]
    options += ["--allow-file-access-from-files"]
    command = [CHROMIUM, *options, "--virtual-time-budget=60000", "--dump-dom", page.as_uri()]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    result = completed.stdout.partition('<pre id="result">')[2].partition("</pre>")[0]
    assert result, completed.stderr
    return json.loads(html.unescape(result))


@pytest.fixture(scope="module")
def results(site: Path) -> dict[str, list[str]]:
    """The first pages for each query."""
    text = SEARCH_PAGE.replace("QUERIES", json.dumps(list(QUERIES)))
    return run_in_chromium(site / "_static" / "queries.html", text)


@pytest.mark.parametrize("query", QUERIES)
def test_search_shows_the_right_page_first(query: str, results: dict[str, list[str]]) -> None:
    assert results[query][:1] == [QUERIES[query]]


def test_words_of_the_search_are_those_of_existing_pages() -> None:
    words = tomllib.loads((ROOT / "docs" / "search_words.toml").read_text(encoding="utf-8"))
    pages = {
        path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.*")
    }
    assert not set(words) - pages
    every = [word for line in words.values() for word in line.split(", ")]
    assert len(every) == len(set(every))


def test_other_sites_can_link_every_public_name(site: Path) -> None:
    """With intersphinx, which reads objects.inv."""
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, ".", posixpath.join)
    linked = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    assert {f"zerocopy.{PLACES.get(name, name)}" for name in zerocopy.__all__} <= linked


def test_llms_txt_lists_the_markdown_of_each_page(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# zerocopy\n\n> ")
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", text, re.MULTILINE)
    pages = {f"_sources/{page.relative_to(ROOT / 'docs')}": page for page in (ROOT / "docs").glob("*.md")}
    assert pages.keys() <= {address for _, address in listed}
    for title, address in listed:
        source = (site / address).read_bytes()
        assert title
        assert address not in pages or source == pages[address].read_bytes()


def test_notebooks_can_be_downloaded(site: Path, pages: dict[Path, Page]) -> None:
    notebooks = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    for notebook in notebooks:
        links = pages[site / "notebooks" / f"{notebook.stem}.html"].links
        (link,) = [link for link in links if link.endswith(notebook.name)]
        assert (site / "notebooks" / unquote(link)).read_bytes() == notebook.read_bytes()
