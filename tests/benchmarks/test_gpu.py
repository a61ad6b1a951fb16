"""Results of a GPU: separate pages, file names, the description of the GPU, and its clock."""

import contextlib

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from benchmarks import gpu_timing, machine, page
from benchmarks.results import Results, needs_gpu, read
from benchmarks.suite import SUITES, Case, Entry, Settings, Suite, load
from benchmarks.timing import Pace, Statement, Timing

GPU = {
    "gpus": [{"name": "Example 9000", "memory_bytes": 80 << 30, "mig": False, "shared": False}],
    "nvidia_driver": "1.2.3",
    "cuda_driver": "13.0",
    "cuda_runtime": None,
}


def write_gpu_results(folder, name, *sections, started="2026-01-01T00:00:00+00:00", **more):
    """Write results of sections as a run on a machine with a GPU does."""
    times = {("zc.convert(x)", "ours"): 100.0, ("by_hand(x)", "idiom"): 200.0}
    entries = [Entry(*which, Timing.of([time])) for which, time in times.items()]
    case = Case("12 bytes", entries, {"bytes a record": 12, "records": 1000})
    suites = dict.fromkeys(section.partition("/")[0] for section in sections)
    results = Results.begin([Suite(one, "", ()) for one in suites], Settings(), more.get("asked", sections))
    results.facts["started"] = started
    results.facts["machine"] = {k: v for k, v in results.facts["machine"].items() if k not in GPU}
    results.facts["machine"] |= more.get("machine", GPU)
    results.cases = {section: [case] for section in sections}
    results.complete = True
    results.save(folder / name)
    return folder / name


def test_gpu_results_have_separate_page(tmp_path):
    path = write_gpu_results(tmp_path, "gpu.json", "layout/gpu", "pool/device")
    assert page.newest(tmp_path) == {}
    assert page.newest(tmp_path, gpu=True) == {"layout": path, "pool": path}
    description = "The GPU: Example 9000, 80 GiB, driver 1.2.3, CUDA of the driver 13.0."
    layouts, pool = page.page(path, "layout"), page.page(path, "pool")
    assert description in layouts
    assert description in pool
    assert "python -m benchmarks layout/gpu\n" in layouts
    assert "| 12 bytes | 120.0 | - | - | 60.0 |" in layouts
    assert "| `by_hand(x)` |  | 200 ns | 2.00x |" in pool
    assert "Goals" not in layouts + pool  # no goals were judged
    with pytest.raises(ValueError, match="name one of them"):
        page.page(path)


@pytest.mark.parametrize("section", ["conversion/gpu", "conversion/gpu-bus", "layout/gpu", "pool/device"])
def test_single_gpu_section_becomes_gpu_page_only(tmp_path, section):
    suite = section.partition("/")[0]
    path = write_gpu_results(tmp_path, "gpu.json", section)
    assert page.newest(tmp_path) == {}
    assert page.newest(tmp_path, gpu=True) == {suite: path}
    assert "12 bytes" in page.page(path)
    # The page requires a GPU in the description of the machine.
    write_gpu_results(tmp_path, "gpu.json", section, machine={})
    assert page.newest(tmp_path, gpu=True) == page.newest(tmp_path) == {}


def test_cpu_suite_in_run_with_gpu_sections_becomes_cpu_page(tmp_path):
    path = write_gpu_results(
        tmp_path, "both.json", "tables/columns", "layout/gpu", asked=["tables", "layout/gpu"]
    )
    assert page.newest(tmp_path) == {"tables": path}
    assert page.newest(tmp_path, gpu=True) == {"layout": path}
    assert not page.on_gpu(read(path), "tables")


def test_results_with_more_gpu_sections_precede_newer_ones(tmp_path):
    whole = write_gpu_results(tmp_path, "whole.json", "conversion/gpu", "conversion/gpu-bus")
    write_gpu_results(tmp_path, "part.json", "conversion/gpu", started="2026-02-02T00:00:00+00:00")
    assert page.newest(tmp_path, gpu=True) == {"conversion": whole}
    newer = write_gpu_results(
        tmp_path, "newer.json", "conversion/gpu", "conversion/gpu-bus", started="2026-02-01T00:00:00+00:00"
    )
    assert page.newest(tmp_path, gpu=True) == {"conversion": newer}


