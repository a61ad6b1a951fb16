"""The pages and pictures of docs/ have the figures of the results that they name."""

import re
from functools import cache
from importlib import import_module

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from benchmarks import measured_code, page
from benchmarks.pages import overview, shared

PACKAGE = ROOT / "zerocopy"
PAGES = page.runs_of(page.RESULTS)
WRITTEN = sorted((ROOT / "docs").glob("*benchmarks.md"))
#: The runs of all pages; their names are those of suites, with ``gpu-`` if they were measured on a GPU.
RUNS = {
    f"{'gpu-' if name == page.GPU else ''}{run.suite}": run for name, runs in PAGES.items() for run in runs
}

_UNRECORDED = "measured before results recorded their C files"
_NO_GPU = "no GPU at hand since results record their C files"

#: Suites that must be measured again, and why that has not been done. Entries may only be
#: deleted; a suite on a GPU may be listed again while no GPU is at hand.
OUTDATED = {
    "conversion": _UNRECORDED,
    "conversion/core": _UNRECORDED,
    "bridge": _UNRECORDED,
    "functions": _UNRECORDED,
    "loader": _UNRECORDED,
    "monitor": _UNRECORDED,
    "pipeline": _UNRECORDED,
    "pool": _UNRECORDED,
    "processes": _UNRECORDED,
    "sparse": _UNRECORDED,
    "vectors": _UNRECORDED,
    "weights": _UNRECORDED,
    "gpu-conversion": _NO_GPU,
    "gpu-layout": _NO_GPU,
}


@cache
def newest_change() -> str:
    """Return the date of the newest commit of the code; without git's history, that of the newest results."""
    days = (run.results.facts["started"][:10] for run in RUNS.values())
    return measured_code.committed(PACKAGE) or max(days)


@pytest.mark.parametrize("name", RUNS)
def test_results_are_not_older_than_the_code(name) -> None:
    """Works without git too: results record digests of the C files that they measured."""
    run = RUNS[name]
    why = measured_code.outdated(run.results.facts, name, PACKAGE, newest_change())
    fix = (
        f"python -m benchmarks {run.measured} --json benchmarks/results && python -m benchmarks.page --write"
    )
    if name in OUTDATED:
        assert why, f"{name} has new results. To fix: delete its entry of OUTDATED"
    if name not in OUTDATED or (why != measured_code.NOT_RECORDED and not name.startswith("gpu-")):
        assert not why, f"{name}: {why}. To fix: {fix}"


def test_results_become_outdated(tmp_path):
    """A changed C file matters to the suites that measure it; comments and whitespace do not matter."""
    (tmp_path / "_native").mkdir()
    for name in ("tiles.c", "tree.c"):
        (tmp_path / "_native" / name).write_text('char *a = "/* b */"; // c\n')
    facts = {"started": "2026-01-01T00:00", "code": {"c_files": measured_code.digests(tmp_path)}}
    outdated = lambda name, day="2026-01-31": measured_code.outdated(facts, name, tmp_path, day)  # noqa: E731
    (tmp_path / "_native" / "tree.c").write_text('char *a =\n"/* b */"; /* d */')
    assert outdated("conversion") == outdated("layout") == ""
    assert "the code has changed on 2026-02-01" in outdated("conversion", "2026-02-01")
    (tmp_path / "_native" / "tiles.c").write_text('char *a = "/*b*/";')
    assert outdated("conversion") == outdated("pool") == ""
    assert outdated("layout") == outdated("grid")
    assert outdated("grid") == "C files that it measures have changed: tiles.c"
    facts["code"] = {}
    assert outdated("conversion") == measured_code.NOT_RECORDED


def test_listed_suites_and_c_files_exist():
    named = measured_code.LAYOUTS.union(*measured_code.ONLY.values())
    assert named <= measured_code.digests(PACKAGE).keys()
    suites = {name for suite in page.PAGES for name in (suite, f"gpu-{suite}")}
    assert measured_code.ONLY.keys() | measured_code.ALL <= suites
    assert OUTDATED.keys() <= RUNS.keys()


@pytest.mark.parametrize("name", PAGES)
def test_page_matches_its_results(name) -> None:
    """The page is generated again and compared, so that no figure is typed by hand."""
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == page.page(name, PAGES[name])


def test_parts_of_templates_exist():
    """Parts of sections that have no results, such as that of a pool on a GPU, exist."""
    templates = [path for path in (ROOT / "docs").glob("*.in") if path.stem in PAGES]
    for template in templates:
        parts = set(re.findall(r"\{\{([\w.]+)", template.read_text(encoding="utf-8")))
        for module, function in (part.rpartition(".")[::2] for part in parts - {"runs", "busy", "only"}):
            modules = [import_module(f"benchmarks.pages.{module}")] if module else [shared, overview]
            assert any(hasattr(each, function) for each in modules), (template, function)
    assert len(templates) == len(PAGES) == len(WRITTEN)


def test_index_lists_the_pages():
    index = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\| \[[^\]]+\]\(([\w-]*benchmarks\.md)\)", index.partition("## Pages")[2], re.MULTILINE
    )
    assert sorted(listed) == sorted(path.name for path in WRITTEN)
    assert page.overview_page(PAGES) == index


@pytest.mark.parametrize("name", RUNS)
def test_summaries_count_every_row(name) -> None:
    """A section of results that compares zerocopy with other code is in the summaries."""
    compared = {each.section for each in overview.COMPARISONS}
    others = {"documented", "idiom", "library"}
    for section, cases in RUNS[name].results.cases.items():
        if any(case.timed("ours") and case.timed(*others) for case in cases):
            assert section in compared, section


@pytest.mark.full  # draws every picture; .ci/run has a step for it
def test_newest_results_can_be_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks.plots import PICTURES, draw

    drawn = set()
    for run in RUNS.values():
        if any(picture.drawable(run.results) for picture in PICTURES):
            drawn |= {file.name for file in draw(run.results, tmp_path)}
    pictures = {path.name for path in (ROOT / "docs" / "pictures").glob("*.*")}
    assert {f"{picture.name}.{kind}" for picture in PICTURES for kind in ("svg", "png")} == drawn <= pictures
    shown = {name for path in WRITTEN for name in re.findall(r"pictures/([\w-]+\.svg)", path.read_text())}
    assert shown <= drawn
