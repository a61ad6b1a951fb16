"""What a GPU did becomes pages of its own, and nothing of the CPU's; its clock; what is said of the card."""

import contextlib

import pytest
from helpers.paths import ROOT

pytest.importorskip("psutil", reason="the benchmarks need it")
pytest.importorskip("rich", reason="the benchmarks need it")

from benchmarks import gpu_timing, machine, page
from benchmarks.results import Results, needs_gpu, read
from benchmarks.suite import SUITES, Case, Entry, Settings, Suite, load
from benchmarks.timing import Pace, Statement, Timing

CARD = {
    "gpus": [{"name": "Made-up 9000", "memory_bytes": 80 << 30, "mig": False, "shared": False}],
    "nvidia_driver": "1.2.3",
    "cuda_driver": "13.0",
    "cuda_runtime": None,
}


def of_gpu(folder, name, *asked, started="2026-01-01T00:00:00+00:00", **more):
    """Write results of those sections, as a run on a machine with a GPU would."""
    times = {("zc.convert(x)", "ours"): 100.0, ("by_hand(x)", "idiom"): 200.0}
    entries = [Entry(*which, Timing.of([time])) for which, time in times.items()]
    case = Case("12 bytes", entries, {"bytes a record": 12, "records": 1000})
    suites = dict.fromkeys(section.partition("/")[0] for section in asked)
    found = Results.begin([Suite(one, "", ()) for one in suites], Settings(), more.get("asked", asked))
    found.facts["started"] = started
    found.facts["machine"] = {k: v for k, v in found.facts["machine"].items() if k not in CARD}
    found.facts["machine"] |= more.get("machine", CARD)
    found.cases = {section: [case] for section in asked}
    found.complete = True
    found.save(folder / name)
    return folder / name


def test_results_of_a_gpu_have_a_page_of_their_own(tmp_path):
    path = of_gpu(tmp_path, "gpu.json", "layout/gpu", "pool/device")
    assert page.newest(tmp_path) == {}
    assert page.newest(tmp_path, gpu=True) == {"layout": path, "pool": path}
    told = "The GPU: Made-up 9000, 80 GiB, driver 1.2.3, CUDA of the driver 13.0."
    layouts, pool = page.page(path, "layout"), page.page(path, "pool")
    assert told in layouts
    assert told in pool
    assert "python -m benchmarks layout/gpu\n" in layouts
    assert "| 12 bytes | 120.0 | - | - | 60.0 |" in layouts
    assert "| `by_hand(x)` |  | 200 ns | 2.00x |" in pool
    assert "Goals" not in layouts + pool  # none was judged
    with pytest.raises(ValueError, match="name one of them"):
        page.page(path)


@pytest.mark.parametrize("section", ["conversion/gpu", "conversion/gpu-bus", "layout/gpu", "pool/device"])
def test_one_section_of_a_gpu_is_enough_and_is_no_result_of_the_cpu(tmp_path, section):
    suite = section.partition("/")[0]
    path = of_gpu(tmp_path, "gpu.json", section)
    assert page.newest(tmp_path) == {}
    assert page.newest(tmp_path, gpu=True) == {suite: path}
    assert "12 bytes" in page.page(path)
    # Without a card in the machine nobody knows what it was measured on.
    of_gpu(tmp_path, "gpu.json", section, machine={})
    assert page.newest(tmp_path, gpu=True) == page.newest(tmp_path) == {}


def test_a_suite_of_the_cpu_beside_sections_of_a_gpu_is_one_of_the_cpu(tmp_path):
    path = of_gpu(tmp_path, "both.json", "tables/columns", "layout/gpu", asked=["tables", "layout/gpu"])
    assert page.newest(tmp_path) == {"tables": path}
    assert page.newest(tmp_path, gpu=True) == {"layout": path}
    assert not page.on_gpu(read(path), "tables")


def test_more_of_a_gpu_goes_before_newer(tmp_path):
    whole = of_gpu(tmp_path, "whole.json", "conversion/gpu", "conversion/gpu-bus")
    of_gpu(tmp_path, "part.json", "conversion/gpu", started="2026-02-02T00:00:00+00:00")
    assert page.newest(tmp_path, gpu=True) == {"conversion": whole}
    newer = of_gpu(
        tmp_path, "newer.json", "conversion/gpu", "conversion/gpu-bus", started="2026-02-01T00:00:00+00:00"
    )
    assert page.newest(tmp_path, gpu=True) == {"conversion": newer}


