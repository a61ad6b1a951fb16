"""Limits of a pool: whole GPUs, MIG slices, MPS, and other processes on the GPU."""

from __future__ import annotations

import os

import pytest
from helpers.fake_nvml import CODES, FakeNvml, gpu as card, mig_device

import zerocopy as zc
from zerocopy.pool import gpus, limits
from zerocopy.pool.gpus import GPU
from zerocopy.pool.settings import Settings
from zerocopy.protocols.nvml import Nvml

GIB = 1 << 30
A100 = GPU(0, "A100", 80 * GIB)


def _limit(gpu=A100, environ=None, **options):
    return limits.device_limit(Settings.read("rmm", **options), gpu, environ or {})


def test_default_pool_has_no_limit() -> None:
    assert _limit() is None


def test_least_limit_applies_and_names_its_source() -> None:
    assert _limit(limit="8GiB").source == "limit="
    assert _limit(limit="60GiB", fraction=0.5) == limits.Limit(40 * GIB, "fraction=0.5")
    assert _limit(reserve="4GiB", limit="79GiB") == limits.Limit(76 * GIB, "reserve=4 GiB")
    cap = _limit(limit="8GiB", environ={limits.MPS: "0=2G,1=512MB"})
    assert cap == limits.Limit(2 * GIB, limits.MPS)
    assert "2 GiB (from CUDA_MPS_PINNED_DEVICE_MEM_LIMIT)" in str(cap)


def test_mps_limit_applies_to_its_device() -> None:
    assert _limit(environ={limits.MPS: "1=512MB"}) is None
    assert _limit(GPU(1, "A100", 80 * GIB), {limits.MPS: "0=1G, 1=512MB"}).nbytes == 512 << 20


@pytest.mark.parametrize(
    ("text", "limit", "unread"),
    [
        ("", None, []),
        ("0=10G", 10 * GIB, []),
        (" 0 = 512m , 1=1GB,", 512 << 20, []),
        ("1=1G", None, []),
        ("0=2G,0=1G", GIB, []),
        ("10G", None, ["10G"]),
        ("0=10", None, ["0=10"]),
        ("0=1.5G", None, ["0=1.5G"]),
        ("GPU-abc=1G,0=2G", 2 * GIB, ["GPU-abc=1G"]),
        ("all=1G, x", None, ["all=1G", "x"]),
    ],
)
def test_mps_limit_is_parsed_or_noted(text: str, limit, unread) -> None:
    parsed = _limit(environ={limits.MPS: text})
    assert (parsed and parsed.nbytes) == limit
    note = limits.unread_mps_note({limits.MPS: text})
    assert bool(note) == bool(unread)
    assert all(repr(part) in note for part in [*unread] if note)
    assert limits.unread_mps_note({}) == ""


def test_reserve_of_all_memory_is_refused() -> None:
    with pytest.raises(zc.errors.OptionError, match="pass a smaller size"):
        _limit(reserve="80GiB")


def test_fraction_refers_to_the_slice() -> None:
    assert _limit(GPU(0, "A100 MIG 1g.10gb", 10 * GIB, mig=True), fraction=0.5).nbytes == 5 * GIB


@pytest.mark.parametrize("option", ["limit", "initial", "reserve"])
def test_size_above_the_gpu_is_refused(option: str) -> None:
    with pytest.raises(zc.errors.OptionError, match=r"A100 \(device 0\) has 80 GiB"):
        _limit(**{option: "81GiB"})


def test_managed_memory_may_exceed_the_gpu() -> None:
    settings = Settings.read("managed", limit="200GiB")
    assert limits.device_limit(settings, A100, {}).nbytes == 200 * GIB


def test_initial_above_limit_is_refused() -> None:
    with pytest.raises(zc.errors.OptionError, match="exceeds the limit of the pool"):
        _limit(initial="3GiB", environ={limits.MPS: "0=2G"})


def test_fraction_without_gpu_is_refused() -> None:
    allocator = type("A", (), {"allocate": print, "deallocate": print})()
    with pytest.raises(zc.errors.OptionError, match="the machine has no GPU"):
        limits.device_limit(Settings.read(allocator=allocator, fraction=0.5), None, {})


def test_other_processes_are_noted() -> None:
    busy = GPU(0, "A100", 80 * GIB, others=5 * GIB)
    note, seen = limits.sharing_note(busy, None, {})
    assert seen
    assert "5 GiB of device 0" in note
    assert limits.sharing_note(busy, limits.Limit(GIB, "limit="), {}) == ("", False)
    assert limits.sharing_note(A100, None, {}) == ("", False)
    note, seen = limits.sharing_note(A100, None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert not seen
    assert "time-slicing" in note
    slice_of = GPU(0, "A100 MIG", 10 * GIB, mig=True, others=GIB)
    assert limits.sharing_note(slice_of, None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == ("", False)


# -- GPUs, read through NVML ----------------------------------------------------------------


def whole(name, uuid, total, used=0, processes=(), **more):
    return card(name=name, uuid=uuid, total=total, used=used, reserved=0, compute=[*processes], **more)


WHOLE = [whole("A100", "GPU-a12", 80 * GIB), whole("A30", "GPU-b", 24 * GIB, 100 << 20)]


@pytest.fixture
def nvml(monkeypatch):
    def put(*cards):
        library = FakeNvml(*cards)
        monkeypatch.setattr(gpus.nvml, "started", lambda: Nvml(library, tolerant=True))
        return library

    return put


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        (None, ["A100", "A30"]),
        ("1,0", ["A30", "A100"]),
        ("GPU-b", ["A30"]),
        ("GPU-a", ["A100"]),
        ("GPU-", []),
        ("0,7,1", ["A100"]),
        ("0,-1,1", ["A100"]),
        ("GPU-unknown", []),
        ("", []),
    ],
)
def test_visible_devices_follow_the_variable(nvml, variable, names) -> None:
    nvml(*WHOLE)
    visible, reason = gpus.visible_gpus({} if variable is None else {"CUDA_VISIBLE_DEVICES": variable})
    assert [gpu.name for gpu in visible] == names
    assert [gpu.index for gpu in visible] == list(range(len(names)))
    assert (reason is None) == bool(names)