def test_gpu_pages_are_written_and_listed(tmp_path):
    docs, folder = tmp_path / "docs", tmp_path / "results"
    docs.mkdir()
    folder.mkdir()
    index = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
    (docs / "measurements.md").write_text(page.with_gpu_pages(index, ()), encoding="utf-8")
    write_gpu_results(folder, "gpu.json", "layout/gpu", "conversion/gpu-bus")
    for _ in range(2):  # a second time adds nothing
        written = page.write(folder, docs)
        assert [path.name for path in written] == ["gpu-benchmarks.md", "gpu-layouts-benchmarks.md"]
        text = (docs / "measurements.md").read_text(encoding="utf-8")
        assert text.count("(gpu-layouts-benchmarks.md)") == text.count("(gpu-benchmarks.md)") == 1
        assert "(gpu-pool-benchmarks.md)" not in text
        lines = text.splitlines()
        (row,) = (i for i, line in enumerate(lines) if "(layouts-benchmarks.md) | " in line)
        assert lines[row + 1].startswith("| [Benchmarks of layouts on a GPU](gpu-layouts-benchmarks.md) | ")
    assert page.with_gpu_pages(text, ()) == page.with_gpu_pages(index, ())


def test_every_suite_with_gpu_sections_has_a_gpu_page():
    suites = {name for name in SUITES if any(needs_gpu(f"{name}/{one.name}") for one in load(name).sections)}
    assert suites == set(page.ON_GPU)
    assert suites <= set(page.PAGES)


@pytest.mark.parametrize(
    ("sections", "computer", "name"),
    [
        ((), {}, "tiny-"),
        (("tiny",), GPU, "tiny-"),
        (("tiny/pairs",), {}, "tiny-pairs-"),
        (("tiny/gpu", "tiny/gpu-bus"), GPU, "tiny-gpu-gpu-bus-example-9000-"),
        (("tiny/pairs", "tiny"), {}, "tiny-"),
    ],
)
def test_file_name_has_sections_and_device(sections, computer, name):
    results = Results.begin([Suite("tiny", "", ())], Settings(), sections)
    results.facts["machine"] = computer | {"cpu": "Some CPU"}
    cpu = "" if "9000" in name else "some-cpu-"
    assert results.file_name() == f"{name}{cpu}{results.facts['started'][:10]}.json"


def test_machine_describes_gpu_and_driver(monkeypatch):
    from helpers.pool_stand_ins import FakeNVML

    from zerocopy.pool import gpus

    class NVML(FakeNVML):
        def nvmlInit_v2(self):
            return 0

        def nvmlSystemGetDriverVersion(self, text, size):
            text.value = b"580.159.04"
            return 0

        def nvmlSystemGetCudaDriverVersion_v2(self, number):
            number._obj.value = 13000
            return 0

    library = NVML([{"name": "NVIDIA H200", "uuid": "GPU-1", "total": 141 << 30}])
    monkeypatch.setattr(gpus, "nvml", lambda: library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    installed = {"nvidia-cuda-runtime": "13.0.96", "numpy": "2.5.2", "cuda-core": "1.2.2"}

    def version(name):
        if name not in installed:
            raise machine.importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(machine.importlib.metadata, "version", version)
    facts = Results.begin([Suite("tiny", "", (), distributions=("numpy", "torch"))], Settings()).facts
    described = facts["machine"]
    assert described["gpus"] == [
        {"name": "NVIDIA H200", "memory_bytes": 141 << 30, "mig": False, "shared": False}
    ]
    assert (described["nvidia_driver"], described["cuda_driver"], described["cuda_runtime"]) == (
        *("580.159.04", "13.0"),
        "13.0.96",
    )
    # Versions of GPU distributions are recorded for every suite.
    assert list(facts["versions"]) == ["numpy", "cuda-core", "zerocopy"]


def test_filler_does_not_grow_if_calls_wait_for_the_device(monkeypatch):
    expected = []

    class Stream:
        def __init__(self, stream, device):
            pass

        @contextlib.contextmanager
        def opened(self):
            yield self

        def block(self, loop, calls, expects=0.0):
            expected.append(expects)
            return 100 * calls + 2 * expects, 100.0 * calls  # the host waits for the filler

    monkeypatch.setattr(gpu_timing, "_Stream", Stream)
    timings = gpu_timing.measure({"a": Statement("None", {})}, Pace(rounds=50, block=1000, patience=10**9))
    assert timings["a"].host.rounds == 50
    assert max(expected) <= 100 * timings["a"].host.calls
