"""``zerocopy doctor``: what limits a GPU here; no GPU, MIG, vGPU, MPS and time slices."""

from __future__ import annotations

import ctypes
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.fake_nvml import CODES, FakeNvml, gpu, mig_device

from zerocopy.cli import limits as gpu_limits
from zerocopy.cli.limits import rows

pytest.importorskip("click")
pytest.importorskip("rich")
from click.testing import CliRunner

from zerocopy.cli.main import command


def limits(*gpus: dict[str, Any], environ: dict[str, str] | None = None) -> dict[str, Any]:
    return gpu_limits.gpu_limits(environ or {}, FakeNvml(*gpus))


@pytest.fixture(autouse=True)
def _no_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu_limits, "_DEFAULT_PIPES", str(tmp_path / "mps"))
    for name in (*gpu_limits.VARIABLES, gpu_limits._PIPES):
        monkeypatch.delenv(name, raising=False)


def nvidia_smi(folder: Path, script: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    library = FakeNvml()
    library.failing["nvmlInit_v2"] = CODES["LibraryNotFound"]
    load = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library if "nvidia-ml" in name else load(name))
    text = CliRunner().invoke(command(), ["doctor"], catch_exceptions=False).stdout
    section = text[text.index("GPU limits") : text.index("Processes")]
    assert "no GPU" in section
    assert "libnvidia-ml.so.1" in section
    assert max(map(len, section.splitlines())) <= 80
    document = json.loads(CliRunner().invoke(command(), ["doctor", "--json"]).stdout)["gpu_limits"]
    assert document["gpus"] == []


def test_a_whole_gpu() -> None:
    document = limits(gpu(mps=[(5, None), (6, None)], compute_mode=3))
    assert document["gpus"] == [
        {
            "index": 0,
            "lost": "",
            "mig": False,
            "mig_devices": 0,
            "virtualization": "none",
            "compute_mode": "one process",
            "mps_clients": 2,
        }
    ]
    text = dict(rows(document))
    assert text["GPU 0"] == "MIG: off"
    assert text["time slices"] == "unknown: nvidia-smi is not installed"
    assert "MPS daemon" not in text


def test_mig_and_vgpu() -> None:
    document = limits(gpu(0, mig=[mig_device(0), mig_device(1)]), gpu(1, virtualization=2))
    lines = [text for _, text in rows(document)]
    assert "MIG: on, MIG devices: 2" in lines
    assert "virtualization: vGPU" in lines


def test_unsupported_modes_are_unknown() -> None:
    library = FakeNvml(gpu())
    for name in ("MigMode", "VirtualizationMode", "ComputeMode", "MPSComputeRunningProcesses_v3"):
        library.failing[f"nvmlDeviceGet{name}"] = CODES["NotSupported"]
    document = gpu_limits.gpu_limits({}, library)
    assert [text for _, text in rows(document)][:4] == [
        "MIG: not supported",
        "virtualization: unknown",
        "compute mode: unknown",
        "MPS clients: unknown",
    ]
    assert not library.started


def test_a_lost_gpu_has_its_reason() -> None:
    document = limits(gpu(0, lost=CODES["GpuIsLost"]), gpu(1))
    assert "Xid" in rows(document)[0][1]
    assert document["gpus"][1]["lost"] == ""


def test_a_driver_that_restarts_has_its_reason() -> None:
    library = FakeNvml(gpu())
    library.failing["nvmlDeviceGetCount_v2"] = CODES["Uninitialized"]
    assert "restarted" in gpu_limits.gpu_limits({}, library)["why_not"]


def test_variables_of_mps_are_shown_without_a_gpu() -> None:
    environ = {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=9G,1=512M",
        "CUDA_MPS_CLIENT_PRIORITY": "secret\x1b[2J",
        "HOME": "/home/user",
    }
    document = limits(environ=environ)
    assert document["mps_variables"] == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=9G,1=512M",
        "CUDA_MPS_CLIENT_PRIORITY": "(not a number, so not shown)",
    }
    assert ("MPS", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25") in rows(document)


def test_the_pipe_of_the_mps_daemon_is_looked_for(tmp_path: Path) -> None:
    pipes = tmp_path / "pipes"
    pipes.mkdir()
    environ = {gpu_limits._PIPES: str(pipes)}
    assert "no pipe" in limits(environ=environ)["mps_daemon"]
    (pipes / "control").touch()
    shown = limits(environ=environ)["mps_daemon"]
    assert shown == f"its pipe is in {gpu_limits._PIPES}"  # the variable's value is not shown


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo '+--+'; echo '| GPU 0: Timeslice  Short |'", ["| GPU 0: Timeslice  Short |"]),
        ("echo no permission >&2; exit 4", ["unknown: nvidia-smi failed with code 4: no permission"]),
        ("true", ["unknown: nvidia-smi lists none"]),
    ],
)
def test_time_slices_are_those_of_nvidia_smi(tmp_path: Path, script: str, expected: list[str]) -> None:
    nvidia_smi(tmp_path, script)
    assert limits(gpu())["time_slices"] == expected


def test_nvidia_smi_that_hangs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, "true")

    def hang(*arguments: Any, timeout: float, **options: Any) -> Any:
        raise subprocess.TimeoutExpired("nvidia-smi", timeout)

    monkeypatch.setattr(gpu_limits.subprocess, "run", hang)
    assert "did not answer" in limits(gpu())["time_slices"][0]
