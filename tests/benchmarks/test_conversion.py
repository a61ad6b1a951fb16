"""The conversion suite: all contenders do the same work, and the grid verifies explain."""

import contextlib
import re

import pytest
from helpers.versions import require

import zerocopy as zc

pytest.importorskip("psutil", reason="the benchmarks need it")

from benchmarks.conversion import containers, dtypes, gpu, gpu_contenders, grid, inputs, rival
from benchmarks.conversion.contenders import IDIOMS, check, contenders, essential, pairs
from benchmarks.conversion.subjects import SUBJECTS, aligned_values
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, Goal, Settings, load
from benchmarks.timing import Pace, Raised, Statement, Timing
from zerocopy.protocols import cuda_driver


def rows():
    return [
        pytest.param(pair, contender, id=f"{pair[0]}-{pair[1]}-{contender.role}-{i}")
        for pair in pairs()
        for i, contender in enumerate(contenders(pair))
    ]


def test_every_pair_has_contenders():
    assert set(IDIOMS) == {(a, b) for a in SUBJECTS for b in SUBJECTS if a != b}


@pytest.mark.parametrize(("pair", "contender"), rows())
def test_contenders_alias_the_same_values(pair, contender):
    # Warnings are errors: a row that warns without `warns` fails here too.
    values = aligned_values(1000)
    refused = check(contender, pair, SUBJECTS[pair[0]].make(values), values)
    if "pyarrow" in pair and re.search("Array.from_dlpack|max_version", contender.code):
        require("pyarrow", "26", "from_dlpack and versioned capsules")
    raised = refused.startswith("raises") and "Warning:" not in refused
    if raised and contender.role in ("documented", "library"):
        pytest.skip(f"{contender.code} {refused}: it is left out of the timing too")
    assert refused == "", contender.code


BRIEF = Settings(quick=True, pace=Pace(rounds=2, block=1000, patience=1000))


@pytest.mark.parametrize("name", grid.names(Settings()))
def test_grid_verifies_explain(name):
    if why := grid.usable(name):
        assert grid.run(name, BRIEF) == []
        pytest.skip(why)
    (case,) = grid.run(name, BRIEF)
    assert case.figures[grid.WRONG] == 0, case.remarks
    assert [entry.label for entry in case.entries] == [t for t in grid.names(BRIEF) if not grid.usable(t)]
    x = grid.source(name).obj
    for entry in case.entries:
        plan = zc.explain(x, entry.label)
        assert plan.possible == (entry.left_out == ""), entry
        assert plan.possible == (entry.timing is not None), entry
        assert not plan.possible or plan.zero_copy == (entry.note == ""), entry


def test_grid_verifies_with_a_write_if_possible():
    assert grid.prove(grid.source("numpy"), "numpy") == grid.Proof(True, True)
    for name in ("torch", "pyarrow", "pandas", "polars", "nanoarrow"):
        if zc.frameworks()[name].installed:
            assert grid.prove(grid.source("numpy"), name) == grid.Proof(True, True)
            assert grid.prove(grid.source(name), "numpy") == grid.Proof(True, True)
    if zc.frameworks()["duckdb"].installed:
        assert grid.prove(grid.source("duckdb"), "numpy") == grid.Proof(False, True)


def test_grid_finds_each_difference():
    origin = grid.source("numpy")
    other = grid.Source(origin.obj, origin.values + 1, origin.write)
    assert "other values" in grid.prove(other, "numpy").wrong
    nothing = grid.Source(origin.obj, origin.values, lambda value: None)
    assert "not visible" in grid.prove(nothing, "numpy").wrong
    odd = origin.values[1:]  # not 64-byte-aligned: JAX copies, and explain reports it
    if "jax" in {pair[1] for pair in pairs()}:

        def write(value):
            odd[0] = value

        assert grid.prove(grid.Source(odd, odd.copy(), write), "jax") == grid.Proof(False, True)
    assert [goal.met for goal in grid.goals([Case("a", figures={grid.WRONG: 1})])] == [False]


def container_rows():
    return [
        pytest.param(pair, contender, id=f"{pair[0]}-{pair[1]}-{contender.role}-{i}")
        for pair in containers.MAPPED
        if pair in pairs()
        for i, contender in enumerate(containers.contenders(pair))
    ]


@pytest.mark.parametrize(("pair", "contender"), container_rows())
@pytest.mark.parametrize("count", [1, 12])
def test_container_contenders_give_the_same_result(pair, contender, count):
    x, values = containers.leaves(pair[0], count)
    assert containers.check(contender, pair, x, values) == ""
    # A dict with other values is results.
    assert containers.check(contender, pair, x, values + 1) == "gives other values"


