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
from urllib.parse import quote, unquote, urlsplit

import pytest
from helpers.chromium import CHROMIUM
from helpers.paths import ROOT, SITE_ADDRESS

import zerocopy

PLUGINS = ("myst_nb", "numpydoc", "pydata_sphinx_theme", "sphinx_copybutton", "sphinx_llms_txt")
PLUGINS += ("sphinxext.opengraph", "notfound", "sphinx_sitemap")
for module in ("sphinx", *PLUGINS):
    pytest.importorskip(module, reason="part of the group docs")


BASE = urlsplit(SITE_ADDRESS).path


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
            folder = (
                site if parts.path.startswith(BASE) else file.parent
            )  # the page of 404 has absolute links
            path = parts.path.removeprefix(BASE)
            target = (folder / unquote(path)).resolve() if path else file
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
    "text copied": "tables/types",
    "xgboost": "faq",
    "excel": "tables/between",
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
    "pandas": "tables",
    "GPU": "gpu",
    "benchmarks": "measurements",
    "changelog": "project/changes",
    "convert": "api/generated/zerocopy.convert",
}

#: Queries of several words as people type them, each with a page that must be among the first three.
PHRASES = {
    "frobnicated parquet resume": "loader",  # a word that no page has
    "oldest supported version parquet sparse": "support",  # no page has all words
    "pandas missing values to torch": "tables/to-tensors",
    "string column to codes": "tables/to-tensors",
    "monitor remote": "monitor",
    "attention mask": "loader/text",
    "padded token batches": "loader/text",
    "colab": "support",
    "google colab install": "support",
    "any array type": "functions",
    "pandas 2": "faq",
    "pandas 2.2 is refused": "faq",
    "upgrade pandas": "faq",
    "systemd": "monitor/outputs",
    "daemonset": "monitor/outputs",
    "free threading": "support",
    "free-threaded python": "support",
    "subinterpreters": "support",
    "numpy to torch without copy": "quickstart",
    "torch tensor to numpy": "replacements",
    "polars to torch": "tables/to-tensors",
    "dataframe to tensor": "tables/to-tensors",
    "csv to numpy": "loader",
    "read csv files in batches": "loader",
    "csv to matrix scikit-learn": "loader",
    "nan instead of null": "tables/to-tensors",
    "timestamps to tensor": "tables/to-tensors",
    "one hot categories": "tables/to-tensors",
    "duckdb query to torch": "tables/to-tensors",
    "pandas read-only array": "tables",
    "ValueError: assignment destination is read-only": "faq",
    "bibtex": "faq",
    "what type does convert return": "sources-and-results",
    "write to tensor changes array": "semantics",
    "jax 64 bit integers": "faq",
    "jax truncates int64": "hazards/jax",
    "negative strides torch": "hazards/torch",
    "python crashes from_dlpack": "troubleshooting",
    "dataloader hangs": "troubleshooting",
    "dataloader num_workers shared memory": "troubleshooting",
    "memory keeps growing": "troubleshooting",
    "bus error": "troubleshooting",
    "first call is slow": "troubleshooting",
    "wrong values after conversion": "troubleshooting",
    "how fast is convert": "measurements",
    "compare with pytorch dataloader": "loader-benchmarks",
    "resume training from checkpoint": "loader",
    "shuffle large parquet files": "loader",
    "lightning ddp": "training-frameworks",
    "hugging face datasets": "training-frameworks",
    "read from s3": "loader",
    "images in a loader": "loader",
    "image folder": "comparison",
    "pinned memory": "loader/gpus",
    "load safetensors without copy": "weights",
    "save tensors to file": "weights",
    "numpy arrays in shared memory": "processes",
    "share memory between processes": "processes",
    "camera frames to other process": "processes/channels",
    "ring buffer": "processes/channels",
    "producer consumer queue": "processes/channels",
    "ray actors": "processes/dask-ray-flight",
    "dask workers share memory": "processes/dask-ray-flight",
    "spark dataframe": "clusters",
    "arrow flight server": "processes/dask-ray-flight",
    "slurm job several nodes": "clusters",
    "kubernetes gpu": "clusters",
    "/dev/shm cleanup": "clusters",
    "SIGKILL worker shared memory": "clusters",
    "dask nanny kills worker memory": "processes/dask-ray-flight",
    "worker paused unmanaged memory": "processes/dask-ray-flight",
    "dead process left shared memory": "processes",
    "/dev/shm full": "processes",
    "pickle large arrays": "processes/pickle",
    "which lines copy": "monitor",
    "find hidden copies": "audit",
    "fail a test if something copies": "forbid-copies",
    "map-style dataset": "training-frameworks",
    "prometheus metrics": "monitor/outputs",
    "alert when a job copies": "monitor/outputs",
    "alerting": "monitor/outputs",
    "gpu memory by process": "monitor/gpus",
    "cuda out of memory": "pool",
    "share gpu between jax and torch": "pool",
    "limit gpu memory": "pool",
    "nvidia driver version": "support",
    "compute capability": "support",
    "cuda streams": "gpu",
    "amd gpu": "gpu",
    "apple silicon mps": "support",
    "macos": "support",
    "windows support": "support",
    "python 3.15": "support",
    "oldest supported version": "support",
    "optional dependency in my library": "in-your-library",
    "accept any array": "functions",
    "is it a dataframe or an array": "in-your-library",
    "array api": "functions",
    "what does a call cost": "in-your-library",
    "gradient through jax from torch": "bridge",
    "structured array to columns": "layouts",
    "list column to 2d tensor": "embeddings",
    "sparse matrix to torch": "sparse",
    "nested lists different lengths": "ragged",
    "xarray to torch": "labelled",
    "dict of arrays": "sources-and-results",
    "error message meaning": "errors",
    "catch exceptions": "errors",
    "untrusted input": "security",
    "report a security problem": "project/security",
    "add my own array type": "adding-a-framework",
    "when not to use": "comparison",
    "einops narwhals alternative": "comparison",
    "environment variables": "cheatsheet",
    "fp8": "weights",
    "safetensors checkpoint": "weights",
    "bfloat16 fp8 safetensors checkpoint to jax numpy": "weights",
    "int4 quantised weights": "weights",
    "load weights to gpu": "weights",
    "cuda stream synchronization torch to jax": "gpu",
    "stream synchronize": "gpu",
    "assert no copies in CI": "forbid-copies",
    "CI test assert no copy": "forbid-copies",
    "memmap": "hazards/torch",
    "share array between ranks": "processes",
    "ddp ranks shared array": "processes",
    "large array dataloader workers": "processes",
    "memmap segfault": "troubleshooting",
    "test my DLPack producer in CI": "testing",
    "CI": "testing",
    "nanobind": "testing",
    "pybind11": "testing",
    "deleter": "dlpack",
    "threads free-threaded deleter": "faq",
    "versioning vendoring pin semver": "in-your-library",
    "semver": "support",
    "vendoring": "in-your-library",
    "manylinux wheels": "support",
    "musl alpine": "support",
    "pypy": "support",
}

