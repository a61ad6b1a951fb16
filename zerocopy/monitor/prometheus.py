"""Samples in Prometheus' text format, which prometheus_client writes, and a file for node_exporter.

Units are bytes and seconds, counters end in ``_total``, and labels have a bounded number of values: of the
call sites, only those that copy the most bytes are listed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from zerocopy.formatting.printable import printable
from zerocopy.monitor.conversion import rows_of, sort
from zerocopy.monitor.errors import MonitorFileError, require
from zerocopy.monitor.observer import Rates
from zerocopy.monitor.sample import ProcessRecord, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Call sites of one process that are listed; each is a time series in Prometheus.
MOST_SITES = 20

Labels = dict[str, str]
#: Name, kind, text, and the labels and value of each time series.
Family = tuple[str, str, str, Iterable[tuple[Labels, Any]]]


def exposition(sample: Sample) -> str:
    """Return a sample in Prometheus' text format, which ends with a line feed.

    Values that cannot be read are left out, as are families without values.

    Raises
    ------
    MonitorPackageError
        prometheus_client is not installed.
    """
    text: str = require("prometheus_client", "Prometheus' text").generate_latest(_Collector(sample)).decode()
    return text


class _Collector:
    """A registry of prometheus_client with the families of one sample."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Any]:
        """Yield the families that have values."""
        core = require("prometheus_client.core", "Prometheus' text")
        for make in (_conversions, _processes, _pools, _loaders, _cards, _machine):
            for name, kind, text, values in make(self._sample):
                # The format allows each set of labels once: one line can contain several functions.
                sums: dict[tuple[tuple[str, str], ...], float] = {}
                for labels, value in values:
                    if value is not None:
                        key = tuple((each, printable(label, "\n")) for each, label in labels.items())
                        sums[key] = sums.get(key, 0) + value
                if sums:
                    family = core.Metric(f"zerocopy_{name}", text, kind)
                    for key, value in sums.items():
                        family.add_sample(
                            f"zerocopy_{name}" + "_total" * (kind == "counter"), dict(key), value
                        )
                    yield family


def _who(record: ProcessRecord) -> Labels:
    return {"pid": str(record["process"]["pid"]), "program": record["process"]["program"]}


def _conversions(sample: Sample) -> Iterator[Family]:
    """Yield counters by pair, and the copied bytes of the worst call sites."""
    rows = [(_who(record), row) for record in sample["processes"] for row in rows_of([record])]
    for name, key, text in (
        ("conversions", "calls", "Conversions."),
        ("refused_conversions", "refused_calls", "Conversions that raised an exception."),
        ("aliased_bytes", "aliased_bytes", "Bytes of results that share memory with their sources."),
        ("copied_bytes", "copied_bytes", "Bytes that conversions copied."),
        ("conversion_seconds", "seconds", "Duration of conversions."),
    ):
        values = [
            ({**who, "source": row.source, "target": row.target}, getattr(row, key)) for who, row in rows
        ]
        yield name, "counter", text, values
    sites = []
    for record in sample["processes"]:
        copying = [row for row in rows_of([record]) if row.copied_bytes and row.file]
        for row in sort(copying)[:MOST_SITES]:
            site = {"file": PurePath(row.file).name, "line": str(row.line), "function": row.function}
            pair = {"source": row.source, "target": row.target}
            sites.append(({**_who(record), **site, **pair}, row.copied_bytes))
    text = f"Bytes copied by the {MOST_SITES} call sites that copy most."
    yield "site_copied_bytes", "counter", text, sites


def _running(sample: Sample) -> list[tuple[Labels, Any]]:
    """Return the labels and the record of each process that has not ended."""
    return [(_who(record), record) for record in sample["processes"] if not record["ended"]]


def _processes(sample: Sample) -> Iterator[Family]:
    """Yield the memory of processes, and what they share."""
    running = _running(sample)
    resident = [(who, record["rss"]) for who, record in running]
    yield "process_resident_bytes", "gauge", "Resident memory.", resident
    for key, name, text in (
        ("segment_bytes", "shared_bytes", "Shared memory that the process created."),
        ("mapped_bytes", "mapped_bytes", "Shared memory of other processes that is mapped."),
        ("leases", "leases", "Results that keep shared memory alive."),
    ):
        yield name, "gauge", text, [(who, record["shared"][key]) for who, record in running]


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
        values = [
            ({**who, label: index}, each[key])
            for who, record in _running(sample)
            for index, each in record["pool"][part].items()
        ]
        yield f"{name}_bytes", "gauge", text, values