@pytest.mark.parametrize("pair", pairs(), ids="-".join)
def test_every_dtype_is_converted_or_refused(pair):
    source, carried = SUBJECTS[pair[0]], {}
    for name, array in dtypes.arrays(source).items():
        if isinstance(array, str):
            assert array.startswith(f"{source.name} cannot make it")
            continue
        ours, documented = (dtypes.check(contender, pair, *array) for contender in essential(pair))
        assert ours[0] == "" or ours[0].startswith("refused: "), name
        carried[name] = ours[0] == "", documented[0] == ""
    assert carried["float32"][0]
    if pair == ("numpy", "torch"):
        assert carried["bfloat16"] == (True, False)


def test_copy_has_no_goal_of_sizes():
    pytest.importorskip("torch")
    settings = Settings(("numpy", "torch"), sizes=(4096,), pace=BRIEF.pace)
    names = [task.name for task in inputs.size_tasks(settings)]
    assert names == ["from numpy", "a copy", "from torch"]
    (case,) = inputs.size_tasks(settings)[1].run()
    assert (case.name, [entry.role for entry in case.entries]) == (inputs.COPY, ["reference"])
    both = [inputs.size_name(size) for size in (inputs.SMALL, inputs.LARGE)]
    flat = [Entry(name, "ours", Timing.of([100.0])) for name in both]
    grows = [
        Entry(name, "reference", Timing.of([time])) for name, time in zip(both, (1.0, 99.0), strict=True)
    ]
    goals = inputs.SIZES_SECTION.goals([Case("numpy -> torch", flat), Case(inputs.COPY, grows)])
    assert [(goal.case, goal.met) for goal in goals] == [("numpy -> torch", True)]


@pytest.mark.full
def test_pydlpack_runs_in_a_separate_process():
    pytest.importorskip("torch")
    if not rival.installed():
        pytest.skip("pydlpack is not installed")
    (case,) = rival.run(("numpy", "torch"), BRIEF)
    assert {entry.role: entry.left_out for entry in case.entries} == {
        "ours": "",
        "documented": "",
        "library": "",
    }
    assert case.figures[rival.CALLED] == rival.QUICK_CALLS
    assert "pydlpack keeps" in case.remarks[0]


def test_every_pair_on_the_device_has_contenders():
    for pair in [(a, b) for a in gpu_contenders.SIDES for b in gpu_contenders.SIDES if a != b]:
        ours, documented, *others = gpu_contenders.contenders(pair)
        assert (ours.role, documented.role) == ("ours", "documented")
        for contender in (ours, documented, *others):
            compile(contender.code, "contender", "eval")
    if not gpu_contenders.present():
        assert gpu_contenders.on_device() == gpu_contenders.across() == []
        assert [task for section in gpu.SECTIONS for task in section.tasks(BRIEF)] == []


def test_contenders_on_a_device_give_the_same_result():
    for pair in [*gpu_contenders.on_device(), *gpu_contenders.across()]:
        expected = aligned_values(1000)
        x = gpu_contenders.side(pair[0]).make(expected)
        ours, *_ = gpu_contenders.contenders(pair)
        assert gpu_contenders.check(ours, pair, x, expected) == "", pair


def count_waits(monkeypatch, waits):
    """Replace the driver with one that counts its waits."""

    class Library:
        def cuCtxSynchronize(self):
            waits.append(1)
            return 0

    @contextlib.contextmanager
    def on_device(device):
        yield Library()

    monkeypatch.setattr(cuda_driver, "on_device", on_device)


def test_transfer_is_timed_until_the_device_is_idle(monkeypatch):
    waits, seen = [], []

    class Later:
        def block_until_ready(self):
            seen.append(len(waits))

    count_waits(monkeypatch, waits)
    statements = {
        "make()": Statement("make()", {"make": Later}),
        "1 / 0": Statement("1 / 0", {}),
        "sum(())": Statement("sum(())", {}),
    }
    timings = gpu.until_done(statements, Pace(rounds=4, block=1, patience=10**9))
    assert timings["1 / 0"] == Raised("raises ZeroDivisionError: division by zero")
    assert timings["make()"].rounds == timings["sum(())"].rounds == 4
    assert timings["make()"].calls == 1
    # Once before each call and once after it: two calls warm up, or one if it raises.
    assert len(waits) == 2 * 2 * 6 + 1
    assert len(seen) == 6