#: A page that runs the site's own search for each query and writes the names of the first pages.
SEARCH_PAGE = """<html data-content_root="../"><body><pre id="result"></pre>
<script src="documentation_options.js"></script><script src="doctools.js"></script>
<script src="sphinx_highlight.js"></script><script src="searchtools.js"></script>
<script src="language_data.js"></script><script src="../searchindex.js"></script>
<script>
const search = (query) => Search._performSearch(...Search._parseQuery(query)).reverse();
const pages = (query) => [...new Set(search(query).map((one) => one[0]))].slice(0, 5);
const first = Object.fromEntries(QUERIES.map((query) => [query, pages(query)]));
document.getElementById("result").textContent = JSON.stringify(first);
</script></body></html>"""


def page_in_chromium(address: str, profile: Path) -> str:
    """Return the elements of a page after its scripts have run."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    # A profile of its own: another Chromium of this user may run.
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    options += ["--allow-file-access-from-files"]
    command = [CHROMIUM, *options, "--virtual-time-budget=60000", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300).stdout


@pytest.fixture(scope="module")
def results(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The first pages for each query."""
    page = site / "_static" / "queries.html"
    page.write_text(SEARCH_PAGE.replace("QUERIES", json.dumps([*QUERIES, *PHRASES])), encoding="utf-8")
    written = page_in_chromium(page.as_uri(), tmp_path_factory.mktemp("profile"))
    result = written.partition('<pre id="result">')[2].partition("</pre>")[0]
    assert result, written
    return json.loads(html.unescape(result))