def _loaders(sample: Sample) -> Iterator[Family]:
    """Yield the progress of loaders, and the waits of both sides."""
    loaders = [
        ({**who, "loader": each["name"]}, each)
        for who, record in _running(sample)
        for each in record["loaders"]
    ]
    for key, kind, name, text in (
        ("batches", "counter", "batches", "Batches delivered."),
        ("rows", "counter", "rows", "Rows delivered."),
        ("reader_wait", "counter", "reader_wait_seconds", "Time in which the reader waited."),
        ("consumer_wait", "counter", "consumer_wait_seconds", "Time in which the consumer waited."),
        ("depth", "gauge", "ready", "Batches or groups that are ready."),
    ):
        yield f"loader_{name}", kind, text, [(labels, each[key]) for labels, each in loaders]


def _cards(sample: Sample) -> Iterator[Family]:
    """Yield the figures of GPUs."""
    named: list[tuple[Labels, Any]] = [
        ({"gpu": card["index"], "uuid": card["uuid"], "name": card["name"]}, card)
        for card in sample["cards"]["cards"]
    ]
    for name, key, factor, text in (
        ("utilization_ratio", "utilization", 0.01, "Share of the time in which a kernel ran."),
        ("memory_total_bytes", "memory_total", 1, "Memory of the GPU."),
        ("memory_used_bytes", "memory_used", 1, "Memory of the GPU in use."),
        ("temperature_celsius", "temperature", 1, "Temperature."),
        ("power_watts", "power", 1, "Power."),
        ("pcie_received_bytes_per_second", "pcie_received", 1, "Bytes per second that the GPU receives."),
        ("pcie_sent_bytes_per_second", "pcie_sent", 1, "Bytes per second that the GPU sends."),
    ):
        values = [(labels, None if card[key] is None else card[key] * factor) for labels, card in named]
        yield f"gpu_{name}", "gauge", text, values
    for name in ("received", "sent"):
        links = [
            ({**labels, "link": str(link["link"])}, link[f"{name}_bytes"])
            for labels, card in named
            for link in card["nvlinks"]
        ]
        yield f"gpu_nvlink_{name}_bytes", "counter", f"Bytes {name} over an NVLink.", links


def _machine(sample: Sample) -> Iterator[Family]:
    """Yield the figures of the machine."""
    machine = sample["machine"]
    cores = [({"core": str(core)}, percent / 100) for core, percent in enumerate(machine["cpu_percent"])]
    yield "machine_cpu_ratio", "gauge", "Share of the time in which a core was busy.", cores
    for name, value, text in (
        ("memory_total_bytes", machine["memory_total"], "Memory of the machine or container."),
        ("memory_available_bytes", machine["memory_available"], "Memory that is available."),
        ("shared_memory_free_bytes", machine["shared_memory_free"], "Free memory of /dev/shm."),
    ):
        yield f"machine_{name}", "gauge", text, [({}, value)]


class PrometheusFile:
    """A file for node_exporter's textfile collector, which each sample replaces.

    A reader sees the old or the new text, never a part. node_exporter reads files with the suffix ``.prom``.

    Raises
    ------
    MonitorFileError
        The path is not that of a regular file, or its directory does not exist.
    """

    def __init__(self, path: str) -> None:
        require("prometheus_client", "--prometheus")
        self.name = path
        self._path = os.path.realpath(path)  # a link stays, and its target is replaced
        asked = f"--prometheus {path}"
        if not os.path.isdir(os.path.dirname(self._path)):
            why, fix = "its directory does not exist", "create the directory, or pass another file"
            raise MonitorFileError(asked, why, fix)
        if os.path.exists(self._path) and not stat.S_ISREG(os.stat(self._path).st_mode):
            raise MonitorFileError(asked, "it is not a regular file", "pass another name")

    def write(self, sample: Sample, rates: Rates | None) -> None:
        """Replace the file; raise OSError if the disk is full, and keep the former text."""
        client = require("prometheus_client", "--prometheus")
        client.write_to_textfile(self._path, _Collector(sample))

    def close(self) -> None:
        """Do nothing: the last text stays."""
