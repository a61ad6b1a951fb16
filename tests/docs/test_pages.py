"""The documentation is true: examples run, links lead somewhere, tests exist, figures were measured."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.paths import ROOT

import zerocopy
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


#: A figure of speed or memory: what somebody would measure.
FIGURE = re.compile(
    r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?)(?:"
    r"\s?(ns|us|µs|ms|s|seconds?|minutes?|[KMGT]i?B/s|[KMGT]i?B|kB|%|percent)(?![\w/])"
    r"|(x)(?=[\s,.;:)|]|$)"
    r"|\s(times)\s(?:as\s(?:fast|slow|long|much|many)|(?:the|their|its)\s(?:speed|time)|faster|slower|longer|more|less)\b)"
)
#: The same unit written in two ways.
UNITS = {"µs": "us", "second": "s", "seconds": "s", "percent": "%", "kB": "KB", "times": "x"}

#: Figures that nobody measured, by page, with the reason: sizes that the code or an example chooses.
NOT_MEASURED: dict[str, dict[str, str]] = {
    "hazards.md": dict.fromkeys(("1001 ns", "1000 ns"), "a duration that is converted"),
    "layouts.md": {
        "4 KiB": "the size of a tile",
        "16 MiB": "from there on output goes past the caches",
        "256 KiB": "below it NumPy moves the records",
    },
    "layouts-gpu.md": {
        **dict.fromkeys(("16 KB", "32 KB"), "the size of a tile"),
        "4 KiB": "from there on records are read from memory as they lie",
    },
    "pool.md": {
        "4 MiB": "the largest bin of RMM's, from its documentation",
        **dict.fromkeys(("40 GiB", "9 GiB"), "a card that is shared, and what to write then"),
    },
}


def _figures(text: str) -> Iterator[str]:
    """Yield figures as number and unit. What one types is none: code in a line, and in a block of a language.

    A block of text or without a language is output, which may have figures.
    """
    prose = FENCE.sub(lambda block: block[3] if block[1] in ("", "text") else "", text)
    for match in FIGURE.finditer(re.sub(r"`[^`\n]*`", "", prose)):
        unit = match[2] or match[3] or match[4]
        yield f"{match[1].rstrip(',')} {UNITS.get(unit, unit)}"


def test_figures_are_found_as_they_are_written() -> None:
    text = """
6.32 us, 1.3x faster and 0.95 times their speed; 699.0 MiB (2 GB/s) in 3 seconds, 20 percent.
DLPack 1.x, 3 x f4, a multiple of 64 bytes, `limit="8GiB"`, int64s, torch 2.13, 4x4.
```python
>>> pool(limit="9GiB")
```
```text
numpy  98 ns
```
"""
    assert list(_figures(text)) == [
        *("6.32 us", "1.3 x", "0.95 x", "699.0 MiB", "2 GB/s", "3 s", "20 %", "98 ns"),
    ]


def _made() -> dict[str, str]:
    """Return the pages that are made from results, by name."""
    return {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*benchmarks.md")}


QUOTING = [page for page in (ROOT / "README.md", *DOCS) if page.name not in _made()]


@pytest.mark.parametrize("page", QUOTING, ids=name)
def test_figures_were_measured(page: Path) -> None:
    """A figure is on a page that is made from results and that the page links to, or is listed above."""
    text = page.read_text(encoding="utf-8")
    made = _made()
    linked = set(re.findall(r"\]\((?:docs/)?([\w-]*benchmarks\.md)[#)]", text))
    measured = {figure for found in linked & set(made) for figure in _figures(made[found])}
    others = [figure for figure in _figures(text) if figure not in NOT_MEASURED.get(page.name, {})]
    assert not [figure for figure in others if figure not in measured], (
        f"not in {sorted(linked) or 'any page'}"
    )


@pytest.mark.parametrize("page", NOT_MEASURED)
def test_figures_that_nobody_measured_are_still_there(page: str) -> None:
    assert not set(NOT_MEASURED[page]) - set(_figures((ROOT / "docs" / page).read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", sorted(_made()))
def test_pages_of_benchmarks_are_made_of_full_runs(page: str) -> None:
    """That they are made of them to the byte, `test_page_matches_its_results` checks."""
    (named,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", _made()[page]))
    found = json.loads((ROOT / "benchmarks" / "results" / named).read_text(encoding="utf-8"))
    assert found["complete"]
    assert not found["settings"]["quick"]


def test_the_map_has_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert not [page.name for page in DOCS if page.name != "index.md" and f"({page.name})" not in index]


def test_every_test_file_is_in_the_table_of_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    patterns = re.findall(r"`(tests/[\w*/.]+)`", text)
    files = [file.relative_to(ROOT) for file in (ROOT / "tests").glob("test_*.py")]
    assert not [str(file) for file in files if not any(file.match(pattern) for pattern in patterns)]
    assert not [pattern for pattern in patterns if not list(ROOT.glob(pattern))]


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 70


def test_pre_commit_has_the_versions_of_the_tools_that_the_tests_have() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pins = [pin for pin in project["optional-dependencies"]["test"] if re.match("ruff|mypy", pin)]
    assert len(pins) == 2
    assert set(re.findall(r'"((?:ruff|mypy)[^"]*)"', hooks)) == set(pins)


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert project["version"] == zerocopy.__version__
    assert f"\nversion: {zerocopy.__version__}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


def test_every_test_for_a_gpu_is_on_a_page_of_what_has_not_been_seen() -> None:
    pages = ("gpu-tests.md", "gpu.md", "layouts-gpu.md", "pool-gpu.md")
    told = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
    tests = {
        test
        for file in (ROOT / "tests" / "gpu").glob("test_*.py")
        for test in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(tests) > 120
    assert sorted(test for test in tests if f"`{test}`" not in told) == []