@pytest.mark.parametrize("query", QUERIES)
def test_search_shows_the_right_page_first(query: str, results: dict[str, list[str]]) -> None:
    assert results[query][:1] == [QUERIES[query]]


@pytest.mark.parametrize("query", PHRASES)
def test_search_finds_phrases(query: str, results: dict[str, list[str]]) -> None:
    assert PHRASES[query] in results[query][:3], results[query]


def test_page_of_the_search_has_the_same_order(site: Path, tmp_path: Path) -> None:
    """The theme's page, which loads the scripts itself."""
    query = "pandas missing values to torch"
    shown = page_in_chromium(f"{(site / 'search.html').as_uri()}?q={quote(query)}", tmp_path)
    (first, *_) = re.findall(r'<a href="([^"?#]+)', shown.partition('id="search-results"')[2])
    assert first == f"{PHRASES[query]}.html"


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


@pytest.mark.parametrize(
    ("page", "link"),
    [
        ("api/generated/zerocopy.convert", "https://docs.pytorch.org/docs/stable/tensors.html#torch.Tensor"),
        ("loader", "https://arrow.apache.org/docs/python/generated/pyarrow.Table.html#pyarrow.Table"),
        ("sources-and-results", "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.html"),
    ],
)
def test_names_of_other_projects_are_links(page: str, link: str, site: Path, pages: dict[Path, Page]) -> None:
    """By inventories in the repository: the build needs no network."""
    assert any(each.startswith(link) for each in pages[site / f"{page}.html"].links)


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


def test_pages_have_a_description_and_a_card(site: Path, pages: dict[Path, Page]) -> None:
    """Which search engines and other sites show; a description is the beginning of the page's text."""
    for file in pages:
        source = (ROOT / "docs" / file.relative_to(site)).with_suffix(".md")
        if not source.exists():
            continue
        tags = dict(
            re.findall(r'<meta (?:name|property)="([\w:]+)" content="([^"]*)"', file.read_text("utf-8"))
        )
        assert len(tags["description"]) > 40, file.name
        assert tags["og:url"] == SITE_ADDRESS + file.relative_to(site).as_posix()
        image = tags["og:image"].removeprefix(SITE_ADDRESS)
        assert (site / image).read_bytes() == (ROOT / "docs" / "pictures" / Path(image).name).read_bytes()


def test_sitemap_has_the_pages(site: Path, pages: dict[Path, Page]) -> None:
    listed = set(re.findall(r"<loc>(.+?)</loc>", (site / "sitemap.xml").read_text(encoding="utf-8")))
    names = {file.relative_to(site).as_posix() for file in pages if "_modules" not in file.parts}
    names -= {"404.html", "search.html", "genindex.html", "py-modindex.html"}
    assert listed == {SITE_ADDRESS + name for name in names}


def test_page_of_404_searches(site: Path) -> None:
    """From any address: its links are absolute."""
    text = (site / "404.html").read_text(encoding="utf-8")
    assert f'<form action="{BASE}search.html" method="get"' in text
    links = re.findall(r'(?:href|src)="([^"]+)"', text)
    assert [link for link in links if not link.startswith((SITE_ADDRESS, BASE, "#"))] == []


def test_tables_have_no_empty_header(pages: dict[Path, Page]) -> None:
    empty = re.compile(r"<thead>\s*<tr[^>]*>(?:\s*<th[^>]*>(?:<p></p>)?</th>)+\s*</tr>\s*</thead>")
    assert [file.name for file in pages if empty.search(file.read_text(encoding="utf-8"))] == []


def test_sidebar_tells_functions_of_one_name_apart(site: Path) -> None:
    sidebar = (site / "api" / "index.html").read_text(encoding="utf-8").partition("bd-docs-nav")[2]
    titles = re.findall(
        r'class="reference internal" href="generated/[^"]+">([^<]+)<', sidebar.partition("</nav>")[0]
    )
    assert "dask.install" in titles
    assert len(titles) == len(set(titles)) > 80


def test_notebooks_can_be_downloaded(site: Path, pages: dict[Path, Page]) -> None:
    notebooks = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    for notebook in notebooks:
        links = pages[site / "notebooks" / f"{notebook.stem}.html"].links
        (link,) = [link for link in links if link.endswith(notebook.name)]
        assert (site / "notebooks" / unquote(link)).read_bytes() == notebook.read_bytes()
