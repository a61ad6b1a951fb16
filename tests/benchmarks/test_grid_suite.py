"""The suite ``grid``: candidates by hand must give equal results, and the page shows each cell."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.grid import cells, hand
from benchmarks.pages import grid as page
from benchmarks.results import Results, read_plain
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.timing import Pace, Timing

pa = pytest.importorskip("pyarrow")
CHOSEN = Settings(pace=Pace(rounds=2, block=20_000, patience=50_000_000))


def test_every_cell_has_candidates():
    assert [section.name for section in load("grid").sections] == ["cells"]
    for kind in cells.KINDS:
        for source in kind.sources:
            for target in kind.targets:
                codes = kind.code(source, target) if source != target else ["pass"]
                assert codes
                for code in codes:
                    compile(code, kind.name, "exec")


@pytest.mark.parametrize("name", ["array of 1,000", "table 1,000 x 10, nulls and text", "matrix 1,000 x 10"])
def test_a_cell_is_checked_and_timed(name):
    pytest.importorskip("polars")
    (kind,) = (kind for kind in cells.KINDS if kind.name == name)
    source = "numpy" if "numpy" in kind.sources else "pyarrow"
    (case,) = cells.contest(kind, (source, "polars"), CHOSEN)
    assert case.timed("ours")
    assert case.timed("idiom")
    assert 0 < case.figures["correct"] <= case.figures["candidates"]


def test_other_types_and_values_are_refused():
    names = {"np": np, "pa": pa, "x": pa.array([1.0, 2.0])}
    expected = cells.content(pa.array([1.0, 2.0]))
    assert isinstance(cells._trial("x.slice(0)", names, expected), float)
    for code in ("x.to_numpy()", "x.cast('float32')", "x[::-1]", "pa.chunked_array([x])", "x.missing()"):
        assert isinstance(cells._trial(code, names, expected), str), code
    assert cells.same(cells.content(pa.array([None, 1.0])), cells.content(pa.array([np.nan, 1.0])))


def test_goals_and_page(tmp_path):
    def case(name, ours, *others):
        entries = [Entry("zc", timing=Timing.of([ours]))]
        return Case(name, entries + [Entry(f"f{t}", role, timing=Timing.of([t])) for t, role in others])

    cases = [
        case("pandas -> polars, table 1 x 1", 500.0, (1000.0, "idiom"), (100.0, "narrow")),
        case("polars -> pandas, table 1 x 1", 1500.0, (1000.0, "idiom")),
        case("polars -> jax, table 1 x 1", 1500.0, (1000.0, "narrow")),
    ]
    first, second, mean = cells.goals(cases)
    assert (first.value, first.met, second.value, second.met) == (0.5, True, 1.5, False)
    assert mean.value == pytest.approx(0.75**0.5)
    results = Results.begin([load("grid")], CHOSEN)
    results.cases["grid/cells"] = cases
    results.save(tmp_path / "grid.json")
    text = "\n".join(page.body(read_plain(tmp_path / "grid.json")))
    assert "| polars | 1.50x (1.50 us) |  | - (1.50 us) |" in text
    assert "| all | 3 | 0.87x | 1.50x (polars -> pandas) | 1 |" in text


def test_paths_are_composed():
    assert "na.Array(pa.Array.from_dlpack(x.numpy()))" in hand.arrays("torch", "nanoarrow")
    assert "{n: torch.from_numpy(c.to_numpy()) for n, c in x.items()}" in hand.columns("pandas", "torch")
