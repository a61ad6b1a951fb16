"""The report of ``zerocopy doctor``: hardware and installed packages; imports only on request."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from typing import Any

import zerocopy
from zerocopy import _native, registry
from zerocopy.cli.extras import extras
from zerocopy.cli.gpu_limits import gpu_limits
from zerocopy.cli.processes import processes
from zerocopy.errors import DeviceError
from zerocopy.forks import is_imported
from zerocopy.protocols import cuda_driver
from zerocopy.protocols.exporter_errors import is_error

_SMI = ("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits")


def report(importing: bool = False) -> dict[str, Any]:
    """Return the report as a JSON document; `importing` imports the frameworks to list their devices."""
    return {
        "zerocopy": zerocopy.__version__,
        "core": core(),
        "machine": machine(),
        "nvidia": nvidia(),
        "frameworks": _frameworks(importing),
        "pool": _pool(),
        "gpu_limits": gpu_limits(),
        "processes": processes(),
        "extras": extras(),
    }


def core() -> dict[str, Any]:
    """Return whether the compiled core is loaded, with its file, or why it is not."""
    if _native.core is None:
        return {"compiled": False, "why": _native.why_not}
    return {"compiled": True, "file": _native.core.__file__}


# -- the machine --------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Return Python, the platform, the CPU and the memory."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "architecture": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "cores_usable": os.cpu_count() if affinity is None else len(affinity(0)),
        **_memory(),
    }


def _cpu() -> str:
    # platform.processor() is empty on Linux.
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() in ("model name", "Model", "Hardware"):
                    return value.strip()
    except OSError:
        pass  # not Linux: the fallback is below
    return platform.processor() or platform.machine()


def _memory() -> dict[str, int | None]:
    try:
        with open("/proc/meminfo", encoding="utf-8") as lines:
            sizes = {k: int(v.split()[0]) * 1024 for k, _, v in (line.partition(":") for line in lines)}
        return {"memory_bytes": sizes.get("MemTotal"), "memory_free_bytes": sizes.get("MemAvailable")}
    except OSError:
        pass  # not Linux: the fallback is below
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return {"memory_bytes": None, "memory_free_bytes": None}
    return {"memory_bytes": total, "memory_free_bytes": None}


# -- NVIDIA -------------------------------------------------------------------------


def nvidia() -> dict[str, Any]:
    """Return the GPUs that the driver's library lists, and those that nvidia-smi lists."""
    smi = _nvidia_smi()
    return nvidia_driver() | ({} if smi is None else {"nvidia_smi": smi})


def nvidia_driver() -> dict[str, Any]:
    """Return the CUDA version and the devices of the driver's library, or why there are none."""
    reason = cuda_driver.missing()
    if reason is not None:
        return {"driver": False, "why": reason.why, "fix": reason.remedy, "devices": []}
    try:
        major, minor = cuda_driver.version()
        devices = [_device(index) for index in range(cuda_driver.count())]
    except DeviceError as error:  # such as a device that was lost
        return {"driver": False, "why": error.why, "fix": error.remedy, "devices": []}
    return {"driver": True, "cuda": f"{major}.{minor}", "devices": devices}


def _device(index: int) -> dict[str, Any]:
    name, total = cuda_driver.name_and_memory(index)
    major, minor = cuda_driver.compute_capability(index)
    capability = f"{major}.{minor}"
    return {"index": index, "name": name, "memory_bytes": total, "compute_capability": capability}


def _nvidia_smi() -> list[dict[str, str]] | str | None:
    """Return each device's name, driver and memory in MiB; an error; None without nvidia-smi."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    try:
        done = subprocess.run([path, *_SMI], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi did not answer: {error}"
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return f"nvidia-smi failed with code {done.returncode}" + (f": {lines[0]}" if lines else "")
    keys = ("name", "driver", "memory_mib")
    values = ([value.strip() for value in line.split(",")] for line in done.stdout.splitlines())
    return [dict(zip(keys, line, strict=False)) for line in values]


# -- frameworks -----------------------------------------------------------------------


def _frameworks(importing: bool) -> list[dict[str, Any]]:
    failures: dict[str, str] = {}
    seconds: dict[str, float] = {}
    if importing:
        for name, info in zerocopy.frameworks().items():
            if info.installed and not is_imported(name):
                start = time.perf_counter()
                try:
                    registry.by_name(name).module()
                except BaseException as error:  # the report shows a broken installation
                    if not is_error(error):
                        raise
                    failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
                seconds[name] = round(time.perf_counter() - start, 3)
    rows = []
    for name, info in zerocopy.frameworks().items():
        imported = info.installed and is_imported(name)
        rows.append(
            {
                "name": name,
                "kind": info.kind,
                "installed": info.installed,
                "version": info.version,
                "imported": imported,
                "devices": list(info.devices) if imported else None,
                "import_seconds": seconds.get(name),
                "import_error": failures.get(name),
                "install": info.install,
            }
        )
    return rows


def _pool() -> dict[str, Any]:
    """Return the report of the installed pool, or a preview of the pool that would be installed."""
    from zerocopy.errors import ZeroCopyError
    from zerocopy.pool.install import installed_pool, preview

    pool = installed_pool()
    try:
        pool_report = (pool.report() if pool else preview()).as_dict()
    except ZeroCopyError as error:  # ZEROCOPY_POOL is wrong or cannot be satisfied
        return {"installed": False, "why": str(error)}
    return {"installed": pool is not None, **pool_report}