def test_memory_of_other_processes_is_reported(nvml) -> None:
    nvml(*WHOLE)
    assert [gpu.others for gpu in gpus.visible_gpus({})[0]] == [0, 100 << 20]
    nvml(whole("A100", "GPU-a", 80 * GIB, 10 << 20, [(1, 10 << 20)]))
    assert gpus.visible_gpus({})[0][0].others == 10 << 20


@pytest.mark.hazard("robustness#memory-of-this-process")
@pytest.mark.parametrize(("more", "others"), [({}, 0), ({1: 3 * GIB}, 3 * GIB)])
def test_memory_of_this_process_is_not_that_of_others(nvml, more, others: int) -> None:
    own = 2 * GIB
    processes = [(os.getpid(), own), *more.items()]
    nvml(whole("A100", "GPU-a", 80 * GIB, own + sum(more.values()), processes))
    (gpu,), _ = gpus.visible_gpus({})
    assert (gpu.others, gpu.includes_own) == (others, False)


@pytest.mark.hazard("robustness#memory-of-this-process")
@pytest.mark.parametrize(("inode", "context"), [(4026532001, True), (4026532001, False), (4026531836, True)])
def test_a_pid_namespace_hides_which_memory_is_our_own(nvml, monkeypatch, inode: int, context: bool) -> None:
    monkeypatch.setattr(gpus.os, "readlink", lambda path: f"pid:[{inode}]")
    monkeypatch.setattr(gpus.cuda_pool, "has_context", lambda index: context)
    nvml(whole("A100", "GPU-a", 80 * GIB, 2 * GIB, [(os.getpid() + 1, 2 * GIB)]))
    (gpu,), _ = gpus.visible_gpus({})
    hidden = inode == 4026532001 and context
    assert (gpu.others, gpu.includes_own) == (2 * GIB, hidden)
    note, _ = limits.sharing_note(gpu, None, {})
    assert ("own memory" in note) == hidden


def test_unknown_sizes_of_processes_are_not_subtracted(nvml) -> None:
    nvml(whole("A100", "GPU-a", 80 * GIB, GIB, [(os.getpid(), None)]))
    assert gpus.visible_gpus({})[0][0].others == GIB


@pytest.mark.hazard("robustness#gpu-without-a-size")
def test_a_gpu_whose_memory_is_not_reported_takes_limits_in_bytes(nvml) -> None:
    """GB10 shares the host's memory: NVML reports neither its total nor its used bytes."""
    nvml(whole("GB10", "GPU-c", None))
    (gpu,), reason = gpus.visible_gpus({})
    assert (gpu.total, gpu.others, reason) == (None, 0, None)
    assert _limit(gpu, limit="4GiB").nbytes == 4 * GIB
    assert _limit(gpu) is None
    for options in ({"fraction": 0.5}, {"reserve": "1GiB"}):
        with pytest.raises(zc.errors.OptionError, match=r"NVML does not report .* of GB10 \(device 0\)"):
            _limit(gpu, **options)


def test_an_older_driver_reports_memory_in_the_older_form(nvml) -> None:
    nvml(WHOLE[1]).failing["nvmlDeviceGetMemoryInfo_v2"] = CODES["NotSupported"]
    (gpu,), _ = gpus.visible_gpus({})
    assert (gpu.total, gpu.others) == (24 * GIB, 100 << 20)


@pytest.mark.hazard("robustness#older-drivers")
def test_functions_that_an_older_driver_lacks_are_not_called(nvml) -> None:
    nvml(WHOLE[1]).missing = {"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"}
    (gpu,), _ = gpus.visible_gpus({})
    assert (gpu.total, gpu.others) == (24 * GIB, 100 << 20)


def test_mig_slice_is_the_visible_gpu(nvml) -> None:
    part = mig_device(0, name="A100 MIG 1g.10gb", uuid="MIG-x")
    nvml(whole("A100", "GPU-a", 80 * GIB, mig=[part]))
    for environ in ({}, {"CUDA_VISIBLE_DEVICES": "MIG-x"}, {"CUDA_VISIBLE_DEVICES": "0"}):
        (gpu,), reason = gpus.visible_gpus(environ)
        assert (gpu.name, gpu.total, gpu.mig, reason) == ("A100 MIG 1g.10gb", 10 * GIB, True, None)


def test_missing_driver_is_the_reason(monkeypatch) -> None:
    monkeypatch.setattr(gpus.nvml, "started", lambda: None)
    monkeypatch.setattr(gpus.cuda_driver, "driver", lambda: None)
    visible, reason = gpus.visible_gpus({})
    assert visible == []
    assert "no NVIDIA driver" in reason.why
