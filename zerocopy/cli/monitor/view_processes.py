"""The processes of a sample: their pools, shared memory and loaders."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from zerocopy.cli.monitor.view_lines import labelled, limited
from zerocopy.formatting.units import format_bytes, format_count, format_seconds
from zerocopy.monitor.observer import Rates
from zerocopy.monitor.sample import PoolRecord, ProcessRecord


def process_lines(records: Sequence[ProcessRecord], rates: Rates | None, most: int) -> list[Text]:
    """Return a line for each process."""
    lines = [_process(record, rates) for record in records]
    return _part("Processes", lines, most, "processes")


def _process(record: ProcessRecord, rates: Rates | None) -> str:
    process, shared = record["process"], record["shared"]
    parts = [f"{process['pid']} {process['program']}"]
    parts.append("ended" if record["ended"] else f"{format_bytes(record['rss'])} resident")
    own = rates["processes"].get(process["pid"]) if rates is not None else None
    if own is not None and own["copied_bytes"]:
        parts.append(f"copies {format_bytes(round(own['copied_bytes']))}/s")
    if shared["segments"]:
        parts.append(
            f"{format_count(shared['segments'], 'segment')}, {format_bytes(shared['segment_bytes'])}"
        )
    if shared["mapped"]:
        parts.append(f"{format_bytes(shared['mapped_bytes'])} mapped")
    if shared["leases"]:
        parts.append(format_count(shared["leases"], "lease"))
    return "  ".join(parts)


def pool_lines(records: Sequence[ProcessRecord], most: int) -> list[Text]:
    """Return two lines for each pool, or why there is none."""
    lines: list[str] = []
    for record in records:
        if record["pool"]["kind"]:
            lines += _pool(record["pool"], f"{record['process']['pid']} {record['process']['program']}")
        else:
            # Host memory is counted without an installed pool.
            host = _host(record["pool"])
            lines += [f"{record['process']['pid']} {record['process']['program']}  {host}"] if host else []
    if not lines and records:
        lines = [f"none: {records[0]['pool']['why_not'] or 'no pool is installed'}"]
    return _part("Pool", lines, most * 2, "lines")


def _pool(pool: PoolRecord, who: str) -> list[str]:
    devices = []
    for index, device in pool["devices"].items():
        of = "" if device["reserved"] is None else f" of {format_bytes(device['reserved'])}"
        limit = "" if device["limit"] is None else f", limit {format_bytes(device['limit'])}"
        peak = format_bytes(device["peak"])
        devices.append(f"GPU {index} {format_bytes(device['in_use'])}{of}, peak {peak}{limit}")
    first = "  ".join([f"{who}  {pool['kind']}", *devices])
    held = [
        f"{name} {format_bytes(framework['in_use'])}"
        for name, framework in pool["frameworks"].items()
        if framework["in_use"] is not None
    ]
    second = "   ".join(part for part in (", ".join(held), _host(pool)) if part)
    return [first, f"  {second}"] if second else [first]


def _host(pool: PoolRecord) -> str:
    """Return the memory of the host's modes that is in use or kept."""
    modes = []
    for name, mode in pool["host"].items():
        if mode["in_use"] or mode["kept"]:
            kept = f", {format_bytes(mode['kept'])} kept" if mode["kept"] else ""
            modes.append(f"{name} {format_bytes(mode['in_use'] or 0)}{kept}")
    return f"host: {'; '.join(modes)}" if modes else ""


def loader_lines(records: Sequence[ProcessRecord], most: int) -> list[Text]:
    """Return a line for each loader: how many batches are ready, and the waits of both sides."""
    lines = []
    for record in records:
        for each in record["loaders"]:
            ready = f"  {each['depth']} of {each['limit']} ready" if each["running"] else ""
            lines.append(f"{each['name']}  batches {each['batches']:,}, {format_bytes(each['bytes'])}{ready}")
            reader, consumer = format_seconds(each["reader_wait"]), format_seconds(each["consumer_wait"])
            lines.append(f"  {each['bottleneck']} (reader {reader}, consumer {consumer})")
    return _part("Loaders", lines, most * 2, "lines") if lines else []


def _part(label: str, texts: list[str], most: int, noun: str) -> list[Text]:
    """Return lines, the first of which has the name of the part."""
    lines = [labelled("" if number else label, text) for number, text in enumerate(texts)]
    return limited(lines, most, noun)
