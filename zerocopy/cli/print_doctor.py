"""Print the report of ``zerocopy doctor``."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from zerocopy.cli.gpu_limits import rows as limit_rows
from zerocopy.cli.terminal import Output
from zerocopy.formatting.printable import printable


def print_doctor(document: dict[str, Any], out: Output) -> None:
    """Print the report that :func:`zerocopy.cli.doctor.report` returns."""
    out.show(Text(f"zerocopy {document['zerocopy']}", "bold"))
    _print_machine(document, out)
    _print_frameworks(document["frameworks"], out)
    _print_pool(document["pool"], out)
    _print_gpu_limits(document["gpu_limits"], out)
    _print_processes(document["processes"], out)
    _print_extras(document["extras"], out)


def _list() -> Table:
    """Return an empty table for names and their values."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(ratio=1)
    return table


def _grid(out: Output, *titles: str) -> Table:
    """Return an empty table with titles; its first column is for signs."""
    table = Table(box=out.signs.box, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
    for title in ("", *titles):
        table.add_column(title, overflow="fold")
    return table


def _sign(positive: bool, out: Output) -> Text:
    return Text(out.signs.yes, "green") if positive else Text(out.signs.no, "dim")


def _print_machine(document: dict[str, Any], out: Output) -> None:
    core, here, gpu = document["core"], document["machine"], document["nvidia"]
    table = _list()
    table.add_row(" Core", Text("compiled" if core["compiled"] else f"pure Python: {printable(core['why'])}"))
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
    state = "installed" if pool["installed"] else "the effect of zerocopy.install_pool()"
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
    table = _grid(out, "framework", "status", "detail")
    for row in pool["frameworks"]:
        served = row["status"] in ("installed", "env_pending", "pending_import")
        what = Text(row["detail"], "" if served else "dim")
        if row["remedy"]:
            what.append(f"\n{row['remedy']}", "dim")
        table.add_row(_sign(served, out), Text(row["framework"], "bold"), row["status"], what)
    out.show(settings, table)


def _print_gpu_limits(document: dict[str, Any], out: Output) -> None:
    table = _list()
    for name, text in limit_rows(document):
        table.add_row(f" {name}", Text(printable(text)))
    out.show("", Text("GPU limits", "bold"), table)


def _print_processes(document: dict[str, Any], out: Output) -> None:
    checks, engines = _grid(out, "share() needs", "here"), _grid(out, "engine", "version", "")
    for row in document["checks"]:
        detail = Text(printable(row["detail"]))
        checks.add_row(_sign(row["works"], out), Text(row["name"], "bold"), detail)
    for row in document["engines"]:
        why = "" if row["works"] else f"needs {row['wanted']}: {row['install']}"
        version = row["version"] or Text("-", "dim")
        engines.add_row(_sign(row["works"], out), Text(row["name"], "bold"), version, Text(why, "dim"))
    out.show("", Text("Processes", "bold"), checks, "", engines)


def _print_extras(document: dict[str, Any], out: Output) -> None:
    out.show("", Text("Extras", "bold"))
    if not document["known"]:
        out.show(Text(f" {document['why']}"))
        return
    table = _grid(out, "extra", "has", "would add")
    for name, extra in document["extras"].items():
        # Two extras that this one includes can require the same package.
        installed = ", ".join(dict.fromkeys(part["name"] for part in extra["parts"] if part["fits"]))
        missing = ", ".join(
            part["name"] + part["wanted"] + (f" (here: {part['version']})" if part["version"] else "")
            for part in extra["parts"]
            if not part["fits"]
        )
        more = Text.assemble(missing, (f"\n{extra['install']}" if missing else "", "dim"))
        table.add_row(_sign(extra["complete"], out), Text(name, "bold"), Text(installed, "dim"), more)
    out.show(table)