def test_wrong_result_of_zerocopy_on_a_gpu_is_a_failure(monkeypatch):
    """A framework on the host replaces one on the device."""
    pair = ("numpy", "torch")
    torch = pytest.importorskip("torch")
    side = gpu_contenders.Side("torch", {"torch": "torch"}, lambda: True, torch.tensor, lambda x: x.numpy())
    monkeypatch.setitem(gpu_contenders.SIDES, "torch", side)
    monkeypatch.setattr(gpu_contenders, "present", lambda: {"torch": side})
    contenders_of = {
        pair: ("zc.convert(x, 'torch')", "torch.from_numpy(x)", ["torch.tensor(x)", "torch.zeros(3)"])
    }
    monkeypatch.setattr(gpu_contenders, "_ACROSS", contenders_of)
    count_waits(monkeypatch, [])
    monkeypatch.setattr(gpu_contenders, "LIBRARIES", dict.fromkeys(gpu_contenders.LIBRARIES, "no_such"))
    monkeypatch.setattr("benchmarks.conversion.contenders.LIBRARIES", gpu_contenders.LIBRARIES)
    (case,) = gpu.across_the_bus(pair, BRIEF)
    assert case.failed == ""
    assert {e.label: e.left_out for e in case.entries if e.left_out} == {
        "torch.zeros(3)": "gives other values"
    }
    assert {"GB/s zerocopy", "GB/s documented"} == set(case.figures)
    monkeypatch.setitem(contenders_of, pair, ("zc.convert(x, 'torch') + 1", *contenders_of[pair][1:]))
    (case,) = gpu.across_the_bus(pair, BRIEF)
    assert case.failed == "zc.convert(x, 'torch') + 1 gives other values"
    assert "GB/s zerocopy" not in case.figures


def test_conversion_gpu_results_become_a_page(tmp_path):
    from benchmarks.page import page

    suite = load("conversion")
    sections = ["conversion/gpu", "conversion/gpu-bus"]
    results = Results.begin([suite], Settings(), sections)
    results.facts["machine"]["gpus"] = [{"name": "Example 9000"}]
    times = {("zc.convert(x, 'torch')", "ours"): 3000.0, ("torch.from_dlpack(x)", "documented"): 2000.0}
    entries = [Entry(*which, Timing.of([time])) for which, time in times.items()]
    entries.append(Entry("torch.asarray(x)", "idiom", left_out="copies"))
    devices = {gpu.DEVICE.format("zerocopy"): 1500.0, gpu.DEVICE.format("documented"): 0.2}
    rates = {"GB/s zerocopy": 10.0, "GB/s documented": 9.5}
    results.cases = {
        sections[0]: [Case("cupy -> torch", entries, devices), Case("cupy -> jax", entries[:2])],
        sections[1]: [Case("numpy -> torch, 256 MiB", entries[:2], rates)],
    }
    results.complete = True
    results.save(tmp_path / "gpu.json")
    text = page(tmp_path / "gpu.json")
    by_hand = "2.00 us | 2.00 us `torch.from_dlpack(x)`"
    assert f"| cupy -> torch | 1.50x | 1.50x +1.00 us | 3.00 us | {by_hand} | 1.50 us | 0 ns |" in text
    assert f"| cupy -> jax | 1.50x | 1.50x +1.00 us | 3.00 us | {by_hand} | - | - |" in text
    assert f"256 MiB | 1.50x | 1.50x +1.00 us | 3.00 us | {by_hand} | 10.0 | 9.5 |" in text
    assert "- `torch.asarray(x)`: copies (cupy -> torch)" in text
    assert "python -m benchmarks conversion/gpu conversion/gpu-bus\n" in text


def test_conversion_results_become_a_page(tmp_path):
    pytest.importorskip("torch")
    from benchmarks.page import page

    suite = load("conversion")
    settings = Settings(("numpy", "torch"), sizes=(4, 4096), quick=True, pace=BRIEF.pace)
    results = Results.begin([suite], settings)
    chosen = [(suite.name, s) for s in suite.sections if s.name not in ("import", "pydlpack")]
    for name, section in chosen:
        for task in section.tasks(settings):
            results.add(name, section, task.run())
    results.finish(chosen, complete=True)
    file = tmp_path / "conversion-here.json"
    results.save(file)
    text = page(file)
    for part in ("conversion-grid.svg", "conversion-sizes.svg", "## Containers", "## Dtypes"):
        assert (part in text) == ("torch" in SUBJECTS and ("numpy", "torch") in pairs()), part
    # Reasons are shown only for pairs that miss a goal.
    goal = "fastest by hand: zerocopy adds 150 ns at most"
    results.goals = [Goal(goal, "tensorflow -> numpy", 200.0, 150.0, "ns")]
    results.save(file)
    assert "- `tensorflow -> numpy`:" in page(file)
    assert "- `torch -> tensorflow`:" not in page(file)
