"""The loader suite: its turns, its goals, its page and its picture."""

import json
import threading

import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("pyarrow", reason="the suite reads Parquet files")
pytest.importorskip("torch", reason="the suite's batches are of torch")

from benchmarks.loader import copies, data
from benchmarks.loader.checks import all_rows, count_rows
from benchmarks.loader.goals import ELSEWHERE, FEWER, HF_TORCH, OURS, PEAK, PER_VALUE, PROMISES, goals
from benchmarks.loader.targets import MODES
from benchmarks.loader.turns import BOUND, TIMES, Contender, contest
from benchmarks.page import page
from benchmarks.pages.loader import goals_table, shortfalls
from benchmarks.results import Results
from benchmarks.suite import SUITES, Case, Entry, Settings, load
from benchmarks.timing import QUICK, Raised, Timing

SMALL = Settings(frameworks=("torch", "numpy"), sizes=(1 << 20,), quick=True, pace=QUICK)


def case(name, **ratios):
    entries = [Entry(label, "ours" if label == OURS else "library", Timing.of([1e6])) for label in ratios]
    figures = {"rows": 10.0} | {TIMES + label: value for label, value in ratios.items()}
    return Case(name, entries, figures)


def contender(batches, label=OURS, rows=4, check=lambda batches: sum(batches)):
    return Contender(label, "ours", batches, lambda: [1], rows, check)


def test_suite_is_registered():
    suite = load("loader")
    assert "loader" in SUITES
    names = {"order", "shuffle", "copies", "memory", "waiting", "targets", "flights", "files"}
    assert {section.name for section in suite.sections} == names


def test_each_turn_has_an_epoch_of_the_bound():
    calls = []

    def batches(label):
        calls.append(label)
        return [1, 2]

    one = Contender(OURS, "ours", lambda: batches("own"), lambda: batches("bound"), 4, list)
    result = contest("columns", [one], SMALL)
    assert calls.count("own") == calls.count("bound") + 1 == 4  # one epoch is the check
    assert calls[1:5] == ["bound", "own", "own", "bound"]
    assert [(entry.label, entry.timing.rounds) for entry in result.entries] == [(BOUND, 3), (OURS, 3)]
    assert result.figures["rows"] == 4
    assert result.figures[TIMES + OURS] > 0


def test_contender_that_lacks_rows_or_raises_is_left_out():
    def fail():
        raise ValueError("no")

    lacking = contender(lambda: [[0.0]], "lacking", check=count_rows(4, len))
    result = contest("columns", [lacking, contender(fail, "raising"), contender(lambda: [1])], SMALL)
    timings = {entry.label: entry.timing for entry in result.entries}
    assert timings["lacking"] == Raised("raises ValueError: gives 1 rows, not 4")
    assert timings["raising"] == Raised("raises ValueError: no")
    assert isinstance(timings[OURS], Timing)


def test_bound_reads_all_rows_and_its_thread_ends():
    before = threading.active_count()
    file = data.numbers(4096)
    tables = list(data.row_groups(file.path))
    assert [table.num_rows for table in tables] == [file.group_rows] * 8
    assert threading.active_count() == before
    all_rows(file.rows)(tables)
    with pytest.raises(ValueError, match="gives 3584 rows"):
        all_rows(file.rows)(tables[1:])
    with pytest.raises(FileNotFoundError):
        list(data.row_groups(data.folder() / "missing.parquet"))


@pytest.mark.parametrize("mode", MODES)
def test_bytes_are_written_at_most_once_into_a_matrix_and_twice_into_shuffled_columns(mode):
    figures = copies.measure(mode, data.numbers(1 << 12, 1 << 10), batch=256, **MODES[mode]).figures
    assert figures[ELSEWHERE] == 0
    expected = {"columns, in order": 0, "columns, shuffled": 2}.get(mode, 1)
    assert figures[PER_VALUE] == expected


