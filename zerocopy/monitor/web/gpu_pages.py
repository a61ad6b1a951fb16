"""Charts and tables of GPUs and of the machine: those of NVDashboard, with its names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zerocopy.monitor.memory_split import memory_split
from zerocopy.monitor.sample import Card
from zerocopy.monitor.web.charts import GRAY, Chart, Values, show
from zerocopy.monitor.web.feed import Moment
from zerocopy.monitor.web.tables import Cell, Row, Table, Text

_UNREAD = "no GPU can be read"


def _cards(moment: Moment) -> list[Card]:
    return moment.sample["cards"]["cards"]


def _by_card(read: Callable[[Card], float | None]) -> Callable[[Moment], Values]:
    """Return the figure of each GPU."""
    return lambda moment: {f"GPU {card['index']}": read(card) for card in _cards(moment)}


def _missing(moment: Moment) -> list[str]:
    """Return the reason why there are no GPUs, or the GPUs that do not answer."""
    cards = moment.sample["cards"]
    if not cards["cards"]:
        return [f"No GPU: {cards['why_not'] or 'the driver lists none'}."]
    return [
        f"GPU {card['index']} does not answer: {card['lost']}." for card in cards["cards"] if card["lost"]
    ]


NO_GPU = Text("", _missing)

UTILIZATION = Chart(
    "GPU utilization: time in which a kernel ran",
    _by_card(lambda card: card["utilization"]),
    "percent",
    absent=_UNREAD,
)
MEMORY_UTILIZATION = Chart(
    "Memory utilization: time in which memory was read or written",
    _by_card(lambda card: card["memory_utilization"]), "percent", absent=_UNREAD,
)  # fmt: skip
MEMORY_USED = Chart("Memory in use", _by_card(lambda card: card["memory_used"]), "bytes", absent=_UNREAD)
TEMPERATURE = Chart("Temperature", _by_card(lambda card: card["temperature"]), "°C", absent=_UNREAD)
POWER = Chart("Power", _by_card(lambda card: card["power"]), "W", absent=_UNREAD)
CLOCK = Chart("Clock of the multiprocessors", _by_card(lambda card: card["sm_clock"]), "MHz", absent=_UNREAD)
PCIE_RECEIVED = Chart(
    "PCIe: received by the GPU", _by_card(lambda card: card["pcie_received"]), "bytes/s", absent=_UNREAD
)
PCIE_SENT = Chart(
    "PCIe: sent by the GPU", _by_card(lambda card: card["pcie_sent"]), "bytes/s", absent=_UNREAD
)


_PARTS = ("pool_in_use", "pool_free", "process_outside_pool", "other_processes", "free")


#: Memory whose holder is unknown, and memory that the driver keeps for itself.
_REST = "not divided"


def _split(moment: Moment) -> Values:
    """Return the parts of the memory, summed over the GPUs in which they are known."""
    sums: dict[str, float | None] = {}
    for card in _cards(moment):
        total = card["memory_total"]
        if total is None:
            continue
        split = memory_split(card, moment.sample["processes"], moment.sample["cards"])
        known = [(name.replace("_", " "), getattr(split, name)) for name in _PARTS]
        rest = total - sum(value or 0 for _, value in known)
        for label, value in (*known, (_REST, max(rest, 0))):
            sums[label] = value if sums.get(label) is None else (sums[label] or 0) + (value or 0)
    return sums


def _split_rows(moment: Moment) -> list[Row]:
    rows: list[Row] = []
    for card in _cards(moment):
        split = memory_split(card, moment.sample["processes"], moment.sample["cards"])
        rows.append([f"GPU {card['index']}", *(show(getattr(split, name), "bytes") for name in _PARTS)])
        if split.why_not and not card["lost"]:
            rows.append([" ".join(split.why_not)])
    return rows


MEMORY_SPLIT = Chart(
    "GPU memory by holder", _split, "bytes", stacked=True, absent=_UNREAD,
    colors={"free": "#80808030", _REST: GRAY},
)  # fmt: skip
MEMORY_PARTS = Table(
    "Memory of each GPU", ("GPU", *(f"#{name.replace('_', ' ')}" for name in _PARTS)), _split_rows, _UNREAD
)


def _devices(moment: Moment) -> list[Row]:
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
        for card in _cards(moment)
    ]


DEVICES = Table(
    "GPUs", ("GPU", "name", "#utilization", "#memory", "#temperature", "#power", "state"), _devices, _UNREAD
)


def _processes(moment: Moment) -> list[Row]:
    known = {record["process"]["pid"]: record["process"]["program"] for record in moment.sample["processes"]}
    return [
        [
            f"GPU {card['index']}",
            str(each["pid"]),
            known.get(each["pid"], "not monitored"),
            show(each["memory"], "bytes"),
        ]
        for card in _cards(moment)
        for each in card["processes"] or []
    ]


CARD_PROCESSES = Table(
    "Processes on the GPUs", ("GPU", "#process", "program", "#memory"), _processes, "NVML lists none"
)


def _links(direction: str) -> Callable[[Moment], Values]:
    """Return the rate of each link of each GPU in one direction."""

    def values(moment: Moment) -> Values:
        if moment.rates is None:
            return {}
        return {
            f"GPU {index}, link {link}": each[direction]
            for index, links in moment.rates["nvlinks"].items()
            for link, each in links.items()
        }

    return values


def _link_sums(moment: Moment) -> Values:
    """Return the rates of each GPU, summed over its links."""
    if moment.rates is None:
        return {}
    sums: dict[str, float | None] = {}
    for index, links in moment.rates["nvlinks"].items():
        for name in ("received", "sent"):
            rates = [each[f"{name}_bytes"] for each in links.values()]
            sums[f"GPU {index} {name}"] = None if None in rates else sum(rate or 0 for rate in rates)
    return sums


_NO_LINK = "no GPU has an active NVLink"
LINK_SUMS = Chart("NVLink: all links of a GPU", _link_sums, "bytes/s", absent=_NO_LINK)
LINKS_RECEIVED = Chart("NVLink: received, by link", _links("received_bytes"), "bytes/s", absent=_NO_LINK)
LINKS_SENT = Chart("NVLink: sent, by link", _links("sent_bytes"), "bytes/s", absent=_NO_LINK)


def _cores(moment: Moment) -> Values:
    """Return the use of each core; with more than eight cores, only the mean."""
    percent: Sequence[float] = moment.sample["machine"]["cpu_percent"]
    if not percent:
        return {}
    mean = {"mean": sum(percent) / len(percent)}
    return mean if len(percent) > 8 else {**mean, **{f"core {k}": value for k, value in enumerate(percent)}}


def _memory(moment: Moment) -> Values:
    machine = moment.sample["machine"]
    used = machine["memory_total"] - machine["memory_available"]
    parts: dict[str, float | None] = {"in use": used, "swap": machine["swap_used"]}
    total, free = machine["shared_memory_total"], machine["shared_memory_free"]
    if total is not None and free is not None:
        parts["shared memory"] = total - free
    return parts


def _machine(*names: str) -> Callable[[Moment], Values]:
    """Return the rates of some counters of the machine."""

    def values(moment: Moment) -> Values:
        rates = moment.rates
        return {} if rates is None else {name.replace("_", " "): rates[name] for name in names}  # type: ignore[literal-required]

    return values


CPU = Chart(
    "CPU", _cores, "percent", absent="psutil is not installed: pip install 'zerocopy-interchange[monitor]'"
)
MACHINE_MEMORY = Chart("Memory of the machine", _memory, "bytes")
DISK = Chart("Disk", _machine("disk_read", "disk_written"), "bytes/s", absent="after the second sample")
NETWORK = Chart(
    "Network", _machine("network_received", "network_sent"), "bytes/s", absent="after the second sample"
)
