"""The tables that are printed."""

import os

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from helpers.benchmark_suites import section, suite, timed

from benchmarks.results import Results
from benchmarks.suite import Entry, Settings
from benchmarks.timing import Timing


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("look", ["contest", "references", "rivals", "series", "figures"])
def test_tables_fit_their_terminal(width, look):
    from rich.console import Console

    from benchmarks.report import show

    several = [timed(f"a case with a rather long name {i}") for i in range(3)]
    for case in several:
        case.entries += [Entry(f"label of column {i}", "reference", Timing.of([5.0])) for i in range(12)]
    results = Results.begin([suite()], Settings())
    shown = section("pairs", look=look)
    results.add("tiny", shown, several)
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    show(console, results, [("tiny", shown)])
    console.file.close()
    lines = console.export_text().splitlines()
    table = lines[: next(i for i, line in enumerate(lines) if "interleaved" in line)]
    assert max(map(len, table)) <= width
    if look == "series":
        assert all(any(f"label of column {i}" in line for line in table) for i in range(12))
    assert "…" not in "".join(table)
