"""The part of ``zerocopy doctor`` about GPU limits: the mechanisms that divide a GPU between processes.

Time slices, MPS, MIG, vGPU and compute modes are described in docs/monitor.md, "What limits a GPU".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zerocopy.formatting import printable
from zerocopy.protocols.nvml import CardLostError, DriverRestartedError, Nvml, NvmlUnavailableError

#: Variables of MPS whose values are numbers (NVIDIA MPS, "Appendix: Environment Variables").
VARIABLES = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_MPS_ENABLE_PER_CTX_DEVICE_MULTIPROCESSOR_PARTITIONING",
)
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_DEFAULT_PIPES = "/tmp/nvidia-mps"
#: nvmlComputeMode_t and nvmlGpuVirtualizationMode_t (nvml.h).
_COMPUTE_MODES = {0: "shared", 1: "one thread", 2: "prohibited", 3: "one process"}
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vGPU", 3: "host of vGPUs", 4: "host of vSGA"}
_MOST_LINES = 12


def gpu_limits(environ: Mapping[str, str] = os.environ, library: Any = None) -> dict[str, Any]:
    """Return the driver, the GPUs with their modes or why there are none, time slices, and MPS's settings."""
    driver, gpus, why_not = _gpus(library)
    return {
        "driver": driver,
        "why_not": why_not,
        "gpus": gpus,
        "time_slices": _time_slices() if gpus else [],
        "mps_daemon": _mps_daemon(environ),
        "mps_variables": {name: _number(environ[name]) for name in VARIABLES if name in environ},
    }


def rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the report as names and texts."""
    lines = [("no GPU", document["why_not"])] if document["why_not"] else []
    for gpu in document["gpus"]:
        lines += [(f"GPU {gpu['index']}", text) for text in _describe(gpu)]
    lines += [("time slices", line) for line in document["time_slices"]]
    if document["mps_daemon"] != "none":
        lines.append(("MPS daemon", document["mps_daemon"]))
    lines += [("MPS", f"{name}={value}") for name, value in document["mps_variables"].items()]
    # A name is shown once.
    return [(name if i == 0 or lines[i - 1][0] != name else "", text) for i, (name, text) in enumerate(lines)]


def _describe(gpu: Mapping[str, Any]) -> list[str]:
    if gpu["lost"]:
        return [gpu["lost"]]
    parts = "unknown" if gpu["mig_devices"] is None else f"MIG devices: {gpu['mig_devices']}"
    texts = {
        "MIG": {True: f"on, {parts}", False: "off", None: "not supported"}[gpu["mig"]],
        "virtualization": gpu["virtualization"] or "unknown",
        "compute mode": gpu["compute_mode"] or "unknown",
        "MPS clients": "unknown" if gpu["mps_clients"] is None else str(gpu["mps_clients"]),
    }
    return [f"{name}: {text}" for name, text in texts.items()]


# -- NVML -----------------------------------------------------------------------------


def _gpus(library: Any) -> tuple[str, list[dict[str, Any]], str]:
    """Return the version of the driver, each GPU's modes, and why there are none."""
    try:
        nvml = Nvml(library)
    except NvmlUnavailableError as error:
        return "", [], str(error)
    try:
        driver = nvml.text("nvmlSystemGetDriverVersion")
        gpus = [_gpu(nvml, index) for index in range(nvml.count())]
    except DriverRestartedError:
        return "", [], "the NVIDIA driver is being restarted"
    finally:
        nvml.stop()
    return driver, gpus, "" if gpus else "the NVIDIA driver lists no GPU"


def _gpu(nvml: Nvml, index: int) -> dict[str, Any]:
    gpu: dict[str, Any] = {"index": index, "lost": ""} | dict.fromkeys(
        ("mig", "mig_devices", "virtualization", "compute_mode", "mps_clients")
    )
    try:
        handle = nvml.handle(index)
        gpu["mig"], parts = nvml.parts(handle)
        gpu["mig_devices"] = None if gpu["mig"] is None else len(parts)
        mode = nvml.number("nvmlDeviceGetVirtualizationMode", handle)
        gpu["virtualization"] = None if mode is None else _VIRTUALIZATION.get(mode)
        mode = nvml.number("nvmlDeviceGetComputeMode", handle)
        gpu["compute_mode"] = None if mode is None else _COMPUTE_MODES.get(mode)
        clients = nvml.processes(handle, "MPSCompute")
        gpu["mps_clients"] = None if clients is None else len(clients)
    except CardLostError as error:
        gpu["lost"] = str(error)
    return gpu


# -- nvidia-smi and MPS -----------------------------------------------------------------


def nvidia_smi(*arguments: str) -> tuple[list[str] | None, str | None]:
    """Return the lines that nvidia-smi prints, or None with the reason; without nvidia-smi, both are None."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return None, None
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"nvidia-smi did not answer: {printable(str(error))}"
    text = done.stderr or done.stdout if done.returncode else done.stdout
    lines = [printable(line.strip()) for line in text.splitlines() if re.search(r"\w", line)]
    if done.returncode:
        return None, f"nvidia-smi failed with code {done.returncode}" + (f": {lines[0]}" if lines else "")
    return lines, None


def _time_slices() -> list[str]:
    """Return the lines of ``nvidia-smi compute-policy --list``: NVML has no call for them."""
    lines, why_not = nvidia_smi("compute-policy", "--list")
    if lines is None:
        return [f"unknown: {why_not or 'nvidia-smi is not installed'}"]
    return lines[:_MOST_LINES] or ["unknown: nvidia-smi lists none"]


def _mps_daemon(environ: Mapping[str, str]) -> str:
    """Return whether the control daemon's pipe exists; a process without it runs without MPS."""
    folder = environ.get(_PIPES, _DEFAULT_PIPES)
    place = _PIPES if _PIPES in environ else _DEFAULT_PIPES
    try:
        exists = (Path(folder) / "control").exists()
    except OSError:
        return f"unknown: {place} cannot be read"
    if exists:
        return f"its pipe is in {place}"
    return f"{_PIPES} is set, and has no pipe of a daemon" if _PIPES in environ else "none"


def _number(text: str) -> str:
    """Return a value that is a number, or numbers by device; other text is not shown."""
    is_number = re.fullmatch(r"[0-9.,=KMGBkmgb ]{0,200}", text)
    return text if is_number else "(not a number, so not shown)"
