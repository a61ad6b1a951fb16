"""Facts that README and the first pages state: status, extras, versions, names, signatures, addresses."""

from __future__ import annotations

import platform
import re
import runpy
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import pytest
from helpers.page_examples import blocks
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy import registry

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICKSTART, SEMANTICS, SOURCES, FAQ = (
    (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for page in ("quickstart", "semantics", "sources-and-results", "faq")
)


def test_quickstart_lists_every_extra() -> None:
    table = QUICKSTART.partition("| extra | installs |")[2].partition("\n\n")[0]
    extras = [
        extra for row in table.splitlines() for extra in re.findall(r"`([\w-]+)`", row[: row.find(" | ")])
    ]
    assert sorted(extras) == sorted(PROJECT["project"]["optional-dependencies"])


def test_extras_are_features_without_pins_and_named_groups_exist() -> None:
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    assert not [each for requirements in extras.values() for each in requirements if "==" in each]
    assert not extras.keys() & groups.keys()
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    named = {
        group for page in pages for group in re.findall(r"--group ([\w-]+)", page.read_text(encoding="utf-8"))
    }
    assert {"test", "docs", "bench"} <= named <= groups.keys()


def test_classifiers_name_the_tested_pythons() -> None:
    versions = tomllib.loads((ROOT / "zerocopy/_frameworks/versions.toml").read_text(encoding="utf-8"))
    tested = sorted({re.match(r"3\.\d+", run["python"])[0] for run in versions["runs"].values()})
    listed = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert listed == tested
    assert f"Python {tested[0]} to {tested[-1]}" in README


def test_pages_name_the_oldest_versions() -> None:
    for page in (README, QUICKSTART):
        sentence = re.search(r"pandas before .*? are refused", page, re.DOTALL)
        assert sentence
        text = sentence[0].replace("polars and DuckDB before 2.0", "polars before 2.0 and DuckDB before 2.0")
        named = dict(re.findall(r"(\w+) before ([\d.]*\d)", text))
        assert named == {name: registry.find(name.lower()).min_version for name in named}
        assert "support.md" in page


def test_urls_have_one_source_and_are_left_out_without_it() -> None:
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))["Addresses"].update

    def urls(repository: str) -> dict[str, str]:
        metadata: dict[str, dict[str, str]] = {}
        hook(SimpleNamespace(config={"repository": repository}), metadata)
        return metadata["urls"]

    assert urls("") == {}
    assert urls("https://host/owner/name/")["Issues"] == "https://host/owner/name/issues"
    assert "urls" in PROJECT["project"]["dynamic"]
    assert isinstance(PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"], str)


def test_pages_have_the_signature_and_the_names_of_targets() -> None:
    with_signature = runpy.run_path(str(ROOT / "docs" / "signatures.py"))["with_signature"]
    assert with_signature(SEMANTICS) == SEMANTICS, "run python docs/signatures.py"
    assert "`layout` and the options after it apply to tables" in SEMANTICS
    for name in registry.frameworks():
        assert f'`"{name}"`' in SOURCES


def test_every_public_error_is_a_name_of_its_module() -> None:
    """Except errors that only the command raises, because no program catches them."""
    files = [file for file in (ROOT / "zerocopy").rglob("*.py") if "cli" not in file.relative_to(ROOT).parts]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    bases = dict(re.findall(r"^class ([A-Z]\w*Error)\((.*)\):", text, re.MULTILINE))
    errors = {"ZeroCopyError"}
    while more := {name for name in bases if errors & set(re.findall(r"\w+", bases[name]))} - errors:
        errors |= more
    assert len(errors) > 20
    assert sorted(name for name in errors if not hasattr(zc.errors, name)) == []
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    assert "import it from" not in page


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the sentence is about glibc")
def test_large_arrays_start_16_bytes_after_a_page_while_they_have_a_mapping(run_python) -> None:
    """The FAQ's sentence; the variable keeps malloc from raising the threshold when arrays are freed."""
    sentence = "start 16 bytes after the beginning of a page while they have a mapping of their own"
    assert sentence in " ".join(FAQ.split())
    completed = run_python(
        """
import mmap, numpy
for size in (1 << 20, 3 << 20, 12345678):
    addresses = [array.ctypes.data for array in [numpy.empty(size, numpy.uint8) for _ in range(4)]]
    assert {address % mmap.PAGESIZE for address in addresses} == {16}, addresses
assert not any(numpy.empty(size).ctypes.data % 16 for size in range(1, 3000, 7))
""",
        MALLOC_MMAP_THRESHOLD_="131072",
    )
    assert completed.returncode == 0, completed.stderr


def test_costs_of_calls_are_those_of_the_results() -> None:
    """Rounded to one or two digits."""
    page = (ROOT / "docs" / "in-your-library.md").read_text(encoding="utf-8")
    costs = re.findall(r"([\d.]+) us\b", page.partition("## What a call costs")[2])
    pages = "".join(
        (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("measurements", "features-benchmarks", "grid-benchmarks")
    )
    measured = {
        float(f"{float(time) / (1000 if unit == 'ns' else 1):.{digits}g}")
        for time, unit in re.findall(r"([\d.]+) ([nu]s)\b", pages)
        for digits in (1, 2)
    }
    assert len(costs) == 9
    assert set(map(float, costs)) <= measured


@pytest.mark.full  # two processes that import torch
def test_ranks_open_one_shared_array(tmp_path) -> None:
    pytest.importorskip("torch")
    examples = [block for _, block in blocks(ROOT / "docs" / "processes.md", run=False)]
    (example,) = (block for block in examples if "broadcast_object_list" in block)
    program = tmp_path / "ranks.py"
    start = "import numpy as np, zerocopy as zc\narray = np.arange(100_000.0)\n"
    end = "assert data.sum() == array.sum()\ndist.destroy_process_group()\n"
    program.write_text(start + example + end)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", program]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stderr
