"""The command ``zerocopy doctor``: hardware and installed packages; imports only on request."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table
from rich.text import Text

import zerocopy
from zerocopy import _native, registry
from zerocopy.cli.limits import gpu_limits, processes, rows as limit_rows
from zerocopy.cli.support import STATUSES, support
from zerocopy.cli.terminal import Output, print_json, quiet_imports
from zerocopy.errors import DeviceError, ZeroCopyError
from zerocopy.forks import is_imported
from zerocopy.formatting import printable
from zerocopy.protocols import cuda_driver

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

DISTRIBUTION = "zerocopy-interchange"
#: Extras for work on zerocopy.
_OF_DEVELOPERS = frozenset(("bench", "docs", "gates", "test", "test-small"))


@click.command(short_help="Report what is installed and what is missing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--import", "importing", is_flag=True, help="Import each installed framework, to list its devices."
)
@click.option("--all", "everything", is_flag=True, help="Print each framework, check and extra.")
def doctor(as_json: bool, importing: bool, everything: bool) -> None:
    """Report installed and missing packages, and the hardware."""
    quiet_imports()
    document = report(importing)
    if as_json:
        print_json(document)
    else:
        _print(document, Output(), importing, everything)


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
    """Return whether the compiled core is loaded, with its file and instruction set, or why it is not."""
    if _native.core is None:
        return {"compiled": False, "why": _native.why_not}
    return {"compiled": True, "file": _native.core.__file__, "isa": _native.core.isa()}


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


# -- frameworks -----------------------------------------------------------------------


def _frameworks(importing: bool) -> list[dict[str, Any]]:
    imports = {
        name: _import(name)
        for name, info in zerocopy.frameworks().items()
        if importing and info.installed and not is_imported(name)
    }
    rows = []
    for name, info in zerocopy.frameworks().items():
        imported = info.installed and is_imported(name)
        seconds, failure = imports.get(name, (None, None))
        rows.append(
            {
                "name": name,
                "kind": info.kind,
                "installed": info.installed,
                "version": info.version,
                "imported": imported,
                "devices": list(info.devices) if imported else None,
                "import_seconds": seconds,
                "import_error": failure,
                "install": info.install,
                "support": support(info) if info.installed else None,
            }
        )
    return rows


def _import(name: str) -> tuple[float, str | None]:
    start, failure = time.perf_counter(), None
    try:
        registry.by_name(name).module()
    except Exception as error:  # noqa: BLE001 - the report shows a broken installation
        failure = f"{type(error).__name__}: {error}".splitlines()[0]
    return round(time.perf_counter() - start, 3), failure


def _pool() -> dict[str, Any]:
    """Return the report of the installed pool, or a preview of the pool that would be installed."""
    from zerocopy.pool.install import installed_pool, preview

    pool = installed_pool()
    try:
        pool_report = (pool.report() if pool else preview()).as_dict()
    except ZeroCopyError as error:  # ZEROCOPY_POOL is wrong or cannot be satisfied
        return {"installed": False, "why": str(error)}
    return {"installed": pool is not None, **pool_report}


# -- extras: the requirements of each, and those that are missing -----------------------


def extras() -> dict[str, Any]:
    """Return each extra with its requirements, or why they are not known."""
    try:
        from packaging.requirements import Requirement
    except ModuleNotFoundError:
        return {"known": False, "why": "packaging is not installed: pip install packaging"}
    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        why = "zerocopy runs from a source tree without metadata; pip install -e . adds the list of extras"
        return {"known": False, "why": why}
    requirements = [Requirement(text) for text in distribution.requires or []]
    report = {}
    for name in sorted(distribution.metadata.get_all("Provides-Extra") or []):
        parts = [_part(requirement) for requirement in _requirements(name, requirements, set())]
        missing = dict.fromkeys(f"'{part['name']}{part['wanted']}'" for part in parts if not part["fits"])
        report[name] = {
            "complete": all(part["fits"] for part in parts),
            "parts": parts,
            # Not the extra of zerocopy, which pip cannot find before zerocopy's release.
            "install": " ".join(["pip install", *missing]) if missing else "",
        }
    return {"known": True, "extras": report}


def _requirements(extra: str, requirements: list[Requirement], seen: set[str]) -> list[Requirement]:
    if extra in seen:
        return []
    seen.add(extra)
    selected = []
    for requirement in requirements:
        marker = requirement.marker
        if marker is None or marker.evaluate({"extra": ""}) or not marker.evaluate({"extra": extra}):
            continue  # required without an extra, or not for this one on this platform
        if requirement.name == DISTRIBUTION:
            for other in sorted(requirement.extras):
                selected += _requirements(other, requirements, seen)
        else:
            selected.append(requirement)
    return selected


def _part(requirement: Requirement) -> dict[str, Any]:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        version = None
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return {
        "name": requirement.name + extras,
        "wanted": str(requirement.specifier),
        "version": version,
        "fits": version is not None and _fits(version, requirement.specifier),
    }


def _fits(version: str, specifier: SpecifierSet) -> bool:
    """Whether a version satisfies a specifier; a pre-release counts as its release."""
    from packaging.version import InvalidVersion, Version

    try:
        return not specifier or specifier.contains(Version(version).base_version)
    except InvalidVersion:
        return False


# -- the printed report ---------------------------------------------------------------


def _print(document: dict[str, Any], out: Output, importing: bool, everything: bool) -> None:
    out.show(Text(f"zerocopy {document['zerocopy']}", "bold"), "", _list(_machine_rows(document)))
    _print_frameworks(document["frameworks"], out, importing, everything)
    _print_pool(document["pool"], out, everything)
    limits = [(name, Text(printable(text))) for name, text in limit_rows(document["gpu_limits"])]
    out.show("", Text("GPU limits", "bold"), _list(limits))
    _print_processes(document["processes"], out, everything)
    out.show("", Text("Extras", "bold"))
    if not document["extras"]["known"]:
        out.show(Text(f" {document['extras']['why']}"))
    elif everything:
        rows = [_extra_row(name, extra) for name, extra in document["extras"]["extras"].items()]
        out.show(_grid(out, ("extra", "has", "would add"), rows))
    else:
        extras = {
            name: each for name, each in document["extras"]["extras"].items() if name not in _OF_DEVELOPERS
        }
        groups = {"complete": True, "in part": False}
        names = {
            word: [name for name in extras if extras[name]["complete"] is whole]
            for word, whole in groups.items()
        }
        out.show(_list((word, Text(", ".join(some))) for word, some in names.items() if some))
    if not everything:
        hint = " --import: devices of the frameworks; --all: each framework, check and extra"
        out.show("", Text(hint, "dim"))


def _print_frameworks(rows: list[dict[str, Any]], out: Output, importing: bool, everything: bool) -> None:
    """Print a row for each framework, or names by status."""
    out.show("", Text("Frameworks", "bold"))
    if importing or everything:
        shown = [_framework_row(row, out) for row in rows if everything or row["installed"]]
        out.show(_grid(out, ("framework", "kind", "version", "tested", "devices"), shown))
    else:
        groups: dict[str, list[str]] = {}
        for row in rows:
            status = row["support"]["status"] if row["installed"] else "not installed"
            groups.setdefault(status, []).append(" ".join(filter(None, (row["name"], row["version"]))))
        out.show(_list((status, Text(printable(", ".join(names)))) for status, names in groups.items()))
    notes = [(row["name"], row["support"]["note"]) for row in rows if row["support"]]
    if notes := [(name, Text(printable(note), "dim")) for name, note in notes if note]:
        out.show("", _list(notes))
    absent = any(row["installed"] and not row["imported"] and row["import_error"] is None for row in rows)
    if absent and everything:
        out.show("", Text(" zerocopy doctor --import imports them and lists their devices", "dim"))


def _print_processes(report: dict[str, Any], out: Output, everything: bool) -> None:
    """Print what `share` needs, without `everything` only what is missing, and the engines."""
    checks, engines = report["checks"], report["engines"]
    shown = [row for row in checks if everything or not row["works"]]
    check_rows = [(row["works"], row["name"], Text(printable(row["detail"]))) for row in shown]
    out.show("", Text("Processes", "bold"))
    if check_rows:
        out.show(_grid(out, ("share() needs", "here"), check_rows))
    if not everything:
        works = [row["name"] for row in engines if row["works"]]
        held = [("share()", Text("all that it needs is here"))] if not check_rows else []
        out.show(_list([*held, ("engines", Text(", ".join(works)))]))
        return
    engine_rows = [
        (
            row["works"],
            row["name"],
            row["version"] or Text("-", "dim"),
            Text("" if row["works"] else f"needs {row['wanted']}: {row['install']}", "dim"),
        )
        for row in engines
    ]
    out.show("", _grid(out, ("engine", "version", ""), engine_rows))


def _list(rows: Iterable[tuple[str, Text]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(f" {name}" if name else "", text)
    return table


def _grid(out: Output, titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a table with titles. A row has a sign or whether it is good, a name, and texts."""
    table = Table(box=out.signs.box, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
    for title in ("", *titles):
        table.add_column(title, overflow="fold")
    for sign, name, *texts in rows:
        if isinstance(sign, bool):
            sign = Text(out.signs.yes, "green") if sign else Text(out.signs.no, "dim")
        table.add_row(sign, Text(name, "bold") if isinstance(name, str) else name, *texts)
    return table


def _machine_rows(document: dict[str, Any]) -> Iterator[tuple[str, Text]]:
    core, here, gpu = document["core"], document["machine"], document["nvidia"]
    compiled = f"compiled, records with {core['isa']}" if core["compiled"] else ""
    yield "Core", Text(compiled or f"pure Python: {printable(core['why'])}")
    threads = "with the GIL" if here["gil"] else "free-threaded, without the GIL"
    yield "Python", Text(f"{here['implementation']} {here['python']}, {threads}")
    yield "", Text(here["executable"], "dim")
    yield "Platform", Text(here["platform"])
    yield "CPU", Text(f"{here['cpu']}, {here['cores_usable']} of {here['cores']} cores usable")
    if here["memory_bytes"] is not None:
        free = here["memory_free_bytes"]
        available = f", {_gib(free)} available" if free is not None else ""
        yield "Memory", Text(_gib(here["memory_bytes"]) + available)
    if gpu["driver"]:
        version = document["gpu_limits"]["driver"]
        driver = f"driver {version}, " if version else ""
        yield "NVIDIA", Text(f"{driver}CUDA {gpu['cuda']}, {len(gpu['devices'])} devices")
        for device in gpu["devices"]:
            name = f"cuda:{device['index']} {device['name']}, {_gib(device['memory_bytes'])}"
            yield "", Text(f"{name}, compute capability {device['compute_capability']}")
    else:
        yield "NVIDIA", Text(gpu["why"])


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _framework_row(row: dict[str, Any], out: Output) -> tuple[Any, ...]:
    name = Text(row["name"], "bold" if row["installed"] else "")
    if not row["installed"]:
        return False, name, row["kind"], Text("-", "dim"), Text("-", "dim"), Text(row["install"], "dim")
    status = row["support"]["status"]
    texts = (row["kind"], row["version"] or "?", Text(STATUSES[status], "" if status == "tested" else "dim"))
    if row["import_error"] is not None:
        failure = Text(printable(row["import_error"]), "red")
        return Text(out.signs.broken, "bold red"), name, *texts, failure
    if row["devices"] is None:
        devices = Text("not imported", "dim")
    else:
        devices = Text(", ".join(row["devices"]) or "none usable here")
        if row["import_seconds"] is not None:
            devices.append(f"  (imported in {row['import_seconds']:.2f} s)", "dim")
    sign = Text(out.signs.broken, "bold red") if status == "older" else True
    return sign, name, *texts, devices


def _print_pool(pool: dict[str, Any], out: Output, everything: bool) -> None:
    state = "installed" if pool["installed"] else "the effect of zerocopy.install_pool()"
    out.show("", Text.assemble(("Pool", "bold"), (f"  {state}", "dim")))
    if "kind" not in pool:
        out.show(Text(f" {pool['why']}"))
        return
    lists = {"kind": [pool["kind"]], "device": pool["devices"], "host": pool["host"] or ["off"]}
    lists["note"] = pool["notes"]
    out.show(_list((name, Text(line)) for name, lines in lists.items() for line in lines))
    rows = []
    for row in pool["frameworks"] if everything or pool["installed"] else ():
        served = row["status"] in ("installed", "env_pending", "pending_import")
        detail = Text(row["detail"], "" if served else "dim")
        if row["remedy"]:
            detail.append(f"\n{row['remedy']}", "dim")
        rows.append((served, row["framework"], row["status"], detail))
    if rows:
        out.show(_grid(out, ("framework", "status", "detail"), rows))


def _extra_row(name: str, extra: dict[str, Any]) -> tuple[Any, ...]:
    # Two extras that this one includes can require the same package.
    installed = ", ".join(dict.fromkeys(part["name"] for part in extra["parts"] if part["fits"]))
    missing = ", ".join(
        part["name"] + part["wanted"] + (f" (here: {part['version']})" if part["version"] else "")
        for part in extra["parts"]
        if not part["fits"]
    )
    more = Text.assemble(missing, (f"\n{extra['install']}" if missing else "", "dim"))
    return extra["complete"], name, Text(installed, "dim"), more
