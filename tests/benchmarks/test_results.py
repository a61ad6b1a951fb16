"""Results: reading, writing and comparing them, and turning them into pages."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from helpers.benchmark_suites import run, section, suite, task, timed

from benchmarks import measured_code, page
from benchmarks.results import Results, read
from benchmarks.suite import Case, Section, Settings, Task
from zerocopy import _native


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "it is not JSON"),
        ("[1, 2]", "does not contain benchmark results"),
        ('{"schema": 99, "sections": {}}', "has schema 99, but this program reads 1"),
        ('{"schema": 1, "sections": {}}', "does not contain benchmark results: KeyError"),
        ('{"schema": 1, "sections": {"a/b": 3}}', "does not contain benchmark results"),
        ("\x00\xff", "it is not JSON"),
    ],
)
def test_invalid_results_file_is_reported(tiny, tmp_path, text, message):
    path = tmp_path / "old.json"
    path.write_bytes(text.encode("latin-1"))
    result = run("--compare", path)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_inconsistent_results_file_is_reported(tiny, tmp_path):
    path = tmp_path / "old.json"
    run("--json", path)
    plain = json.loads(path.read_text())
    plain["sections"]["other/pairs"] = []
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match="sections of other, but lists only tiny"):
        read(path)


def compared(registered, tmp_path, before, after, *options, quick=()):
    registered(suite(section("pairs", task("a", before))))
    run("--json", tmp_path / "old.json", *quick)
    registered(suite(section("pairs", task("a", after))))
    return run("--compare", tmp_path / "old.json", *options)


def test_slower_contender_exits_with_1(registered, tmp_path):
    result = compared(registered, tmp_path, 100.0, 200.0)
    assert result.exit_code == 1
    assert "slower by more than 1.25x" in result.output
    assert "2.00x" in result.output


def test_unchanged_contender_exits_with_0(registered, tmp_path):
    assert compared(registered, tmp_path, 100.0, 120.0).exit_code == 0
    assert compared(registered, tmp_path, 100.0, 200.0, "--threshold", 3).exit_code == 0


def test_comparing_quick_with_full_run_warns(registered, tmp_path):
    output = compared(registered, tmp_path, 100.0, 100.0, quick=["--quick"]).output
    assert "only the earlier results are from a run with --quick" in " ".join(output.split())
    output = compared(registered, tmp_path, 100.0, 100.0, "--quick").output
    assert "only these results are from a run with --quick" in " ".join(output.split())
    assert "with --quick" not in compared(registered, tmp_path, 100.0, 100.0).output


NAN, INFINITE = float("nan"), float("inf")


def test_nan_and_infinity_are_not_written(registered, tmp_path):
    def figures():
        return [Case("a", figures={"good": 1.5, "bad": NAN, "worse": INFINITE, "count": 3})]

    registered(suite(Section("pairs", "", lambda settings: [Task("a", figures)], "figures")))
    assert run("--json", tmp_path / "new.json").exit_code == 0

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    plain = json.loads((tmp_path / "new.json").read_text(), parse_constant=refuse)
    assert plain["sections"]["tiny/pairs"][0]["figures"] == {"good": 1.5, "count": 3}
    written = read(tmp_path / "new.json")
    written.facts["load_before"] = NAN
    written.save(tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text(), parse_constant=refuse)["load_before"] is None


@pytest.mark.parametrize("median", [NAN, INFINITE, 0.0, 0.04])
def test_time_that_rounds_to_zero_is_left_out(registered, tmp_path, median):
    """Times are written in tenths of a nanosecond: smaller ones would become 0."""
    case = lambda: [timed("a", 100.0, other=median)]  # noqa: E731
    registered(suite(section("pairs", Task("a", case))))
    assert run("--json", tmp_path / "new.json").exit_code == 0
    (case_read,) = read(tmp_path / "new.json").cases["tiny/pairs"]
    assert [entry.left_out.partition(" is ")[0] for entry in case_read.entries] == [
        "",
        "has no valid time: its median",
    ]
    registered(suite(section("pairs", task("a", median))))
    assert run("--json", tmp_path / "new.json").exit_code == 1, "zerocopy without a time is a failure"


@pytest.mark.parametrize("median", [0, -1.0, float("inf"), float("nan"), None, "fast", 10**400])
def test_invalid_times_are_not_read(tmp_path, median):
    (name,) = {
        path.name for path in page.newest(ROOT / "benchmarks" / "results").values() if "pool-" in path.name
    }
    plain = json.loads((ROOT / "benchmarks" / "results" / name).read_text())
    entry = next(e for case in plain["sections"]["pool/recycle"] for e in case["entries"] if "ns" in e)
    entry["ns"]["median"] = median
    path = tmp_path / "x.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match="does not contain benchmark results"):
        read(path)


def results(folder, name, suites=("tables",), started="2026-01-01T00:00:00+00:00", **more):
    settings = Settings(**{k: v for k, v in more.items() if k in ("quick", "frameworks", "sizes")})
    new = Results.begin([suite(name=one) for one in suites], settings, more.get("asked", ()))
    new.facts["started"] = started
    new.cases = {f"{one}/pairs": [timed("a")] for one in suites} | more.get("cases", {})
    new.facts["machine"] |= more.get("machine", {})
    new.complete = more.get("complete", True)
    new.save(Path(folder) / name)
    return Path(folder) / name


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"quick": True}, "from a run with --quick"),
        ({"complete": False}, "not complete"),
        ({"asked": ["tables/pairs"]}, "only a part of tables"),
        ({"sizes": (4,)}, "a run with --sizes"),
    ],
)
def test_partial_results_do_not_become_a_page(tmp_path, more, message):
    assert message in page.refusal(read(results(tmp_path, "x.json", **more)), "tables")
    assert page.newest(tmp_path) == {}


def test_newest_full_results_become_pages(tmp_path):
    results(tmp_path, "old.json", ("tables",), "2026-01-01")
    both = results(tmp_path, "both.json", ("tables", "pool"), "2026-01-02")
    pool = results(tmp_path, "pool.json", ("pool",), "2026-01-03")
    results(tmp_path, "quick.json", ("pool",), "2026-01-04", quick=True)
    (tmp_path / "other.json").write_text('{"schema": 1}')
    assert page.newest(tmp_path) == {"tables": both, "pool": pool}


@pytest.mark.parametrize(
    ("sections", "gpus", "name"),
    [
        ((), [], "tiny-some-cpu-"),
        (("tiny",), ["Example 9000"], "tiny-some-cpu-"),
        (("tiny/pairs",), [], "tiny-pairs-some-cpu-"),
        (("tiny/gpu", "tiny/gpu-bus"), ["Example 9000"], "tiny-gpu-gpu-bus-example-9000-"),
        (("tiny/pairs", "tiny"), [], "tiny-some-cpu-"),
    ],
)
def test_file_name_has_sections_and_device(sections, gpus, name):
    one = Results.begin([suite()], Settings(), sections)
    one.facts["machine"] = {"cpu": "Some CPU", "gpus": [{"name": gpu} for gpu in gpus]}
    assert one.file_name() == f"{name}{one.facts['started'][:10]}.json"


def test_results_record_the_build(monkeypatch, tmp_path):
    monkeypatch.setattr(measured_code, "committed", lambda package: "2026-01-02")
    monkeypatch.setattr(_native, "core", None)
    monkeypatch.setattr(_native, "why_not", "ZEROCOPY_NATIVE=0 is set")
    pure = read(results(tmp_path, "pure.json"))
    assert (pure.compiled, pure.build) == (
        *(False, "without zerocopy's compiled core (ZEROCOPY_NATIVE=0 is set; code of 2026-01-02)"),
    )
    narrowed = SimpleNamespace(isa=lambda: "avx2", isas=["avx512", "avx2"])
    monkeypatch.setattr(_native, "core", narrowed)
    kept = read(results(tmp_path, "compiled.json"))
    assert (kept.build, kept.isa_narrowed) == (
        "with zerocopy's compiled core (avx2; code of 2026-01-02)",
        True,
    )
    assert kept.file_name().endswith(f"-avx2-{kept.facts['started'][:10]}.json")
    assert page.refusal(kept, "layout").endswith("ZEROCOPY_CORE_ISA=avx2")


def test_kept_results_can_be_read():
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        if "layout-cuda-compiled" not in path.name:
            assert any(case.timed() for cases in read(path).cases.values() for case in cases), path
