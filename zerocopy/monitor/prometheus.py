"""Prometheus' text format, version 0.0.4: https://prometheus.io/docs/instrumenting/exposition_formats/.

Units are bytes and seconds, counters end in ``_total``, and labels have a bounded number of values: of the
call sites, only those that copy the most bytes are listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from zerocopy.formatting.printable import printable
from zerocopy.monitor.sample import ProcessRecord, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Call sites of one process that are listed; each is a time series in Prometheus.
MOST_SITES = 20

Labels = Mapping[str, str]
Value = tuple[Labels, float | None]


class Family(NamedTuple):
    """All values of one name."""

    name: str
    kind: str  # "counter" or "gauge"
    text: str
    values: Sequence[Value]


def exposition(sample: Sample) -> str:
    """Return a sample in Prometheus' text format.

    Values that cannot be read are left out, as are families without values.

    Parameters
    ----------
    sample : Sample

    Returns
    -------
    str
        Ends with a line feed; empty if the sample has no values at all.
    """
    makers = (_conversions, _processes, _pools, _loaders, _cards, _machine)
    families = (family for make in makers for family in make(sample))
    return "".join(_lines(family) for family in families)


def _lines(family: Family) -> str:
    # The format allows each set of labels once: one line can contain several functions, such as lambdas.
    sums: dict[str, float] = {}
    for labels, value in family.values:
        if value is not None:
            text = _labels(labels)
            sums[text] = sums[text] + value if text in sums else value
    if not sums:
        return ""
    lines = [f"{family.name}{labels} {_number(value)}" for labels, value in sums.items()]
    text = family.text.replace("\\", "\\\\").replace("\n", "\\n")
    return "\n".join([f"# HELP {family.name} {text}", f"# TYPE {family.name} {family.kind}", *lines, ""])


def _labels(labels: Labels) -> str:
    """Return labels in braces; backslashes, quotes and what a terminal cannot print are escaped."""
    if not labels:
        return ""
    escaped = {
        name: printable(value, "\n").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(value)


def _who(record: ProcessRecord) -> dict[str, str]:
    return {"pid": str(record["process"]["pid"]), "program": record["process"]["program"]}


#: Family, field of a row, and text.
_COUNTERS = (
    ("zerocopy_conversions_total", "calls", "Conversions."),
    ("zerocopy_refused_conversions_total", "refused_calls", "Conversions that raised an exception."),
    (
        "zerocopy_aliased_bytes_total",
        "aliased_bytes",
        "Bytes of results that share memory with their sources.",
    ),
    ("zerocopy_copied_bytes_total", "copied_bytes", "Bytes that conversions copied."),
    ("zerocopy_conversion_seconds_total", "seconds", "Duration of conversions."),
)


def _conversions(sample: Sample) -> Iterator[Family]:
    """Yield counters by pair, and the copied bytes of the worst call sites."""
    for name, key, text in _COUNTERS:
        values: list[Value] = []
        for record in sample["processes"]:
            sums: dict[tuple[str, str], float | None] = {}
            for row in record["conversions"]:
                pair = (row["source"], row["target"])
                if row[key] is not None:
                    sums[pair] = (sums.get(pair) or 0) + row[key]
            values += [
                ({**_who(record), "source": source, "target": target}, value)
                for (source, target), value in sums.items()
            ]
        yield Family(name, "counter", text, values)
    sites: list[Value] = []
    for record in sample["processes"]:
        copying = [row for row in record["conversions"] if row["copied_bytes"] and row["file"]]
        copying.sort(key=lambda row: -row["copied_bytes"])
        sites += [
            (
                {
                    **_who(record),
                    "file": PurePath(row["file"]).name,
                    "line": str(row["line"]),
                    "function": row["function"],
                    "source": row["source"],
                    "target": row["target"],
                },
                row["copied_bytes"],
            )
            for row in copying[:MOST_SITES]
        ]
    text = f"Bytes copied by the {MOST_SITES} call sites that copy most."
    yield Family("zerocopy_site_copied_bytes_total", "counter", text, sites)


def _running(sample: Sample) -> list[tuple[dict[str, str], Any]]:
    """Return the labels and the record of each process that has not ended."""
    return [(_who(record), record) for record in sample["processes"] if not record["ended"]]


def _processes(sample: Sample) -> Iterator[Family]:
    """Yield the memory of processes, and what they share."""
    running = _running(sample)
    resident: list[Value] = [(who, record["rss"]) for who, record in running]
    yield Family("zerocopy_process_resident_bytes", "gauge", "Resident memory.", resident)
    for key, name, text in (
        ("segment_bytes", "shared_bytes", "Shared memory that the process created."),
        ("mapped_bytes", "mapped_bytes", "Shared memory of other processes that is mapped."),
        ("leases", "leases", "Results that keep shared memory alive."),
    ):
        shared: list[Value] = [(who, record["shared"][key]) for who, record in running]
        yield Family(f"zerocopy_{name}", "gauge", text, shared)


def _pools(sample: Sample) -> Iterator[Family]:
    """Yield the memory of pools, by device, mode of host memory and framework."""
    for part, label, key, name, text in (
        ("devices", "device", "in_use", "pool_in_use", "Bytes of a GPU's pool that are in use."),
        ("devices", "device", "reserved", "pool_reserved", "Bytes that the pool has taken from the GPU."),
        ("devices", "device", "limit", "pool_limit", "Limit of the pool."),
        ("host", "mode", "in_use", "host_in_use", "Host memory in use, by mode."),
        ("host", "mode", "kept", "host_kept", "Host memory kept for later, by mode."),
        ("frameworks", "framework", "in_use", "framework_pool", "Bytes of the pools that a framework holds."),
    ):
        values: list[Value] = [
            ({**who, label: index}, each[key])
            for who, record in _running(sample)
            for index, each in record["pool"][part].items()
        ]
        yield Family(f"zerocopy_{name}_bytes", "gauge", text, values)


def _loaders(sample: Sample) -> Iterator[Family]:
    """Yield the progress of loaders, and the waits of both sides."""
    loaders = [
        ({**who, "loader": each["name"]}, each)
        for who, record in _running(sample)
        for each in record["loaders"]
    ]
    for key, kind, name, text in (
        ("batches", "counter", "batches_total", "Batches delivered."),
        ("rows", "counter", "rows_total", "Rows delivered."),
        ("reader_wait", "counter", "reader_wait_seconds_total", "Time in which the reader waited."),
        ("consumer_wait", "counter", "consumer_wait_seconds_total", "Time in which the consumer waited."),
        ("depth", "gauge", "ready", "Batches or groups that are ready."),
    ):
        values = [(labels, each[key]) for labels, each in loaders]
        yield Family(f"zerocopy_loader_{name}", kind, text, values)


def _cards(sample: Sample) -> Iterator[Family]:
    """Yield the figures of GPUs."""
    named: list[tuple[Labels, Any]] = [
        ({"gpu": card["index"], "uuid": card["uuid"], "name": card["name"]}, card)
        for card in sample["cards"]["cards"]
    ]
    for name, key, factor, text in (
        ("gpu_utilization_ratio", "utilization", 0.01, "Share of the time in which a kernel ran."),
        ("gpu_memory_total_bytes", "memory_total", 1, "Memory of the GPU."),
        ("gpu_memory_used_bytes", "memory_used", 1, "Memory of the GPU in use."),
        ("gpu_temperature_celsius", "temperature", 1, "Temperature."),
        ("gpu_power_watts", "power", 1, "Power."),
        ("gpu_pcie_received_bytes_per_second", "pcie_received", 1, "Bytes per second that the GPU receives."),
        ("gpu_pcie_sent_bytes_per_second", "pcie_sent", 1, "Bytes per second that the GPU sends."),
    ):
        values = [(labels, None if card[key] is None else card[key] * factor) for labels, card in named]
        yield Family(f"zerocopy_{name}", "gauge", text, values)
    for key, name in (("received_bytes", "received"), ("sent_bytes", "sent")):
        links = [
            ({**labels, "link": str(link["link"])}, link[key])
            for labels, card in named
            for link in card["nvlinks"]
        ]
        yield Family(
            f"zerocopy_gpu_nvlink_{name}_bytes_total", "counter", f"Bytes {name} over an NVLink.", links
        )


def _machine(sample: Sample) -> Iterator[Family]:
    """Yield the figures of the machine."""
    machine = sample["machine"]
    yield Family(
        "zerocopy_machine_cpu_ratio",
        "gauge",
        "Share of the time in which a core was busy.",
        [({"core": str(core)}, percent / 100) for core, percent in enumerate(machine["cpu_percent"])],
    )
    for name, value, text in (
        ("memory_total_bytes", machine["memory_total"], "Memory of the machine or container."),
        ("memory_available_bytes", machine["memory_available"], "Memory that is available."),
        ("shared_memory_free_bytes", machine["shared_memory_free"], "Free memory of /dev/shm."),
    ):
        yield Family(f"zerocopy_machine_{name}", "gauge", text, [({}, value)])
