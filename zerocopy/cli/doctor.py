"""What is here: frameworks, extras, the machine and its GPUs; nothing is imported to find out."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import zerocopy
from zerocopy import registry
from zerocopy.cli.extras import extras
from zerocopy.errors import DeviceError
from zerocopy.protocols import cuda_driver

if TYPE_CHECKING:
    from rich.text import Text

    from zerocopy.cli.terminal import Output

_SMI = ("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits")


def report(importing: bool = False) -> dict[str, Any]:
    """Return all that ``zerocopy doctor`` says, as JSON has it.

    Parameters
    ----------
    importing : bool
        Import each installed framework, so that it names its devices.
    """
    return {
        "zerocopy": zerocopy.__version__,
        "machine": machine(),
        "nvidia": nvidia(),
        "frameworks": _frameworks(importing),
        "pool": _pool(),
        "extras": extras(),
    }


# -- the machine --------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Return Python, the platform, the CPU and the memory."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "architecture": platform.machine(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "cores_usable": _usable_cores(),
        **_memory(),
    }


def _cpu() -> str:
    # platform.processor() is empty on Linux; the kernel names the model.
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() in ("model name", "Model", "Hardware"):
                    return value.strip()
    except OSError:
        pass  # no Linux: the fallback is below
    return platform.processor() or platform.machine()


def _usable_cores() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return os.cpu_count() if affinity is None else len(affinity(0))


def _memory() -> dict[str, int | None]:
    try:
        with open("/proc/meminfo", encoding="utf-8") as lines:
            found = {k: int(v.split()[0]) * 1024 for k, _, v in (line.partition(":") for line in lines)}
        return {"memory_bytes": found.get("MemTotal"), "memory_free_bytes": found.get("MemAvailable")}
    except OSError:
        pass  # no Linux: the fallback is below
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return {"memory_bytes": None, "memory_free_bytes": None}
    return {"memory_bytes": total, "memory_free_bytes": None}


# -- NVIDIA -------------------------------------------------------------------------


def nvidia() -> dict[str, Any]:
    """Return what the NVIDIA driver says, asked through its library and through nvidia-smi."""
    found = by_driver()
    smi = _by_smi()
    if smi is not None:
        found["nvidia_smi"] = smi
    return found


def by_driver() -> dict[str, Any]:
    """Return what the driver's library says: its CUDA version and the devices, or why there are none."""
    reason = cuda_driver.missing()
    if reason is not None:
        return {"driver": False, "why": reason.why, "fix": reason.remedy, "devices": []}
    try:
        major, minor = cuda_driver.version()
        devices = [_device(index) for index in range(cuda_driver.count())]
    except DeviceError as error:  # a device that is lost: a doctor is asked then
        return {"driver": False, "why": error.why, "fix": error.remedy, "devices": []}
    return {"driver": True, "cuda": f"{major}.{minor}", "devices": devices}


def _device(index: int) -> dict[str, Any]:
    name, total = cuda_driver.name_and_memory(index)
    major, minor = cuda_driver.compute_capability(index)
    return {
        "index": index,
        "name": name,
        "memory_bytes": total,
        "compute_capability": f"{major}.{minor}",
    }


def _by_smi() -> list[dict[str, str]] | str | None:
    """Return each device's name, driver and memory in MiB; what went wrong; None without nvidia-smi."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    try:
        done = subprocess.run([path, *_SMI], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi did not answer: {error}"
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        return f"nvidia-smi failed with code {done.returncode}" + (f": {said[0]}" if said else "")
    keys = ("name", "driver", "memory_mib")
    return [
        dict(zip(keys, (v.strip() for v in line.split(",")), strict=False))
        for line in done.stdout.splitlines()
    ]


# -- frameworks -----------------------------------------------------------------------


def _frameworks(importing: bool) -> list[dict[str, Any]]:
    failures: dict[str, str] = {}
    seconds: dict[str, float] = {}
    if importing:
        for name, info in zerocopy.frameworks().items():
            if info.installed and name not in sys.modules:
                start = time.perf_counter()
                try:
                    registry.by_name(name).module()
                except Exception as error:  # noqa: BLE001 - a broken install is what a doctor is for
                    failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
                seconds[name] = round(time.perf_counter() - start, 3)
    rows = []
    for name, info in zerocopy.frameworks().items():
        imported = info.installed and name in sys.modules
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
    """Return the pool's report: of the one that is installed, or of what installing would come to."""
    from zerocopy.errors import ZeroCopyError
    from zerocopy.pool.install import installed_pool, preview

    pool = installed_pool()
    try:
        found = (pool or preview()).report().as_dict()
    except ZeroCopyError as error:  # what ZEROCOPY_POOL asks for cannot be had
        return {"installed": False, "why": str(error)}
    return {"installed": pool is not None, **found}


# -- for people -------------------------------------------------------------------------


def show(found: dict[str, Any], out: Output) -> None:
    """Print a report."""
    from rich.text import Text

    out.show(Text(f"zerocopy {found['zerocopy']}", "bold"))
    _show_machine(found["machine"], found["nvidia"], out)
    _show_frameworks(found["frameworks"], out)
    _show_pool(found["pool"], out)
    _show_extras(found["extras"], out)


