"""What is said about the computer beside the figures, and what is asked of it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

_HERE = Path(__file__).parent

# What tells libraries how many threads to take.
_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"),
    *("POLARS_MAX_THREADS", "NUMBA_THREADING_LAYER", "XLA_FLAGS", "TF_NUM_INTRAOP_THREADS"),
)

# The distributions that bring the CUDA runtime.
_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12")


def machine() -> dict[str, Any]:
    """Describe the computer: what its figures depend on, and nothing that names it."""
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
        # It would be under all that this process measures.
        **({"pool": os.environ["ZEROCOPY_POOL"]} if os.environ.get("ZEROCOPY_POOL") else {}),
        **_gpu(),
    }


def load() -> float | None:
    """Return how many processes wanted a core in the last minute; this one is among them."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def versions(distributions: Iterable[str], ours: bool = True) -> dict[str, str]:
    """Return the versions of those distributions that are installed, and our own commit if wanted."""
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if not ours:
        return found
    import zerocopy

    found["zerocopy"] = zerocopy.__version__ + _commit()
    return found


def slug(text: str) -> str:
    """Return text as a part of a file's name.

    Examples
    --------
    >>> slug("Intel(R) Xeon(R) Gold 6242")
    'intel-r-xeon-r-gold-6242'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def available_memory() -> int:
    """Return the bytes that can be had without pushing anything out."""
    return int(psutil.virtual_memory().available)


def resident() -> int:
    """Return this process's resident set, in bytes."""
    return int(psutil.Process().memory_info().rss)


def reset_peak() -> bool:
    """Start the peak of the resident set from where it is now; False where that cannot be done."""
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


def _cpu() -> str:
    """Return the model; where a virtual machine hides it, the family and model number too."""
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
    """Describe the GPUs, if there are any: asked of NVML, which begins no CUDA in this process.

    `cuda_driver` is the newest CUDA that the driver speaks, `cuda_runtime` the one that is installed.
    """
    from zerocopy.pool.gpus import visible_gpus

    found, _ = visible_gpus()
    if not found:
        return {}
    return {
        "gpus": [
            {"name": c.name, "memory_bytes": c.total, "mig": c.mig, "shared": c.others > 0} for c in found
        ],
        **_driver(),
        "cuda_runtime": next(iter(versions(_RUNTIMES, ours=False).values()), None),
    }


def _driver() -> dict[str, str | None]:
    """Return the versions of the NVIDIA driver and of the CUDA that it speaks; None for what nobody tells.

    Of NVML, for a container need not show the driver's kernel module; of that where there is no NVML.
    """
    from zerocopy.pool.gpus import driver_versions
    from zerocopy.protocols import cuda_driver

    version, spoken = driver_versions()
    if version is None:
        try:
            version = Path("/sys/module/nvidia/version").read_text().strip()
        except OSError:
            version = None
    return {"nvidia_driver": version, "cuda_driver": spoken or "{}.{}".format(*cuda_driver.version())}


def _virtual() -> bool | None:
    try:
        return " hypervisor" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return None


def _commit() -> str:
    """Return ``+abcdef0``, with a further ``.dirty`` where files differ; nothing outside a checkout."""
    try:
        asked = ["git", "-C", str(_HERE), "describe", "--always", "--dirty=.dirty", "--abbrev=7"]
        told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"+{told.stdout.strip()}"
