"""Charts and tables of monitored processes: conversions, pool, shared memory, loaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zerocopy.formatting.units import format_bytes, format_seconds
from zerocopy.monitor.conversion import ConversionRow, sort
from zerocopy.monitor.report import count_cells, short_path, summary
from zerocopy.monitor.sample import ProcessRecord
from zerocopy.monitor.web.charts import COLORS, Chart, Values, show
from zerocopy.monitor.web.feed import Moment
from zerocopy.monitor.web.tables import Cell, Row, Table, Text

_HOW = (
    "No process is monitored. To monitor a program: zerocopy monitor --serve -- train.py, "
    "or set ZEROCOPY_MONITOR=1 before it starts."
)
#: Rows of the table of call sites.
_SITES = 50


def _records(moment: Moment) -> list[ProcessRecord]:
    return moment.sample["processes"]


def _state(moment: Moment) -> list[str]:
    """Return the monitored programs, the ended ones, and the problems of the sample."""
    records = _records(moment)
    running = [_program(record) for record in records if not record["ended"]]
    ended = [_program(record) for record in records if record["ended"]]
    lines = [f"Monitored: {', '.join(running)}."] if running else []
    if ended:
        lines.append(f"Ended, with their last figures: {', '.join(ended)}.")
    return (lines or [_HOW]) + [f"Not read: {problem}" for problem in moment.sample["problems"]]


def _program(record: ProcessRecord) -> str:
    return f"{record['process']['program']} (process {record['process']['pid']})"


STATE = Text("", _state)


def _rates(moment: Moment) -> Values:
    if moment.rates is None or not _records(moment):
        return {}
    rates = moment.rates["conversions"]
    return {"aliased": rates["aliased_bytes"], "copied": rates["copied_bytes"]}


def _calls(moment: Moment) -> Values:
    if moment.rates is None or not _records(moment):
        return {}
    rates = moment.rates["conversions"]
    return {"calls": rates["calls"], "refused": rates["refused_calls"]}


_SOON = "after the second sample of a monitored process"
_ALIASED, _COPIED = COLORS[0], COLORS[1]
BYTES = Chart(
    "Conversions: bytes per second", _rates, "bytes/s", absent=_SOON,
    colors={"aliased": _ALIASED, "copied": _COPIED},
)  # fmt: skip
CALLS = Chart("Conversions: calls per second", _calls, "count", absent=_SOON)


def _rows(moment: Moment) -> list[ConversionRow]:
    return [ConversionRow(**row) for record in _records(moment) for row in record["conversions"]]


def _totals(moment: Moment) -> list[str]:
    return [f"Since recording began: {summary(_rows(moment))}."] if _records(moment) else []


TOTALS = Text("", _totals)


def _sites(most: int, order: str) -> Callable[[Moment], list[Row]]:
    def rows(moment: Moment) -> list[Row]:
        return [line for row in sort(_rows(moment), order)[:most] for line in _site(row)]

    return rows


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


_HEADS = (
    *("line of code", "function", "conversion", "#calls", "#aliased", "#copied", "#copied per call"),
    *("#refused", "#time"),
)
_NOTHING = "no conversion was recorded yet"
SITES = Table("Call sites, most copied bytes first", _HEADS, _sites(_SITES, "bytes"), _NOTHING)
SLOW_SITES = Table("Call sites, longest time first", _HEADS, _sites(_SITES, "time"), _NOTHING)
WORST_SITES = Table("The 5 call sites with most copied bytes", _HEADS, _sites(5, "bytes"), _NOTHING)


def _frameworks(moment: Moment) -> Values:
    """Return the bytes that each framework holds in the pools of all processes."""
    parts: dict[str, float | None] = {}
    for record in _records(moment):
        for name, framework in record["pool"]["frameworks"].items():
            if framework["in_use"] is not None:
                parts[name] = (parts.get(name) or 0) + framework["in_use"]
    return parts


def _host_modes(moment: Moment) -> Values:
    parts: dict[str, float | None] = {}
    for record in _records(moment):
        for name, mode in record["pool"]["host"].items():
            for what in ("in_use", "kept"):
                label, value = f"{name}, {what.replace('_', ' ')}", mode[what]  # type: ignore[literal-required]
                parts[label] = value if parts.get(label) is None else (parts[label] or 0) + (value or 0)
    return parts


FRAMEWORKS = Chart(
    "Pool by framework", _frameworks, "bytes", stacked=True, absent="no pool counts by framework"
)
HOST_MODES = Chart(
    "Host memory of the pool", _host_modes, "bytes", absent="no mode of host memory is installed"
)


def _pools(moment: Moment) -> list[Row]:
    rows: list[Row] = []
    for record in _records(moment):
        for index, device in record["pool"]["devices"].items():
            share = device["fragmentation"]
            rows.append(
                [
                    _program(record),
                    record["pool"]["kind"],
                    f"GPU {index}",
                    show(device["in_use"], "bytes"),
                    show(device["peak"], "bytes"),
                    show(device["reserved"], "bytes"),
                    "none" if device["limit"] is None else show(device["limit"], "bytes"),
                    "not counted" if share is None else f"{share:.0%}",
                ]
            )
        if record["pool"]["why_not"]:
            rows.append([_program(record), "none", record["pool"]["why_not"], *[""] * 5])
    return rows


POOLS = Table(
    "Pools", ("process", "kind", "device", "#in use", "#peak", "#taken", "#limit", "#fragmentation"), _pools
)


def _attached(moment: Moment) -> list[Row]:
    return [
        [
            _program(record),
            name,
            each["status"],
            "not counted" if each["in_use"] is None else show(each["in_use"], "bytes"),
            each["detail"],
        ]
        for record in _records(moment)
        for name, each in record["pool"]["frameworks"].items()
    ]


ATTACHED = Table(
    "Frameworks of the pools", ("process", "framework", "status", "#in use", "detail"), _attached
)


def _shared(moment: Moment) -> list[Row]:
    rows: list[Row] = []
    for record in _records(moment):
        shared = record["shared"]
        rows.append(
            [
                _program(record),
                "ended" if record["ended"] else "running",
                show(record["rss"], "bytes"),
                f"{shared['segments']} ({show(shared['segment_bytes'], 'bytes')})",
                str(shared["handles"]),
                f"{shared['mapped']} ({show(shared['mapped_bytes'], 'bytes')})",
                str(shared["leases"]),
            ]
        )
    return rows


PROCESSES = Table(
    "Processes and the memory they share",
    ("process", "state", "#resident", "#own segments", "#handles", "#mapped segments", "#leases"),
    _shared,
    "no process is monitored",
)
RESIDENT = Chart(
    "Resident memory",
    lambda moment: {_program(record): record["rss"] for record in _records(moment) if not record["ended"]},
    "bytes",
    absent="no process is running",
)


def _loaders(moment: Moment) -> list[Row]:
    return [
        [
            each["name"],
            "running" if each["running"] else "ended",
            f"{each['batches']:,}",
            f"{each['rows']:,}",
            show(each["bytes"], "bytes"),
            f"{each['depth']} of {each['limit']}",
            format_seconds(each["reader_wait"]),
            format_seconds(each["consumer_wait"]),
            each["bottleneck"],
        ]
        for record in _records(moment)
        for each in record["loaders"]
    ]


LOADERS = Table(
    "Loaders",
    (
        "loader",
        "state",
        "#batches",
        "#rows",
        "#bytes",
        "#ready",
        "#reader waited",
        "#consumer waited",
        "bottleneck",
    ),
    _loaders,
    "no loader exists in a monitored process",
)
DEPTH = Chart(
    "Batches that are ready",
    lambda moment: {each["name"]: each["depth"] for record in _records(moment) for each in record["loaders"]},
    "count",
    absent="no loader exists in a monitored process",
)
