"""``CardReader``: 0, 1 and 2 GPUs, MIG, missing figures, lost GPUs, restarted and old drivers."""

from __future__ import annotations

import ctypes
import json
from typing import Any, get_type_hints

import pytest
from helpers.fake_nvml import CODES, GIB, FakeNvml, gpu, mig_device
from hypothesis import HealthCheck, example, given, settings, strategies as st

from zerocopy.monitor.cards import PCIE_EVERY, RETRY_EVERY, CardReader
from zerocopy.monitor.sample import Card

MISSING_U32, MISSING_U64 = (1 << 32) - 1, (1 << 64) - 1
FUNCTIONS = sorted(name for name in vars(FakeNvml) if name.startswith("nvml"))


class Clock:
    """Seconds that pass only when a test, or a slow call, says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def read(*gpus: dict[str, Any]) -> list[Card]:
    return CardReader(FakeNvml(*gpus)).read()["cards"]


def check(cards: Any) -> None:
    """Check that the record has the declared keys, and JSON values of the declared types."""
    json.dumps(cards, allow_nan=False)
    assert set(cards) == {"driver", "why_not", "cards"}
    assert bool(cards["cards"]) != bool(cards["why_not"])
    for card in cards["cards"]:
        assert set(card) == set(get_type_hints(Card))
        assert isinstance(card["lost"], str)
        for name, value in card.items():
            if name in ("index", "uuid", "name", "lost"):
                assert isinstance(value, str)
            elif name == "nvlinks":
                assert all(set(link) == {"link", "received_bytes", "sent_bytes"} for link in value)
            elif name == "processes":
                assert value is None or all(set(one) == {"pid", "memory"} for one in value)
            else:
                assert value is None or (isinstance(value, int | float) and value >= 0)


# -- figures ------------------------------------------------------------------------


def test_all_figures_of_one_gpu() -> None:
    links = {0: (1, 2), 1: (30, 40)}
    cards = CardReader(FakeNvml(gpu(links=links))).read()
    check(cards)
    assert (cards["driver"], cards["why_not"]) == ("580.65.06", "")
    assert cards["cards"] == [
        {
            "index": "0",
            "uuid": "GPU-0",
            "name": "Test GPU",
            "utilization": 37,
            "memory_utilization": 12,
            "memory_total": 80 * GIB,
            "memory_used": 10 * GIB,
            "memory_free": 69 * GIB,
            "temperature": 45,
            "power": 250.5,
            "power_limit": 700.0,
            "sm_clock": 1980,
            "memory_clock": 2619,
            "pcie_received": 5_000_000,
            "pcie_sent": 700_000,
            "nvlinks": [
                {"link": 0, "received_bytes": 1024, "sent_bytes": 2048},
                {"link": 1, "received_bytes": 30 * 1024, "sent_bytes": 40 * 1024},
            ],
            "processes": [{"pid": 100, "memory": 6 * GIB}],
            "lost": "",
        }
    ]


def test_two_gpus_have_the_order_of_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [card["uuid"] for card in read(gpu(0), gpu(1))] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("name", ["utilization", "temperature", "power", "power_limit", "clocks", "pcie"])
def test_a_figure_that_is_not_supported_is_none(name: str) -> None:
    (card,) = read(gpu(**{name: None}))
    fields = {
        "utilization": ("utilization", "memory_utilization"),
        "clocks": ("sm_clock", "memory_clock"),
        "pcie": ("pcie_received", "pcie_sent"),
    }.get(name, (name,))
    (whole,) = read(gpu())
    assert [card[field] for field in fields] == [None] * len(fields)  # type: ignore[literal-required]
    assert {k: v for k, v in card.items() if k not in fields} == {
        k: v for k, v in whole.items() if k not in fields
    }


@pytest.mark.hazard("robustness#figures-that-are-not-available")
def test_values_that_are_not_available_are_none() -> None:
    clocks = {1: MISSING_U32, 2: 5}
    one = gpu(temperature=MISSING_U32, clocks=clocks, compute=[(5, MISSING_U64), (6, None)])
    (card,) = read(one)
    assert (card["temperature"], card["sm_clock"], card["memory_clock"]) == (None, None, 5)
    assert card["processes"] == [{"pid": 5, "memory": None}, {"pid": 6, "memory": None}]


def test_unified_memory_has_no_figures_of_its_own() -> None:
    """Integrated GPUs report "not supported" for their memory."""
    (card,) = read(gpu(total=None))
    assert (card["memory_total"], card["memory_used"], card["memory_free"]) == (None, None, None)


@pytest.mark.hazard("robustness#figures-that-are-not-available")
def test_processes_that_nvml_cannot_name_are_dropped() -> None:
    (card,) = read(gpu(compute=[(0, 1), (MISSING_U32, 2), (7, 3)]))
    assert card["processes"] == [{"pid": 7, "memory": 3}]


def test_a_process_of_several_kinds_is_listed_once() -> None:
    (card,) = read(gpu(compute=[(7, 3), (8, 1)], graphics=[(7, 3)], mps=[(9, None)]))
    assert card["processes"] == [
        {"pid": 7, "memory": 3},
        {"pid": 8, "memory": 1},
        {"pid": 9, "memory": None},
    ]


def test_no_list_of_processes_differs_from_no_process() -> None:
    assert read(gpu(compute=[]))[0]["processes"] == []
    assert read(gpu(compute=None, graphics=None, mps=None))[0]["processes"] is None


# -- PCIe, whose counters take 20 ms ---------------------------------------------------


def test_pcie_counters_are_read_once_a_second() -> None:
    clock, library = Clock(), FakeNvml(gpu())
    library.advance = clock.advance
    reader = CardReader(library, clock)
    reader.read()
    assert reader.seconds == pytest.approx(0.04)
    library.gpus[0]["pcie"] = {1: 9, 0: 9}
    for _ in range(4):
        clock.advance(0.2)
        assert reader.read()["cards"][0]["pcie_received"] == 5_000_000
        assert reader.seconds == 0
    clock.advance(PCIE_EVERY)
    assert reader.read()["cards"][0]["pcie_received"] == 9000
    assert library.calls.count("nvmlDeviceGetPcieThroughput") == 4


@pytest.mark.hazard("robustness#pcie-counters")
def test_one_read_waits_for_the_counters_of_one_gpu() -> None:
    """Each of eight GPUs gets its turn, and no read takes longer than two counters."""
    clock, library = Clock(), FakeNvml(*(gpu(i) for i in range(8)))
    library.advance = clock.advance
    reader = CardReader(library, clock)
    reader.read()
    for one in library.gpus:
        one["pcie"] = {1: 1, 0: 1}
    for _ in range(8):
        clock.advance(PCIE_EVERY)
        cards = reader.read()["cards"]
        assert reader.seconds <= 0.0401
    assert [card["pcie_received"] for card in cards] == [1000] * 8


# -- MIG ------------------------------------------------------------------------------


def test_mig_devices_are_cards() -> None:
    mig = gpu(0, mig=[mig_device(0), mig_device(1)])
    cards = CardReader(FakeNvml(mig, gpu(1))).read()
    check(cards)
    first, second, whole = cards["cards"]
    assert [card["index"] for card in cards["cards"]] == ["0:0", "0:1", "1"]
    assert (first["uuid"], second["uuid"]) == ("MIG-0", "MIG-1")
    assert (first["memory_total"], whole["memory_total"]) == (10 * GIB, 80 * GIB)
    assert second["processes"] == [{"pid": 201, "memory": GIB}]
    for card in (first, second):
        assert card["utilization"] is card["power"] is card["pcie_received"] is None
        assert card["temperature"] == 45


def test_a_gpu_in_mig_mode_without_devices_is_listed() -> None:
    (card,) = read(gpu(mig=[]))
    assert card["index"] == "0"
    assert "without a MIG device" in card["name"]


# -- failures -------------------------------------------------------------------------


def test_a_machine_without_gpus() -> None:
    cards = CardReader(FakeNvml()).read()
    check(cards)
    assert "lists no GPU" in cards["why_not"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("DriverNotLoaded", "not loaded"),
        ("LibraryNotFound", "libnvidia-ml.so.1"),
        ("NoPermission", "/dev/nvidiactl"),
        ("LibRmVersionMismatch", "different versions"),
        ("Unknown", "NVML error 999"),
    ],
)
def test_nvml_that_does_not_start_has_a_reason(code: str, words: str) -> None:
    library = FakeNvml(gpu())
    library.failing["nvmlInit_v2"] = CODES[code]
    cards = CardReader(library).read()
    check(cards)
    assert words in cards["why_not"]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert "libnvidia-ml.so.1" in CardReader().read()["why_not"]


def test_a_start_that_failed_is_tried_again() -> None:
    clock, library = Clock(), FakeNvml(gpu())
    library.failing["nvmlInit_v2"] = CODES["DriverNotLoaded"]
    reader = CardReader(library, clock)
    reader.read()
    reader.read()
    assert library.calls.count("nvmlInit_v2") == 1
    library.failing.clear()
    clock.advance(RETRY_EVERY)
    assert reader.read()["why_not"] == ""


@pytest.mark.hazard("robustness#lost-gpu")
@pytest.mark.parametrize(
    ("code", "words"), [("GpuIsLost", "Xid"), ("ResetRequired", "reset"), ("GpuNotFound", "attached")]
)
def test_a_gpu_that_vanishes_has_a_reason_and_the_others_go_on(code: str, words: str) -> None:
    library = FakeNvml(gpu(0), gpu(1))
    reader = CardReader(library)
    reader.read()
    library.gpus[0]["lost"] = CODES[code]
    cards = reader.read()
    check(cards)
    lost, other = cards["cards"]
    assert (lost["index"], lost["uuid"], lost["name"]) == ("0", "GPU-0", "Test GPU")
    assert words in lost["lost"]
    assert lost["memory_used"] is None
    assert (other["lost"], other["utilization"]) == ("", 37)
    del library.gpus[0]["lost"]
    assert [card["lost"] for card in reader.read()["cards"]] == ["", ""]


def test_a_gpu_may_be_lost_in_the_middle_of_a_read() -> None:
    library = FakeNvml(gpu(0), gpu(1))
    library.failing["nvmlDeviceGetUtilizationRates"] = CODES["GpuIsLost"]
    assert all("Xid" in card["lost"] for card in CardReader(library).read()["cards"])


def test_a_gpu_that_the_driver_no_longer_lists_is_lost() -> None:
    library = FakeNvml(gpu(0), gpu(1))
    reader = CardReader(library)
    reader.read()
    library.gpus.pop()
    first, second = reader.read()["cards"]
    assert (first["lost"], second["uuid"]) == ("", "GPU-1")
    assert "does not list" in second["lost"]


def test_a_gpu_without_permission_has_a_reason() -> None:
    library = FakeNvml(gpu())
    library.failing["nvmlDeviceGetHandleByIndex_v2"] = CODES["NoPermission"]
    assert "permissions" in CardReader(library).read()["cards"][0]["lost"]


@pytest.mark.hazard("robustness#restarted-driver")
@pytest.mark.parametrize("code", ["Uninitialized", "DriverNotLoaded"])
def test_nvml_is_started_again_after_a_restart_of_the_driver(code: str) -> None:
    library = FakeNvml(gpu())
    reader = CardReader(library)
    reader.read()
    library.started = False
    assert reader.read()["cards"][0]["lost"] == ""
    library.failing["nvmlDeviceGetCount_v2"] = CODES[code]
    cards = reader.read()
    check(cards)
    assert "restarted" in cards["why_not"]
    library.failing.clear()
    assert reader.read()["cards"][0]["utilization"] == 37


def test_nvml_is_started_again_if_all_gpus_are_lost() -> None:
    library = FakeNvml(gpu())
    reader = CardReader(library)
    library.gpus[0]["lost"] = CODES["GpuIsLost"]
    reader.read()
    assert not library.started


@pytest.mark.hazard("robustness#missing-figures")
def test_an_old_driver_lacks_functions() -> None:
    library = FakeNvml(gpu())
    for name in (
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v3",
    ):
        library.missing.add(name)
    library.failing["nvmlDeviceGetMemoryInfo_v2"] = CODES["FunctionNotFound"]
    (card,) = CardReader(library).read()["cards"]
    assert card["memory_used"] == 11 * GIB  # version 1 counts the driver's own memory as used
    assert card["processes"] == [{"pid": 100, "memory": 6 * GIB}]
    assert card["nvlinks"] == []


def test_a_closed_reader_starts_again() -> None:
    library = FakeNvml(gpu())
    reader = CardReader(library)
    reader.close()
    reader.read()
    reader.close()
    assert not library.started
    assert reader.read()["why_not"] == ""


# -- classes of failures -----------------------------------------------------------------


# Other processes of the machine slow the generation down.
@pytest.mark.hazard("robustness#missing-figures")
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    failing=st.dictionaries(
        st.sampled_from(FUNCTIONS),
        st.one_of(st.integers(1, 30), st.just(999)),
    ),
    missing=st.sets(st.sampled_from(FUNCTIONS)),
    kind=st.sampled_from(["none", "one", "two", "mig"]),
)
@example(failing={"nvmlDeviceGetCount_v2": 28}, missing=set(), kind="one")  # of a GPU, by a call about none
@example(failing={"nvmlSystemGetDriverVersion": 15}, missing=set(), kind="two")
def test_any_failure_of_any_call_gives_a_valid_record(failing: Any, missing: set[str], kind: str) -> None:
    gpus = {"none": [], "one": [gpu()], "two": [gpu(), gpu(1)], "mig": [gpu(mig=[mig_device(0)]), gpu(1)]}
    library = FakeNvml(*gpus[kind])
    reader = CardReader(library)
    library.failing, library.missing = failing, missing
    check(reader.read())
    library.failing, library.missing = {}, set()
    check(reader.read())
    library.failing, library.missing = failing, missing
    check(reader.read())