def _show_machine(here: dict[str, Any], gpu: dict[str, Any], out: Output) -> None:
    from rich.table import Table
    from rich.text import Text

    gib = 1 << 30
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(ratio=1)
    threads = "with the GIL" if here["gil"] else "free-threaded, without the GIL"
    table.add_row(" Python", Text(f"{here['implementation']} {here['python']}, {threads}"))
    table.add_row("", Text(here["executable"], "dim"))
    table.add_row(" Platform", Text(here["platform"]))
    table.add_row(" CPU", Text(f"{here['cpu']}, {here['cores_usable']} of {here['cores']} cores usable"))
    if here["memory_bytes"] is not None:
        free = here["memory_free_bytes"]
        also = f", {free / gib:.1f} GiB available" if free is not None else ""
        table.add_row(" Memory", Text(f"{here['memory_bytes'] / gib:.1f} GiB{also}"))
    for i, text in enumerate(_gpu_lines(gpu)):
        table.add_row(" NVIDIA" if i == 0 else "", text)
    out.show("", table)


def _gpu_lines(gpu: dict[str, Any]) -> list[Text]:
    from rich.text import Text

    smi = gpu.get("nvidia_smi")
    if not gpu["driver"]:
        lines = [Text(gpu["why"])]
    else:
        driver = f"driver {smi[0].get('driver')}, " if isinstance(smi, list) and smi else ""
        lines = [Text(f"{driver}CUDA {gpu['cuda']}, {len(gpu['devices'])} devices")]
        lines += [
            Text(
                f"cuda:{d['index']} {d['name']}, {d['memory_bytes'] / (1 << 30):.1f} GiB, "
                f"compute capability {d['compute_capability']}"
            )
            for d in gpu["devices"]
        ]
    if isinstance(smi, str):
        lines.append(Text(smi))
    return lines


def _show_frameworks(rows: list[dict[str, Any]], out: Output) -> None:
    from rich.table import Table
    from rich.text import Text

    from zerocopy.cli.terminal import printable

    signs = out.signs
    table = Table(box=signs.box, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
    for title in ("", "framework", "kind", "version", "devices"):
        table.add_column(title, overflow="fold")
    for row in rows:
        if not row["installed"]:
            table.add_row(
                Text(signs.no, "dim"), row["name"], row["kind"], Text("-", "dim"), Text(row["install"], "dim")
            )
            continue
        if row["import_error"] is not None:
            sign, devices = Text(signs.broken, "bold red"), Text(printable(row["import_error"]), "red")
        elif row["devices"] is None:
            sign, devices = Text(signs.yes, "green"), Text("not imported", "dim")
        else:
            sign, devices = Text(signs.yes, "green"), Text(", ".join(row["devices"]) or "none usable here")
            if row["import_seconds"] is not None:
                devices.append(f"  (imported in {row['import_seconds']:.2f} s)", "dim")
        table.add_row(sign, Text(row["name"], "bold"), row["kind"], row["version"] or "?", devices)
    out.show("", Text("Frameworks", "bold"), table)
    if any(row["installed"] and not row["imported"] and row["import_error"] is None for row in rows):
        out.show("", Text(" zerocopy doctor --import imports them, and then names their devices", "dim"))


def _show_pool(found: dict[str, Any], out: Output) -> None:
    from rich.table import Table
    from rich.text import Text

    title = Text("Pool", "bold")
    title.append(
        "  installed" if found["installed"] else "  what zerocopy.install_pool() would come to", "dim"
    )
    out.show("", title)
    if "kind" not in found:
        out.show(Text(f" {found['why']}"))
        return
    about = Table.grid(padding=(0, 2))
    about.add_column(style="dim")
    about.add_column(ratio=1)
    about.add_row(" kind", Text(found["kind"]))
    for name, lines in (("device", found["devices"]), ("host", found["host"] or ["off"])):
        for line in lines:
            about.add_row(f" {name}", Text(line))
    for line in found["notes"]:
        about.add_row(" note", Text(line))
    table = Table(box=out.signs.box, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
    for heading in ("", "framework", "status", "what"):
        table.add_column(heading, overflow="fold")
    for row in found["frameworks"]:
        served = row["status"] in ("installed", "env_pending", "pending_import")
        sign = Text(out.signs.yes, "green") if served else Text(out.signs.no, "dim")
        what = Text(row["detail"], "" if served else "dim")
        if row["remedy"]:
            what.append(f"\n{row['remedy']}", "dim")
        table.add_row(sign, Text(row["framework"], "bold"), row["status"], what)
    out.show(about, table)


def _show_extras(found: dict[str, Any], out: Output) -> None:
    from rich.table import Table
    from rich.text import Text

    out.show("", Text("Extras", "bold"))
    if not found["known"]:
        out.show(Text(f" {found['why']}"))
        return
    signs = out.signs
    table = Table(box=signs.box, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
    for title in ("", "extra", "has", "would add"):
        table.add_column(title, overflow="fold")
    for name, extra in found["extras"].items():
        have = ", ".join(p["name"] for p in extra["parts"] if p["fits"])
        lack = [_lacking(p) for p in extra["parts"] if not p["fits"]]
        sign = Text(signs.yes, "green") if extra["complete"] else Text(signs.no, "dim")
        more = Text(", ".join(lack))
        if lack:
            more.append("\n")
            more.append(extra["install"], "dim")
        table.add_row(sign, Text(name, "bold"), Text(have, "dim"), more)
    out.show(table)


def _lacking(part: dict[str, Any]) -> str:
    here = f" (here: {part['version']})" if part["version"] is not None else ""
    return f"{part['name']}{part['wanted']}{here}"
