"""Parts of ``zerocopy doctor`` about processes: the limits of a GPU, and the requirements of ``share``.

docs/gpu-server.md, "Several processes on one GPU", describes time slices, MPS, MIG, vGPU and compute modes.
The requirements of ``share`` are checked by sharing memory with a child.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zerocopy.errors import ZeroCopyError
from zerocopy.forks import installed_version
from zerocopy.formatting import printable
from zerocopy.framework import version_numbers
from zerocopy.integrations import ENGINES, install_line
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
#: File descriptors that should be free: a large object needs one, and a result of it two.
_FEW_DESCRIPTORS = 256
#: The inode of the first PID namespace (<linux/proc_ns.h>, PROC_PID_INIT_INO).
_FIRST_NAMESPACE = 0xEFFF_FFFC
_ELEMENTS = 1 << 16  # of 4 bytes: more than a small block holds, so that the child maps it

#: Opens a handle, writes to the memory, and prints its findings.
_CHILD = """
import json, sys
import zerocopy as zc
from zerocopy.shared.reading import mapping, was_written

shared = zc.Shared.from_bytes(bytes.fromhex(sys.argv[1]))
array = zc.convert(shared, to="numpy")
mapped = mapping(shared.handle.location)
place = mapped.address + shared.handle.first
right = int(array.sum()) == array.size
before = was_written(place, 1)
mapped[shared.handle.first] = 7
print(json.dumps({"right": right, "pagemap": was_written(place, 1) and not before}))
"""


def gpu_limits(environ: Mapping[str, str] = os.environ, library: Any = None) -> dict[str, Any]:
    """Return the driver's version, the GPUs with their modes, time slices, and MPS's settings."""
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
    """Return the driver's version, each GPU's modes, and why no GPU is listed."""
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


def processes() -> dict[str, Any]:
    """Return the requirements of memory that processes share, whether each is met, and the engines."""
    return {"checks": checks(), "engines": engines()}


# -- the requirements of share() -----------------------------------------------------------


def checks() -> list[dict[str, Any]]:
    """Return a row for each requirement: its name, whether it is satisfied, and the details."""
    if not hasattr(os, "memfd_create"):
        return [_row("shared memory", False, "share() needs Linux, whose memfd has no name to clean up")]
    return [*_try_sharing(), _room(), _descriptors(), _namespace(), _dev_shm()]


def _row(name: str, works: bool, detail: str) -> dict[str, Any]:
    return {"name": name, "works": works, "detail": detail}


def _try_sharing() -> list[dict[str, Any]]:
    """Share an array, open it in a child process, and write to it there."""
    import numpy as np

    from zerocopy._engine.convert import convert
    from zerocopy.shared.share import share

    array = np.ones(_ELEMENTS, "i4")
    try:
        shared = share(array)
    except ZeroCopyError as error:
        return [_row("memfd", False, error.why)]
    rows = [_row("memfd", True, "a sealed segment was allocated")]
    with shared:
        answer, why = _open_in_child(bytes(shared))
        if answer is None:
            return [*rows, _row("opening", False, f"a child process could not open it: {why}")]
        rows.append(_row("opening", answer["right"], "a child process opened it through /proc"))
        unchanged = bool(convert(shared, "numpy").all())
    rows.append(_row("private maps", unchanged, "a write in the child changed no other process"))
    detail = "an unchanged result is shared again without a copy"
    if not answer["pagemap"]:
        detail = "the kernel hides /proc/self/pagemap: a result that is shared again is copied"
    return [*rows, _row("pagemap", answer["pagemap"], detail)]


def _open_in_child(handle: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the child's findings, or None and its error."""
    path = os.pathsep.join([os.getcwd(), *filter(None, sys.path)])
    environment = {k: v for k, v in os.environ.items() if k != "ZEROCOPY_POOL"} | {"PYTHONPATH": path}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, handle.hex()],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=environment,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit code {error.returncode}"]
        return None, next((line for line in lines if line.startswith("zerocopy.")), lines[-1])
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    return answer, ""


def _room() -> dict[str, Any]:
    from zerocopy.shared import room

    free, limit = room.available()
    of = "the machine's memory" if limit == "memory" else limit
    return _row("room", free > 0, f"{free / (1 << 30):.1f} GiB, limited by {of}")


def _descriptors() -> dict[str, Any]:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return _row("file descriptors", True, "no limit")
    free = limit - len(os.listdir("/proc/self/fd"))
    detail = f"{free:,} of {limit:,} are free; a large object needs one"
    enough = free >= _FEW_DESCRIPTORS
    return _row("file descriptors", enough, detail if enough else f"{detail} (raise it with ulimit -n)")


def _namespace() -> dict[str, Any]:
    from zerocopy.shared.handle import pid_namespace
    from zerocopy.shared.segment_file import VARIABLE

    place = "the machine's own" if pid_namespace() == _FIRST_NAMESPACE else "a container's"
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return _row("PID namespace", True, f"{place}; {VARIABLE}=1 lets other containers open handles")
    return _row("PID namespace", True, f"{place}; a broker lets other containers open handles")


def _dev_shm() -> dict[str, Any]:
    try:
        total = shutil.disk_usage("/dev/shm").total
    except OSError as error:
        return _row("/dev/shm", True, f"not available ({error.strerror}), and not needed by zerocopy")
    return _row("/dev/shm", True, f"{total / (1 << 30):.1f} GiB, of which a loader may use one page")


# -- engines ----------------------------------------------------------------------------


def engines(version_of: Callable[[str, str], str | None] = installed_version) -> list[dict[str, Any]]:
    """Return a row for each engine that zerocopy integrates; imports none of them."""
    rows = [_engine(*engine, version_of(engine[1], engine[2].partition("[")[0])) for engine in ENGINES]
    standard = {"name": "multiprocessing", "wanted": "", "version": "standard library", "works": True}
    return [*rows, {**standard, "install": ""}]


def _engine(name: str, module: str, distribution: str, oldest: str, version: str | None) -> dict[str, Any]:
    wanted = f"{distribution}>={oldest}" if oldest else distribution
    works = version is not None and version_numbers(version) >= version_numbers(oldest)
    return {
        "name": name,
        "wanted": wanted,
        "version": version,
        "works": works,
        "install": install_line(name),
    }
