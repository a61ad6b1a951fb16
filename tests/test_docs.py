"""The documentation is true: each example runs, each link leads somewhere, each test it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from conftest import ROOT

from zerocopy import errors

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *DOCS]
FENCE = re.compile(r"^```(\S*)[ \t]*(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# Its blocks are files of their own: test_registry runs the first three as that, and a test below the others.
OWN_TEST = {"adding-a-framework.md"}

RUNNER = """
import doctest, sys
page, blocks = {page!r}, {blocks!r}
names = {{"__name__": "__main__"}}
parser = doctest.DocTestParser()
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
for line, block in blocks:
    if ">>> " in block:
        test = parser.get_doctest(block, {{}}, page, page, line)
        test.globs = names  # one namespace a page: a block goes on where the last one stopped
        runner.run(test, out=sys.stderr.write, clear_globs=False)
    else:
        exec(compile("\\n" * line + block, page, "exec"), names)
sys.exit(runner.failures > 0)
"""


def blocks(page: Path, *, run: bool = True) -> list[tuple[int, str]]:
    """Return a page's Python examples with the line that each begins at; or those not to be run."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(3)), match[3])
        for match in FENCE.finditer(text)
        if match[1] == "python" and (match[2] != "no-run") == run
    ]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if p.name not in OWN_TEST and blocks(p)], ids=name)
def test_examples_run(page: Path, run_python) -> None:
    """All of a page in one process, as a reader would paste it; there JAX has its defaults, x64 off."""
    tables = ("pyarrow", "pandas", "polars", "duckdb", "nanoarrow")
    for framework in ("torch", "jax", "tensorflow", "ml_dtypes", *tables):
        pytest.importorskip(framework)
    done = run_python(RUNNER.format(page=name(page), blocks=blocks(page)))
    assert done.returncode == 0, done.stderr


def test_the_example_with_tables_is_a_whole_framework(run_python) -> None:
    """Three files, each run as a module of its own."""
    for framework in ("torch", "pyarrow"):
        pytest.importorskip(framework)
    _, _, _, *files = (block for _, block in blocks(ROOT / "docs" / "adding-a-framework.md"))
    library, framework, use = files
    done = run_python(
        f"""
import sys, types
library = types.ModuleType("sheets"); sys.modules["sheets"] = library
exec({library!r}, library.__dict__)
file = types.ModuleType("sheets_zerocopy"); sys.modules["sheets_zerocopy"] = file
exec({framework!r}, file.__dict__)
exec({use!r}, {{}})
"""
    )
    assert done.returncode == 0, done.stderr


def test_few_examples_are_not_run() -> None:
    """For what kills the process, and for what is not installed beside the rest."""
    left_out = [block for page in PAGES for _, block in blocks(page, run=False)]
    for block in left_out:
        ast.parse(block)
    assert len(left_out) <= 7


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", prose):
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{path} is not there"
        if anchor:
            assert anchor in _anchors(there), f"{path}#{anchor} is not there"


def _anchors(page: Path) -> set[str]:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"\btests/[\w/]+\.py\b", text):
        assert (ROOT / path).exists(), path
    for test in re.findall(r"`(?:tests/\w+\.py::)?(test_\w+)`", text):
        assert test in _tests(), test


def _tests() -> set[str]:
    found: set[str] = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        found |= set(re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    return found


def test_every_hazard_is_on_its_page() -> None:
    page = (ROOT / "docs" / "hazards.md").read_text(encoding="utf-8")
    tests = re.findall(r"^def (test_\w+)", (ROOT / "tests" / "test_hazards.py").read_text(), re.MULTILINE)
    assert not [test for test in tests if f"`{test}`" not in page]


def test_every_error_is_on_its_page() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.ZeroCopyError):
            assert f"`{error.__name__}`" in page


def test_figures_of_the_pool_are_those_of_its_results() -> None:
    """Times that README and the page on pools quote are on the page that is made of the results."""
    measured = (ROOT / "docs" / "pool-benchmarks.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    told = readme[readme.index("With it 64 MB") : readme.index("## Two commands")]
    page = (ROOT / "docs" / "pool.md").read_text(encoding="utf-8")
    told += page[page.index("Measured (") : page.index("## What cannot be done")]
    figures = re.findall(r"\d[\d.]* (?:ms|us|ns)\b", told)
    assert len(figures) == 14
    assert [figure for figure in figures if f" {figure} " not in measured] == []


def test_the_map_has_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert not [page.name for page in DOCS if page.name != "index.md" and f"({page.name})" not in index]
