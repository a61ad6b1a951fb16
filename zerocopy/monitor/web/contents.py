"""The charts and tables of the pages: monitored processes, and GPUs and the machine as in NVDashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from zerocopy.formatting import format_bytes, format_seconds
from zerocopy.monitor.conversion import ConversionRow, rows_of, sort
from zerocopy.monitor.memory_split import PARTS, MemorySplit, memory_split
from zerocopy.monitor.report import count_cells, short_path, summary
from zerocopy.monitor.sample import Card, ProcessRecord, Sample
from zerocopy.monitor.web.parts import (
    COLORS,
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


# -- conversions ---------------------------------------------------------------------------

_HOW = (
    "No process is monitored. To monitor a program: zerocopy monitor --serve -- train.py, "
    "or set ZEROCOPY_MONITOR=1 before it starts."
)


def _program(record: ProcessRecord) -> str:
    return f"{record['process']['program']} (process {record['process']['pid']})"


def _state(sample: Sample) -> list[str]:
    """Return the monitored programs, the ended ones, and the problems of the sample."""
    running = [_program(record) for record in sample["processes"] if not record["ended"]]
    ended = [_program(record) for record in sample["processes"] if record["ended"]]
    lines = [f"Monitored: {', '.join(running)}."] * bool(running)
    lines += [f"Ended, with their last figures: {', '.join(ended)}."] * bool(ended)
    return (lines or [_HOW]) + [f"Not read: {problem}" for problem in sample["problems"]]


def _totals(sample: Sample) -> list[str]:
    records = sample["processes"]
    return [f"Since recording began: {summary(rows_of(records))}."] if records else []


STATE, TOTALS = Text(_state), Text(_totals)


def _rates(**names: str) -> Callable[[Sample], Values]:
    """Return the rates of conversions by label."""

    def values(sample: Sample) -> Values:
        if sample["rates"] is None or not sample["processes"]:
            return {}
        return {label: sample["rates"]["conversions"][name] for label, name in names.items()}

    return values


_SOON = "after the second sample of a monitored process"
BYTES = Chart(
    "Conversions: bytes per second", _rates(aliased="aliased_bytes", copied="copied_bytes"), "bytes/s",
    absent=_SOON, colors={"aliased": COLORS[0], "copied": COLORS[1]},
)  # fmt: skip
CALLS = Chart(
    "Conversions: calls per second", _rates(calls="calls", refused="refused_calls"), "/s", absent=_SOON
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
    """Yield the row of a call site, and a note: what was not measured, the reason and the fix."""
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


def _in_pools(sample: Sample, part: str) -> list[tuple[ProcessRecord, str, Any]]:
    """Return each item of a part of the pools, with its record and its name."""
    pools: list[tuple[ProcessRecord, Any]] = [(record, record["pool"]) for record in sample["processes"]]
    return [(record, name, each) for record, pool in pools for name, each in pool[part].items()]


FRAMEWORKS = Chart(
    "Pool by framework",
    lambda sample: _added(
        (name, each["in_use"])
        for _, name, each in _in_pools(sample, "frameworks")
        if each["in_use"] is not None
    ),
    "bytes",
    stacked=True,
    absent="no pool counts by framework",
)
HOST_MODES = Chart(
    "Host memory of the pool",
    lambda sample: _added(
        (f"{name}, {key.replace('_', ' ')}", mode[key])
        for _, name, mode in _in_pools(sample, "host")
        for key in ("in_use", "kept")
    ),
    "bytes",
    absent="no mode of host memory is installed",
)


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


def _attached(sample: Sample) -> list[Row]:
    rows: list[Row] = []
    for record, name, each in _in_pools(sample, "frameworks"):
        in_use = "not counted" if each["in_use"] is None else show(each["in_use"], "bytes")
        rows.append([_program(record), name, each["status"], in_use, each["detail"]])
    return rows


POOLS = Table(
    "Pools", ("process", "kind", "device", "#in use", "#taken", "#peak", "#limit", "#fragmentation"), _pools
)
ATTACHED = Table(
    "Frameworks of the pools", ("process", "framework", "status", "#in use", "detail"), _attached
)


def _processes(sample: Sample) -> list[Row]:
    rows: list[Row] = []
    for record in sample["processes"]:
        shared, state = record["shared"], "ended" if record["ended"] else "running"
        known = {} if sample["rates"] is None else sample["rates"]["processes"]
        rates = known.get(record["process"]["pid"], {})
        rows.append(
            [
                *(_program(record), state, show(record["rss"], "bytes")),
                show(rates.get("copied_bytes"), "bytes/s") if rates else "",
                _segments(shared["segments"], shared["segment_bytes"]),
                f"{shared['handles']}",
                _segments(shared["mapped"], shared["mapped_bytes"]),
                f"{shared['leases']}",
            ]
        )
    return rows


def _segments(count: int, size: int) -> str:
    return f"{count} ({show(size, 'bytes')})" if count else "0"


PROCESSES = Table(
    "Processes and the memory they share",
    (
        *("process", "state", "#resident", "#copied", "#own segments", "#handles", "#mapped segments"),
        "#leases",
    ),
    _processes,
    "no process is monitored",
)
RESIDENT = Chart(
    "Resident memory",
    lambda sample: {_program(record): record["rss"] for record in sample["processes"] if not record["ended"]},
    "bytes",
    absent="no process is running",
)


def _loaders(sample: Sample) -> list[Row]:
    return [
        [
            each["name"],
            each["bottleneck"],
            "running" if each["running"] else "ended",
            f"{each['batches']:,}",
            f"{each['rows']:,}",
            show(each["bytes"], "bytes"),
            f"{each['depth']} of {each['limit']}",
            format_seconds(each["reader_wait"]),
            format_seconds(each["consumer_wait"]),
        ]
        for record in sample["processes"]
        for each in record["loaders"]
    ]


_NO_LOADER = "no loader exists in a monitored process"
LOADERS = Table(
    "Loaders",
    (
        *("loader", "bottleneck", "state", "#batches", "#rows", "#bytes", "#ready", "#reader waited"),
        "#consumer waited",
    ),
    _loaders,
    _NO_LOADER,
)
DEPTH = Chart(
    "Batches that are ready",
    lambda sample: {
        each["name"]: each["depth"] for record in sample["processes"] for each in record["loaders"]
    },
    "count",
    absent=_NO_LOADER,
)

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
    """Return the chart of one figure of each GPU."""

    def values(sample: Sample) -> Values:
        return {f"GPU {card['index']}": card[key] for card in sample["cards"]["cards"]}  # type: ignore[literal-required]

    return Chart(title, values, unit, absent=_UNREAD)


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
    """Return each GPU with the parts of its memory."""
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


def _gpus(sample: Sample) -> list[Row]:
    return [
        [
            f"GPU {card['index']}",
            card["name"],
            show(card["utilization"], "percent"),
            f"{show(card['memory_used'], 'bytes')} of {show(card['memory_total'], 'bytes')}",
            show(card["temperature"], "°C"),
            f"{show(card['power'], 'W')} of {show(card['power_limit'], 'W')}",
            Cell(card["lost"], "bad"),
        ]
        for card in sample["cards"]["cards"]
    ]


def _card_processes(sample: Sample) -> list[Row]:
    known = {record["process"]["pid"]: record["process"]["program"] for record in sample["processes"]}
    return [
        [
            f"GPU {card['index']}",
            str(each["pid"]),
            known.get(each["pid"], "not monitored"),
            show(each["memory"], "bytes"),
        ]
        for card in sample["cards"]["cards"]
        for each in card["processes"] or []
    ]


DEVICES = Table(
    "GPUs", ("GPU", "name", "#utilization", "#memory", "#temperature", "#power", "state"), _gpus, _UNREAD
)
CARD_PROCESSES = Table(
    "Processes on the GPUs", ("GPU", "#process", "program", "#memory"), _card_processes, "NVML lists none"
)


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


def _traffic(title: str, *names: str) -> Chart:
    """Return the chart of the rates of some counters of the machine."""

    def values(sample: Sample) -> Values:
        rates: Any = sample["rates"]
        return {} if rates is None else {name.replace("_", " "): rates[name] for name in names}

    return Chart(title, values, "bytes/s", absent="after the second sample")


CPU = Chart("CPU", _cores, "percent", absent="psutil is not installed: pip install psutil")
MACHINE_MEMORY = Chart("Memory of the machine", _memory, "bytes")
DISK = _traffic("Disk", "disk_read", "disk_written")
NETWORK = _traffic("Network", "network_received", "network_sent")
