"""The charts and tables of the pages: monitored processes, and GPUs and the machine as in NVDashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from zerocopy.formatting import format_bytes, format_seconds
from zerocopy.monitor.conversion import ConversionRow, rows_of, short_path, sort
from zerocopy.monitor.figures import SERIES, Series, running
from zerocopy.monitor.memory_split import PARTS, MemorySplit, memory_split
from zerocopy.monitor.report import count_cells, summary
from zerocopy.monitor.sample import Card, LoaderRecord, ProcessRecord, Sample
from zerocopy.monitor.web.parts import (
    GRAY,
    Cell,
    Chart,
    Row,
    Table,
    Text,
    Unit,
    Values,
    show,
)


def _added(parts: Iterable[tuple[str, float | None]]) -> Values:
    """Return the sums of values with equal labels; None if all are unknown."""
    sums: dict[str, float | None] = {}
    for label, value in parts:
        sums[label] = value if sums.get(label) is None else (sums[label] or 0) + (value or 0)
    return sums


Column = Callable[[Any], Cell | str]


def _table(
    title: str, items: Callable[[Sample], Iterable[Any]], columns: dict[str, Column], absent: str = "none"
) -> Table:
    def rows(sample: Sample) -> list[Row]:
        return [[column(item) for column in columns.values()] for item in items(sample)]

    return Table(title, tuple(columns), rows, absent)


def _chart(
    title: str,
    series: Callable[[Sample], Series],
    keys: str,
    label: str,
    unit: Unit,
    absent: str,
    **options: Any,
) -> Chart:
    """Return the chart of some figures of a series: a sum for each text that `label` makes of the labels."""

    def values(sample: Sample) -> Values:
        return _added(
            (label.format(key=key.replace("_", " "), **labels), figures[key])
            for labels, figures in series(sample)
            for key in keys.split()
        )

    return Chart(title, values, unit, absent=absent, **options)


def _rates(title: str, unit: Unit, absent: str, part: str = "", /, **names: str) -> Chart:
    """Return the chart of some rates by label: of the conversions, or of the machine."""

    def values(sample: Sample) -> Values:
        rates: Any = sample["rates"]
        if rates is None or (part and not sample["processes"]):
            return {}
        figures = rates[part] if part else rates
        return {label.replace("_", " "): figures[name] for label, name in names.items()}

    return Chart(title, values, unit, absent=absent)


# -- conversions ---------------------------------------------------------------------------

_NOT_MONITORED = (
    "No process is monitored. To monitor a program: zerocopy monitor --serve -- train.py, "
    "or set ZEROCOPY_MONITOR=1 before it starts."
)


_PROCESS = "{program} (process {pid})"


def _program(record: ProcessRecord) -> str:
    return _PROCESS.format(**record["process"])


def _state(sample: Sample) -> list[str]:
    """Return the monitored programs, the ended ones, and the problems of the sample."""
    running = [_program(record) for record in sample["processes"] if not record["ended"]]
    ended = [_program(record) for record in sample["processes"] if record["ended"]]
    lines = [f"Monitored: {', '.join(running)}."] * bool(running)
    lines += [f"Ended, with their last figures: {', '.join(ended)}."] * bool(ended)
    return (lines or [_NOT_MONITORED]) + [f"Not read: {problem}" for problem in sample["problems"]]


def _totals(sample: Sample) -> list[str]:
    records = sample["processes"]
    return [f"Since recording began: {summary(rows_of(records))}."] if records else []


STATE, TOTALS = Text(_state), Text(_totals)


_SOON = "after the second sample of a monitored process"
BYTES = _rates(
    "Conversions: bytes per second", "bytes/s", _SOON, "conversions",
    aliased="aliased_bytes", copied="copied_bytes",
)  # fmt: skip
CALLS = _rates(
    "Conversions: calls per second", "/s", _SOON, "conversions", calls="calls", refused="refused_calls"
)


def _sites(title: str, most: int, order: str) -> Table:
    heads = (
        *("line of code", "function", "conversion", "#calls", "#aliased", "#copied", "#copied per call"),
        *("#refused", "#time"),
    )

    def rows(sample: Sample) -> list[Row]:
        return [line for row in sort(rows_of(sample["processes"]), order)[:most] for line in _site(row)]

    return Table(title, heads, rows, "no conversion was recorded yet")


def _site(row: ConversionRow) -> Iterator[Row]:
    """Yield the row of a call site, and a note: unknown figures, the reason and the fix."""
    calls, aliased, copied, seconds = count_cells(row)
    yield [
        Cell(f"{short_path(row.file)}:{row.line}" if row.file else "other call sites", "code"),
        row.function,
        f"{row.source} -> {row.target}" if row.source else "",
        calls,
        aliased,
        Cell(copied, "bad" if row.copied_bytes else ""),
        "?" if row.unmeasured_calls else format_bytes(round(row.copied_bytes / max(row.calls, 1))),
        Cell(f"{row.refused_calls:,}", "bad" if row.refused_calls else ""),
        seconds,
    ]
    notes = [f"Not measured: {row.not_measured}."] * bool(row.not_measured)
    notes += [f"Why: {row.why}."] * bool(row.why)
    notes += [f"Fix (x is the object): {row.fix}"] * bool(row.fix)
    if notes:
        yield [" ".join(notes)]


SITES = _sites("Call sites, most copied bytes first", 50, "bytes")
SLOW_SITES = _sites("Call sites, longest time first", 50, "time")
WORST_SITES = _sites("The 5 call sites with most copied bytes", 5, "bytes")


# -- pools, processes and loaders ----------------------------------------------------------


FRAMEWORKS = _chart(
    "Pool by framework",
    lambda sample: (each for each in SERIES["framework"](sample) if each[1]["in_use"] is not None),
    "in_use", "{framework}", "bytes", "no pool counts by framework",
    stacked=True,
)  # fmt: skip
HOST_MODES = _chart(
    "Host memory of the pool", SERIES["mode"], "in_use kept", "{mode}, {key}", "bytes",
    "no mode of host memory is installed",
)  # fmt: skip


def _pools(sample: Sample) -> list[Row]:
    """Return a row for each device of a pool, or why there is no pool."""
    rows: list[Row] = []
    for record in sample["processes"]:
        pool = record["pool"]
        for index, device in pool["devices"].items():
            share, limit = device["fragmentation"], device["limit"]
            sizes = [show(device[key], "bytes") for key in ("in_use", "reserved", "peak")]  # type: ignore[literal-required]
            sizes.append("none" if limit is None else show(limit, "bytes"))
            fragmentation = "not counted" if share is None else f"{share:.0%}"
            rows.append([_program(record), pool["kind"], f"GPU {index}", *sizes, fragmentation])
        if not pool["devices"] and (pool["kind"] or pool["why_not"]):
            rows.append([_program(record), pool["kind"] or "none", pool["why_not"], *[""] * 5])
    return rows


POOLS = Table(
    "Pools", ("process", "kind", "device", "#in use", "#taken", "#peak", "#limit", "#fragmentation"), _pools
)
ATTACHED = _table(
    "Frameworks of the pools",
    SERIES["framework"],
    {
        "process": lambda item: _PROCESS.format(**item[0]),
        "framework": lambda item: item[0]["framework"],
        "status": lambda item: item[1]["status"],
        "#in use": lambda item: (
            "not counted" if item[1]["in_use"] is None else show(item[1]["in_use"], "bytes")
        ),
        "detail": lambda item: item[1]["detail"],
    },
)


def _segments(count: int, size: int) -> str:
    return f"{count} ({show(size, 'bytes')})" if count else "0"


def _with_rates(sample: Sample) -> Iterator[dict[str, Any]]:
    """Yield the records with the text of the bytes that each copies per second."""
    rates = {} if sample["rates"] is None else sample["rates"]["processes"]
    for record in sample["processes"]:
        known = rates.get(record["process"]["pid"])
        yield {**record, "copied": show(known["copied_bytes"], "bytes/s") if known else ""}


PROCESSES = _table(
    "Processes and the memory they share",
    _with_rates,
    {
        "process": _program,
        "state": lambda record: "ended" if record["ended"] else "running",
        "#resident": lambda record: show(record["rss"], "bytes"),
        "#copied": lambda record: record["copied"],
        "#own segments": lambda r: _segments(r["shared"]["segments"], r["shared"]["segment_bytes"]),
        "#handles": lambda record: f"{record['shared']['handles']}",
        "#mapped segments": lambda r: _segments(r["shared"]["mapped"], r["shared"]["mapped_bytes"]),
        "#leases": lambda record: f"{record['shared']['leases']}",
    },
    "no process is monitored",
)
RESIDENT = _chart(
    "Resident memory", lambda sample: SERIES["process"](running(sample)), "rss", _PROCESS, "bytes",
    "no process is running",
)  # fmt: skip


def _loaders(sample: Sample) -> list[LoaderRecord]:
    return [loader for record in sample["processes"] for loader in record["loaders"]]


_NO_LOADER = "no loader exists in a monitored process"
LOADERS = _table(
    "Loaders",
    _loaders,
    {
        "loader": lambda loader: loader["name"],
        "bottleneck": lambda loader: loader["bottleneck"],
        "state": lambda loader: "running" if loader["running"] else "ended",
        "#batches": lambda loader: f"{loader['batches']:,}",
        "#rows": lambda loader: f"{loader['rows']:,}",
        "#bytes": lambda loader: show(loader["bytes"], "bytes"),
        "#ready": lambda loader: f"{loader['depth']} of {loader['limit']}",
        "#reader waited": lambda loader: format_seconds(loader["reader_wait"]),
        "#consumer waited": lambda loader: format_seconds(loader["consumer_wait"]),
    },
    _NO_LOADER,
)
DEPTH = _chart("Batches that are ready", SERIES["loader"], "depth", "{loader}", "count", _NO_LOADER)

# -- GPUs ----------------------------------------------------------------------------------

_UNREAD = "no GPU can be read"


def _missing(sample: Sample) -> list[str]:
    """Return the reason why there are no GPUs, or the GPUs that do not answer."""
    cards = sample["cards"]["cards"]
    if not cards:
        return [f"No GPU: {sample['cards']['why_not'] or 'the driver lists none'}."]
    return [f"GPU {card['index']} does not answer: {card['lost']}." for card in cards if card["lost"]]


NO_GPU = Text(_missing)


def _figure(title: str, key: str, unit: Unit) -> Chart:
    return _chart(title, SERIES["gpu"], key, "GPU {gpu}", unit, _UNREAD)


UTILIZATION = _figure("GPU utilization: time in which a kernel ran", "utilization", "percent")
MEMORY_UTILIZATION = _figure(
    "Memory utilization: time in which memory was read or written", "memory_utilization", "percent"
)
MEMORY_USED = _figure("Memory in use", "memory_used", "bytes")
TEMPERATURE = _figure("Temperature", "temperature", "°C")
POWER = _figure("Power", "power", "W")
CLOCK = _figure("Clock of the multiprocessors", "sm_clock", "MHz")
PCIE_RECEIVED = _figure("PCIe: received by the GPU", "pcie_received", "bytes/s")
PCIE_SENT = _figure("PCIe: sent by the GPU", "pcie_sent", "bytes/s")


def _splits(sample: Sample) -> list[tuple[Card, MemorySplit]]:
    processes, cards = sample["processes"], sample["cards"]
    return [(card, memory_split(card, processes, cards)) for card in cards["cards"]]


def _split(sample: Sample) -> Values:
    """Return the parts of the memory, summed over the GPUs in which they are known."""
    return _added(
        (name.replace("_", " "), size)
        for card, split in _splits(sample)
        if card["memory_total"] is not None
        for name, size in split.shown(card["memory_total"]).items()
    )


def _split_rows(sample: Sample) -> list[Row]:
    rows: list[Row] = []
    for card, split in _splits(sample):
        rows.append([f"GPU {card['index']}", *(show(getattr(split, name), "bytes") for name in PARTS)])
        if split.why_not and not card["lost"]:
            rows.append([" ".join(split.why_not)])
    return rows


MEMORY_SPLIT = Chart(
    "GPU memory by holder", _split, "bytes", stacked=True, absent=_UNREAD,
    colors={"free": "#80808030", "not divided": GRAY},
)  # fmt: skip
MEMORY_PARTS = Table(
    "Memory of each GPU", ("GPU", *(f"#{name.replace('_', ' ')}" for name in PARTS)), _split_rows, _UNREAD
)


DEVICES = _table(
    "GPUs",
    lambda sample: sample["cards"]["cards"],
    {
        "GPU": lambda card: f"GPU {card['index']}",
        "name": lambda card: card["name"],
        "#utilization": lambda card: show(card["utilization"], "percent"),
        "#memory": lambda c: f"{show(c['memory_used'], 'bytes')} of {show(c['memory_total'], 'bytes')}",
        "#temperature": lambda card: show(card["temperature"], "°C"),
        "#power": lambda card: f"{show(card['power'], 'W')} of {show(card['power_limit'], 'W')}",
        "state": lambda card: Cell(card["lost"], "bad"),
    },
    _UNREAD,
)


def _card_processes(sample: Sample) -> Iterator[Row]:
    known = {record["process"]["pid"]: record["process"]["program"] for record in sample["processes"]}
    for card in sample["cards"]["cards"]:
        for each in card["processes"] or []:
            program = known.get(each["pid"], "not monitored")
            yield [f"GPU {card['index']}", str(each["pid"]), program, show(each["memory"], "bytes")]


CARD_PROCESSES = Table(
    "Processes on the GPUs", ("GPU", "#process", "program", "#memory"),
    lambda sample: [*_card_processes(sample)], "NVML lists none",
)  # fmt: skip


def _links(title: str, *directions: str, by_link: bool) -> Chart:
    """Return the chart of the rates of NVLinks, or of their sums for each GPU."""

    def values(sample: Sample) -> Values:
        rates: dict[str, float | None] = {}
        for index, links in sample["rates"]["nvlinks"].items() if sample["rates"] is not None else ():
            for name in directions:
                of_links = {link: each[f"{name}_bytes"] for link, each in links.items()}
                if by_link:
                    rates |= {f"GPU {index}, link {link}": rate for link, rate in of_links.items()}
                else:
                    known = None not in of_links.values()
                    rates[f"GPU {index} {name}"] = sum(r or 0 for r in of_links.values()) if known else None
        return rates

    return Chart(title, values, "bytes/s", absent="no GPU has an active NVLink")


LINK_SUMS = _links("NVLink: all links of a GPU", "received", "sent", by_link=False)
LINKS_RECEIVED = _links("NVLink: received, by link", "received", by_link=True)
LINKS_SENT = _links("NVLink: sent, by link", "sent", by_link=True)

# -- the machine ---------------------------------------------------------------------------


def _cores(sample: Sample) -> Values:
    """Return the use of each core; with more than eight cores, only the mean."""
    percent = sample["machine"]["cpu_percent"]
    if not percent:
        return {}
    cores = {f"core {k}": value for k, value in enumerate(percent)} if len(percent) <= 8 else {}
    return {"mean": sum(percent) / len(percent), **cores}


def _memory(sample: Sample) -> Values:
    machine = sample["machine"]
    used = machine["memory_total"] - machine["memory_available"]
    parts: dict[str, float | None] = {"in use": used, "swap": machine["swap_used"]}
    total, free = machine["shared_memory_total"], machine["shared_memory_free"]
    if total is not None and free is not None:
        parts["shared memory"] = total - free
    return parts


CPU = Chart("CPU", _cores, "percent", absent="psutil is not installed: pip install psutil")
MACHINE_MEMORY = Chart("Memory of the machine", _memory, "bytes")
_SECOND = "after the second sample"
DISK = _rates("Disk", "bytes/s", _SECOND, disk_read="disk_read", disk_written="disk_written")
NETWORK = _rates(
    "Network", "bytes/s", _SECOND, network_received="network_received", network_sent="network_sent"
)