def test_goals_compare_with_the_bound_and_with_others():
    judged = {goal.name: (goal.value, goal.met) for goal in goals([case("matrix, in order", **{OURS: 1.4})])}
    assert judged == {"matrix, in order": (1.4, False)}
    fewer = case(f"columns, in order{FEWER}", **{OURS: 1.5, HF_TORCH: 30.0})
    (goal,) = goals([fewer])
    assert (goal.value, goal.met) == (0.05, True)
    (goal,) = goals([Case("matrix, shuffled", figures={f"{PEAK}4 rows": 10.0, f"{PEAK}8 rows": 12.0})])
    assert (goal.value, goal.met) == (1.2, False)
    assert len({promise.name for promise in PROMISES}) == len(PROMISES)


def test_page_shows_goals_and_what_falls_short():
    cases = [
        case("columns, in order", **{OURS: 1.3, "polars": 1.25}),
        case(f"columns, in order{FEWER}", **{OURS: 1.5, HF_TORCH: 30.0}),
    ]
    rows = goals_table(cases).splitlines()
    assert rows[2] == "| columns, in order | 1.10x | 1.25x to 30.00x | 1.30x | no (columns, in order) |"
    assert rows[3].endswith("| at least 10x faster | 30.00x | 20x faster | yes |")
    lines = shortfalls(cases).splitlines()
    assert lines[0] == "- **columns, in order**: 1.30x; the goal is 1.10x."
    assert lines[1].endswith("polars takes less time: 1.25x instead of 1.30x.")
    assert len(lines) == 2
    assert shortfalls([case("columns, in order", **{OURS: 1.0})]).startswith("All goals are met")


#: Tasks that take a second: without workers of DataLoader, TensorFlow, and the flights.
QUICK_TASKS = ("columns, in order", "matrix, in order", "matrix, shuffled", "copies", "waiting")


@pytest.fixture(scope="module")
def results():
    suite = load("loader")
    sections = [section for section in suite.sections if section.name != "memory"]
    results = Results.begin([suite], SMALL)
    for section in sections:
        for task in section.tasks(SMALL):
            if task.name in QUICK_TASKS:
                results.add("loader", section, task.run())
    results.finish([("loader", section) for section in sections], complete=True)
    return results


@pytest.mark.full
def test_results_become_a_page_and_a_picture(results, tmp_path):
    assert not results.failures, results.failures
    left_out = [entry.label for cases in results.cases.values() for c in cases for entry in c.entries
                if entry.left_out]  # fmt: skip
    assert not left_out
    file = tmp_path / "loader-here.json"
    results.save(file)
    text = page(file)
    assert "| goal | limit | others | zc.loader | met |" in text
    assert "### matrix, shuffled (" in text
    names = {goal["name"] for goal in json.loads(file.read_text())["goals"]}
    assert {"columns, in order", "matrix, shuffled", "bytes copied, matrix"} <= names
    pytest.importorskip("matplotlib")
    from benchmarks.plots import draw

    assert {path.stem for path in draw(results, tmp_path)} == {"loader"}


@pytest.mark.full
@pytest.mark.parametrize("name", ["flights", "files"])
def test_real_files_are_read_by_all_contenders(name):
    (section,) = [section for section in load("loader").sections if section.name == name]
    for task in section.tasks(SMALL):
        (result,) = task.run()
        raised = [(entry.label, entry.timing) for entry in result.entries if isinstance(entry.timing, Raised)]
        assert not raised


@pytest.mark.full
def test_memory_is_measured_in_a_fresh_process():
    from benchmarks.loader import memory

    file = data.numbers(4096, 512)
    peak, pool, buffers = memory._child("matrix, shuffled", file, 1024)
    assert min(peak, pool) >= 0
    window = 4096 * data.ROW_BYTES  # a batch has 8,192 rows, and the file half of them
    assert buffers >= window
    assert buffers % window == 0
