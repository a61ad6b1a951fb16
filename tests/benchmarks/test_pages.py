"""The pages and pictures of docs/ have the figures of the results that they name."""

import re

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from benchmarks import page
from benchmarks.pages import shared
from benchmarks.results import read

RESULTS = ROOT / "benchmarks" / "results"
WRITTEN = sorted((ROOT / "docs").glob("*benchmarks.md"))


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_page_matches_its_results(path) -> None:
    """The page is generated again and compared, so that no figure is typed by hand."""
    (suite,) = (suite for suite, name in page.PAGES.items() if name == path.stem.removeprefix("gpu-"))
    written = path.read_text(encoding="utf-8")
    (named,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", written))
    assert written == page.page(RESULTS / named, suite)
    gpu = path.name.startswith("gpu-")
    assert page.newest(RESULTS, gpu)[suite] == RESULTS / named


def test_page_of_the_compiled_core_matches_its_results():
    written = (ROOT / "docs" / "compiled-core.md").read_text(encoding="utf-8")
    assert written == page.page_of_core(page.newest_of_core(RESULTS))


def test_parts_of_templates_exist():
    """Templates without results, such as that of a pool on a GPU, name parts too."""
    for path in (ROOT / "docs").glob("*benchmarks.in"):
        (suite,) = (s for s, name in page.PAGES.items() if name == path.stem.removeprefix("gpu-"))
        modules = [*page.parts_of(suite), shared]
        names = set(re.findall(r"\{\{(\w+)", path.read_text(encoding="utf-8"))) - {"run", "file"}
        assert [name for name in names if not any(hasattr(module, name) for module in modules)] == [], path


def test_index_lists_the_pages():
    index = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
    assert {path.name for path in WRITTEN} == set(re.findall(r"\]\(([\w-]*benchmarks\.md)\)", index))
    gpu = [suite for suite in page.ON_GPU if (ROOT / "docs" / f"gpu-{page.PAGES[suite]}.md").exists()]
    assert page.with_gpu_pages(index, gpu) == index


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
