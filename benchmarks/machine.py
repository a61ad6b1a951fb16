"""Description of the computer, and its memory."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import psutil

_HERE = Path(__file__).parent

# Variables that set the number of threads of libraries.
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"),
    *("POLARS_MAX_THREADS", "NUMBA_THREADING_LAYER", "XLA_FLAGS", "TF_NUM_INTRAOP_THREADS"),
)

# Distributions of the CUDA runtime.
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12")


def machine() -> dict[str, Any]:
    """Describe what figures depend on, without anything that identifies the computer."""
    return {
        "cpu": _cpu(),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count(),
        "threads": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "virtual": _virtual(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "compiler": platform.python_compiler(),
        "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)(),
        "usable_threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "thread_settings": {name: os.environ[name] for name in _THREADS if name in os.environ},
        # This pool would serve all memory that the process measures.
        **({"pool": os.environ["ZEROCOPY_POOL"]} if os.environ.get("ZEROCOPY_POOL") else {}),
        **_gpu(),
    }


def core() -> dict[str, Any]:
    """Return whether zerocopy's compiled core is loaded in this process, why not, and its instruction set."""
    from zerocopy import _native

    if _native.core is None:
        return {"loaded": False, "why_not": _native.why_not}
    isa = _native.core.isa()
    return {"loaded": True, "why_not": "", "isa": isa, "isa_narrowed": isa != _native.core.isas[0]}


def load() -> float | None:
    """Return the load average of the last minute, which includes this process."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def versions(distributions: Iterable[str], ours: bool = True) -> dict[str, str]:
    """Return the versions of the installed distributions, and with `ours` that of zerocopy."""
    installed = {}
    for name in distributions:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if not ours:
        return installed
    import zerocopy

    installed["zerocopy"] = zerocopy.__version__ + _commit()
    return installed


def slug(text: str) -> str:
    """Return text in a form for file names.

    Examples
    --------
    >>> slug("Intel(R) Xeon(R) Gold 6242")
    'intel-r-xeon-r-gold-6242'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def available_memory() -> int:
    """Return the bytes that are available without swapping."""
    return int(psutil.virtual_memory().available)


def within_memory(sizes: Sequence[int]) -> list[int]:
    """Return the sizes of which three arrays fit in half of the free memory."""
    return [size for size in sizes if size * 6 <= available_memory()] or [min(sizes)]


def resident() -> int:
    """Return this process's resident set, in bytes."""
    return int(psutil.Process().memory_info().rss)


def reset_peak() -> bool:
    """Reset the peak of the resident set to its current value; return False if that is not possible."""
    try:
        # proc(5): writing 5 to clear_refs resets VmHWM (Linux 4.0).
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak() -> int:
    """Return the peak of the resident set since :func:`reset_peak`, in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def peak_of(call: Callable[[], Any]) -> int:
    """Return the growth of the resident set in a call, at its peak."""
    gc.collect()
    if not reset_peak():
        raise RuntimeError("this system does not reset the peak of a process")
    before = resident()
    result = call()
    grown = peak() - before
    del result
    return grown


def growth(call: Callable[[], Any]) -> dict[str, float]:
    """Return the growth of the resident set in a call, as figures of a case; its result is dropped."""
    has_peak = reset_peak()
    before = resident()
    result = call()
    figures: dict[str, float] = {"bytes while the result lives": resident() - before}
    if has_peak:
        figures["bytes at the peak"] = peak() - before  # only the peak shows a temporary copy
    del result
    return figures


def _cpu() -> str:
    """Return the model name, with family and model number if a virtual machine hides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    known = dict(reversed([[p.strip() for p in line.split(":", 1)] for line in lines if ":" in line]))
    name = known.get("model name", platform.machine())
    if not any(c.isdigit() for c in name) and "cpu family" in known:
        name += f" family {known['cpu family']} model {known.get('model', '?')}"
    return name


def _gpu() -> dict[str, Any]:
    """Describe the GPUs with NVML, which does not initialise CUDA in this process.

    `cuda_driver` is the newest CUDA that the driver supports, `cuda_runtime` the installed one.
    """
    from zerocopy.pool.gpus import visible_gpus

    gpus, _ = visible_gpus()
    if not gpus:
        return {}
    return {
        "gpus": [
            {"name": c.name, "memory_bytes": c.total, "mig": c.mig, "shared": c.others > 0} for c in gpus
        ],
        **_driver(),
        "cuda_runtime": next(iter(versions(_RUNTIMES, ours=False).values()), None),
    }


def _driver() -> dict[str, str | None]:
    """Return the version of the NVIDIA driver and the newest CUDA that it supports; None if unknown.

    NVML comes first, because a container may hide the kernel module of the driver.
    """
    from zerocopy.protocols import cuda_driver, nvml

    library = nvml.started()
    version = library.text("nvmlSystemGetDriverVersion") if library else None
    # 1000 * major + 10 * minor (nvmlSystemGetCudaDriverVersion_v2).
    number = library.number("nvmlSystemGetCudaDriverVersion_v2") if library else None
    cuda = cuda_driver.version() if number is None else (number // 1000, number % 1000 // 10)
    if not version:
        try:
            version = Path("/sys/module/nvidia/version").read_text().strip()
        except OSError:
            version = None
    return {"nvidia_driver": version, "cuda_driver": "{}.{}".format(*cuda)}


def _virtual() -> bool | None:
    try:
        return " hypervisor" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return None


def _commit() -> str:
    """Return ``+abcdef0``, with ``.dirty`` if files differ from it; empty outside a checkout."""
    commit = git(_HERE, "describe", "--always", "--dirty=.dirty", "--abbrev=7")
    return f"+{commit}" if commit else ""


def git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command in a folder; empty if it fails, as outside a checkout."""
    try:
        command = ["git", "-C", str(folder), *arguments]
        completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return completed.stdout.strip()
