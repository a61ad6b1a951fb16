"""Report what is installed and what the machine has; frameworks are imported only on request."""

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
    from rich.table import Table
    from rich.text import Text

    from zerocopy.cli.terminal import Output

_SMI = ("--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits")


def report(importing: bool = False) -> dict[str, Any]:
    """Return the report of ``zerocopy doctor`` as a JSON document.

    Parameters
    ----------
    importing : bool
        Import each installed framework, to list its devices.
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


def _usable_cores() -> int | None:
    affinity = getattr(os, "sched_getaffinity", None)
    return os.cpu_count() if affinity is None else len(affinity(0))


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
    return {
        "index": index,
        "name": name,
        "memory_bytes": total,
        "compute_capability": f"{major}.{minor}",
    }


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
                except Exception as error:  # noqa: BLE001 - the report shows a broken installation
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
    """Return the report of the installed pool, or of the pool that installing would make."""
    from zerocopy.errors import ZeroCopyError
    from zerocopy.pool.install import installed_pool, survey

    pool = installed_pool()
    try:
        pool_report = (pool or survey()).report().as_dict()
    except ZeroCopyError as error:  # ZEROCOPY_POOL is wrong or cannot be satisfied
        return {"installed": False, "why": str(error)}
    return {"installed": pool is not None, **pool_report}


# -- printing ---------------------------------------------------------------------------


def print_report(document: dict[str, Any], out: Output) -> None:
    """Print a report."""
    from rich.text import Text

    out.show(Text(f"zerocopy {document['zerocopy']}", "bold"))
    _print_machine(document["machine"], document["nvidia"], out)
    _print_frameworks(document["frameworks"], out)
    _print_pool(document["pool"], out)
    _print_extras(document["extras"], out)


def _list() -> Table:
    """Return an empty table for names and their values."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(ratio=1)
    return table


def _grid(out: Output, *titles: str) -> Table:
    """Return an empty table with titles; its first column is for signs."""
    from rich.table import Table

    table = Table(box=out.signs.box, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
    for title in ("", *titles):
        table.add_column(title, overflow="fold")
    return table


def _sign(positive: bool, out: Output) -> Text:
    from rich.text import Text

    return Text(out.signs.yes, "green") if positive else Text(out.signs.no, "dim")


def _print_machine(here: dict[str, Any], gpu: dict[str, Any], out: Output) -> None:
    from rich.text import Text

    table = _list()
    threads = "with the GIL" if here["gil"] else "free-threaded, without the GIL"
    table.add_row(" Python", Text(f"{here['implementation']} {here['python']}, {threads}"))
    table.add_row("", Text(here["executable"], "dim"))
    table.add_row(" Platform", Text(here["platform"]))
    table.add_row(" CPU", Text(f"{here['cpu']}, {here['cores_usable']} of {here['cores']} cores usable"))
    if here["memory_bytes"] is not None:
        free = here["memory_free_bytes"]
        available = f", {_gib(free)} available" if free is not None else ""
        table.add_row(" Memory", Text(_gib(here["memory_bytes"]) + available))
    for i, line in enumerate(_gpu_lines(gpu)):
        table.add_row(" NVIDIA" if i == 0 else "", Text(line))
    out.show("", table)


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _gpu_lines(gpu: dict[str, Any]) -> list[str]:
    smi = gpu.get("nvidia_smi")
    if not gpu["driver"]:
        lines = [gpu["why"]]
    else:
        driver = f"driver {smi[0].get('driver')}, " if isinstance(smi, list) and smi else ""
        lines = [f"{driver}CUDA {gpu['cuda']}, {len(gpu['devices'])} devices"]
        for device in gpu["devices"]:
            name = f"cuda:{device['index']} {device['name']}, {_gib(device['memory_bytes'])}"
            lines.append(f"{name}, compute capability {device['compute_capability']}")
    return [*lines, smi] if isinstance(smi, str) else lines


def _print_frameworks(rows: list[dict[str, Any]], out: Output) -> None:
    from rich.text import Text

    from zerocopy.cli.terminal import printable

    table = _grid(out, "framework", "kind", "version", "devices")
    for row in rows:
        sign, name = _sign(row["installed"], out), Text(row["name"], "bold" if row["installed"] else "")
        if not row["installed"]:
            devices = Text(row["install"], "dim")
        elif row["import_error"] is not None:
            sign, devices = Text(out.signs.broken, "bold red"), Text(printable(row["import_error"]), "red")
        elif row["devices"] is None:
            devices = Text("not imported", "dim")
        else:
            devices = Text(", ".join(row["devices"]) or "none usable here")
            if row["import_seconds"] is not None:
                devices.append(f"  (imported in {row['import_seconds']:.2f} s)", "dim")
        version = (row["version"] or "?") if row["installed"] else Text("-", "dim")
        table.add_row(sign, name, row["kind"], version, devices)
    out.show("", Text("Frameworks", "bold"), table)
    if any(row["installed"] and not row["imported"] and row["import_error"] is None for row in rows):
        out.show("", Text(" zerocopy doctor --import imports them and lists their devices", "dim"))


def _print_pool(pool: dict[str, Any], out: Output) -> None:
    from rich.text import Text

    state = "installed" if pool["installed"] else "what zerocopy.install_pool() would install"
    out.show("", Text.assemble(("Pool", "bold"), (f"  {state}", "dim")))
    if "kind" not in pool:
        out.show(Text(f" {pool['why']}"))
        return
    settings = _list()
    settings.add_row(" kind", Text(pool["kind"]))
    host = pool["host"] or ["off"]
    for name, lines in (("device", pool["devices"]), ("host", host), ("note", pool["notes"])):
        for line in lines:
            settings.add_row(f" {name}", Text(line))
    table = _grid(out, "framework", "status", "what")
    for row in pool["frameworks"]:
        served = row["status"] in ("installed", "env_pending", "pending_import")
        what = Text(row["what"], "" if served else "dim")
        if row["remedy"]:
            what.append(f"\n{row['remedy']}", "dim")
        table.add_row(_sign(served, out), Text(row["framework"], "bold"), row["status"], what)
    out.show(settings, table)


def _print_extras(document: dict[str, Any], out: Output) -> None:
    from rich.text import Text

    out.show("", Text("Extras", "bold"))
    if not document["known"]:
        out.show(Text(f" {document['why']}"))
        return
    table = _grid(out, "extra", "has", "would add")
    for name, extra in document["extras"].items():
        installed = ", ".join(part["name"] for part in extra["parts"] if part["fits"])
        missing = ", ".join(_missing(part) for part in extra["parts"] if not part["fits"])
        more = Text.assemble(missing, (f"\n{extra['install']}" if missing else "", "dim"))
        table.add_row(_sign(extra["complete"], out), Text(name, "bold"), Text(installed, "dim"), more)
    out.show(table)


def _missing(part: dict[str, Any]) -> str:
    installed = f" (here: {part['version']})" if part["version"] is not None else ""
    return f"{part['name']}{part['wanted']}{installed}"