def test_pages_of_a_gpu_are_written_and_get_into_the_map(tmp_path):
    docs, folder = tmp_path / "docs", tmp_path / "results"
    docs.mkdir()
    folder.mkdir()
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (docs / "index.md").write_text(page.mapped(index, ()), encoding="utf-8")
    of_gpu(folder, "gpu.json", "layout/gpu", "conversion/gpu-bus")
    for _ in range(2):  # a second time adds nothing
        written = page.write(folder, docs)
        assert [path.name for path in written] == ["gpu-benchmarks.md", "gpu-layouts-benchmarks.md"]
        text = (docs / "index.md").read_text(encoding="utf-8")
        assert text.count("(gpu-layouts-benchmarks.md)") == text.count("(gpu-benchmarks.md)") == 1
        assert "(gpu-pool-benchmarks.md)" not in text
        lines = text.splitlines()
        (row,) = (i for i, line in enumerate(lines) if "(layouts-benchmarks.md) | " in line)
        assert lines[row + 1].startswith("| [Cost of layouts, on a GPU](gpu-layouts-benchmarks.md) | ")
    assert page.mapped(text, ()) == page.mapped(index, ())


def test_every_suite_with_sections_for_a_gpu_has_a_page_for_them():
    found = {name for name in SUITES if any(needs_gpu(f"{name}/{one.name}") for one in load(name).sections)}
    assert found == set(page.ON_GPU)
    assert found <= set(page.PAGES)


@pytest.mark.parametrize(
    ("asked", "computer", "name"),
    [
        ((), {}, "tiny-"),
        (("tiny",), CARD, "tiny-"),
        (("tiny/pairs",), {}, "tiny-pairs-"),
        (("tiny/gpu", "tiny/gpu-bus"), CARD, "tiny-gpu-gpu-bus-made-up-9000-"),
        (("tiny/pairs", "tiny"), {}, "tiny-"),
    ],
)
def test_a_file_is_named_after_what_it_is_of(asked, computer, name):
    found = Results.begin([Suite("tiny", "", ())], Settings(), asked)
    found.facts["machine"] = computer | {"cpu": "Some CPU"}
    where = "" if "9000" in name else "some-cpu-"
    assert found.file_name() == f"{name}{where}{found.facts['started'][:10]}.json"


def test_a_machine_with_a_gpu_says_which_and_what_drives_it(monkeypatch):
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
    monkeypatch.setattr(gpus, "_nvml", lambda: library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    installed = {"nvidia-cuda-runtime": "13.0.96", "numpy": "2.5.2", "cuda-core": "1.2.2"}

    def version(name):
        if name not in installed:
            raise machine.importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(machine.importlib.metadata, "version", version)
    facts = Results.begin([Suite("tiny", "", (), distributions=("numpy", "torch"))], Settings()).facts
    told = facts["machine"]
    assert told["gpus"] == [{"name": "NVIDIA H200", "memory_bytes": 141 << 30, "mig": False, "shared": False}]
    assert (told["nvidia_driver"], told["cuda_driver"], told["cuda_runtime"]) == (
        *("580.159.04", "13.0"),
        "13.0.96",
    )
    # What brings kernels and drivers' calls is said for every suite.
    assert list(facts["versions"]) == ["numpy", "cuda-core", "zerocopy"]


def test_a_call_that_waits_for_the_device_does_not_keep_it_busy_longer_and_longer(monkeypatch):
    expected = []

    class Stream:
        def __init__(self, stream, device):
            pass

        @contextlib.contextmanager
        def opened(self):
            yield self

        def block(self, loop, calls, expects=0.0):
            expected.append(expects)
            return 100 * calls + 2 * expects, 100.0 * calls  # the host waits for what keeps it busy

    monkeypatch.setattr(gpu_timing, "_Stream", Stream)
    found = gpu_timing.measure({"a": Statement("None", {})}, Pace(rounds=50, block=1000, patience=10**9))
    assert found["a"].host.rounds == 50
    assert max(expected) <= 100 * found["a"].host.calls
