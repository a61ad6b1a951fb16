"""The pages and pictures of docs/ have the figures of the results that they name."""

import re
from functools import cache

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from benchmarks import measured_code, page
from benchmarks.pages import overview, shared
from benchmarks.results import read

PACKAGE = ROOT / "zerocopy"
RESULTS = ROOT / "benchmarks" / "results"
WRITTEN = sorted((ROOT / "docs").glob("*benchmarks.md"))
CORE = ROOT / "docs" / "compiled-core.md"

_UNRECORDED = "measured before results recorded their C files"
_NO_GPU = "no GPU at hand since results record their C files"

#: Pages with results that must be measured again, and why that has not been done. Entries may only be
#: deleted; a page of a GPU may be listed again while no GPU is at hand.
OUTDATED = {
    "benchmarks": _UNRECORDED,
    "bridge-benchmarks": _UNRECORDED,
    "functions-benchmarks": _UNRECORDED,
    "hosts-benchmarks": _UNRECORDED,
    "loader-benchmarks": _UNRECORDED,
    "monitor-benchmarks": _UNRECORDED,
    "pipeline-benchmarks": _UNRECORDED,
    "pool-benchmarks": _UNRECORDED,
    "processes-benchmarks": _UNRECORDED,
    "sparse-benchmarks": _UNRECORDED,
    "tables-benchmarks": _UNRECORDED,
    "vectors-benchmarks": _UNRECORDED,
    "weights-benchmarks": _UNRECORDED,
    "compiled-core": _UNRECORDED,
    "gpu-benchmarks": _NO_GPU,
    "gpu-layouts-benchmarks": _NO_GPU,
}


@cache
def newest_change() -> str:
    """Return the date of the newest commit of the code; without git's history, that of the newest results."""
    results = (read(RESULTS / results_of(path)) for path in (*WRITTEN, CORE))
    return measured_code.committed(PACKAGE) or max(each.facts["started"][:10] for each in results)


def results_of(path) -> str:
    """Return the name of the only file of results that a page names."""
    (name,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", path.read_text(encoding="utf-8")))
    return name


def suite_of(path) -> str:
    (suite,) = (suite for suite, name in page.PAGES.items() if name == path.stem.removeprefix("gpu-"))
    return suite


@pytest.mark.parametrize("path", [*WRITTEN, CORE], ids=lambda path: path.name)
def test_results_are_not_older_than_the_code(path) -> None:
    """Works without git too: results record digests of the C files that they measured."""
    facts = read(RESULTS / results_of(path)).facts
    why = measured_code.outdated(facts, path.stem, PACKAGE, newest_change())
    gpu = path.stem.startswith("gpu-")
    asked = " ".join(facts["asked"]) if gpu else "conversion" if path == CORE else suite_of(path)
    fix = f"python -m benchmarks {asked} --json benchmarks/results && python -m benchmarks.page --write"
    if path.stem in OUTDATED:
        assert why, f"{path.name} has new results. To fix: delete its entry of OUTDATED"
    if path.stem not in OUTDATED or (why != measured_code.NOT_RECORDED and not gpu):
        assert not why, f"{path.name}: {why}. To fix: {fix}"


def test_results_become_outdated(tmp_path):
    """A changed C file matters to the pages that measure it; comments and whitespace do not matter."""
    (tmp_path / "_native").mkdir()
    for name in ("tiles.c", "tree.c"):
        (tmp_path / "_native" / name).write_text('char *a = "/* b */"; // c\n')
    facts = {"started": "2026-01-01T00:00", "code": {"c_files": measured_code.digests(tmp_path)}}
    outdated = lambda name, day="2026-01-31": measured_code.outdated(facts, name, tmp_path, day)  # noqa: E731
    (tmp_path / "_native" / "tree.c").write_text('char *a =\n"/* b */"; /* d */')
    assert outdated("benchmarks") == outdated("layouts-benchmarks") == ""
    assert "the code has changed on 2026-02-01" in outdated("benchmarks", "2026-02-01")
    (tmp_path / "_native" / "tiles.c").write_text('char *a = "/*b*/";')
    assert outdated("benchmarks") == outdated("pool-benchmarks") == ""
    assert outdated("layouts-benchmarks") == outdated("grid-benchmarks")
    assert outdated("grid-benchmarks") == "C files that it measures have changed: tiles.c"
    facts["code"] = {}
    assert outdated("benchmarks") == measured_code.NOT_RECORDED


def test_listed_pages_and_c_files_exist():
    named = measured_code.LAYOUTS.union(*measured_code.ONLY.values())
    assert named <= measured_code.digests(PACKAGE).keys()
    pages = {name for suite in page.PAGES.values() for name in (suite, f"gpu-{suite}")}
    assert measured_code.ONLY.keys() | measured_code.ALL <= pages
    assert OUTDATED.keys() <= {path.stem for path in (*WRITTEN, CORE)}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_page_matches_its_results(path) -> None:
    """The page is generated again and compared, so that no figure is typed by hand."""
    suite = suite_of(path)
    written, named = path.read_text(encoding="utf-8"), results_of(path)
    assert written == page.page(RESULTS / named, suite)
    gpu = path.name.startswith("gpu-")
    assert page.newest(RESULTS, gpu)[suite] == RESULTS / named


def test_page_of_the_compiled_core_matches_its_results():
    written = (ROOT / "docs" / "compiled-core.md").read_text(encoding="utf-8")
    assert written == page.page_of_core(page.newest_of_core(RESULTS))


def test_parts_of_templates_exist():
    """Templates without results, such as that of a pool on a GPU, name parts too."""
    for path in (ROOT / "docs").glob("*benchmarks.in"):
        modules = [*page.parts_of(suite_of(path)), shared, overview]
        names = set(re.findall(r"\{\{(\w+)", path.read_text(encoding="utf-8"))) - {"run", "file"}
        assert [name for name in names if not any(hasattr(module, name) for module in modules)] == [], path


def test_index_lists_the_pages():
    index = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\| \[[^\]]+\]\(([\w-]*benchmarks\.md)\)", index.partition("## Pages")[2], re.MULTILINE
    )
    assert sorted(listed) == sorted(path.name for path in WRITTEN)
    assert page.overview_page(RESULTS) == index


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_summaries_count_every_row(path) -> None:
    """A section of results that compares zerocopy with other code is in the summaries."""
    suite = suite_of(path)
    results = read(RESULTS / results_of(path))
    compared = {each.section for each in overview.COMPARISONS}
    others = {"documented", "idiom", "library"}
    for section, cases in results.cases.items():
        if section.startswith(f"{suite}/") and any(
            case.timed("ours") and case.timed(*others) for case in cases
        ):
            assert section in compared, section


@pytest.mark.full  # draws every picture; .ci/run has a step for it
def test_newest_results_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks.plots import PICTURES, draw

    drawn = set()
    for path in {*page.newest(RESULTS).values(), page.newest_of_core(RESULTS)}:
        results = read(path)
        if any(picture.drawable(results) for picture in PICTURES):
            drawn |= {file.name for file in draw(results, tmp_path)}
    pictures = {path.name for path in (ROOT / "docs" / "pictures").glob("*.*")}
    assert {f"{picture.name}.{kind}" for picture in PICTURES for kind in ("svg", "png")} == drawn <= pictures
    shown = {name for path in WRITTEN for name in re.findall(r"pictures/([\w-]+\.svg)", path.read_text())}
    assert shown <= drawn
