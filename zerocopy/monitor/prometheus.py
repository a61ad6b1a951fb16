"""Samples in Prometheus' text format, which prometheus_client writes, and a file for node_exporter.

Units are bytes and seconds, counters end in ``_total``, and labels have a bounded number of values: of the
call sites, only those that copy the most bytes are listed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from zerocopy.formatting import printable
from zerocopy.monitor.conversion import as_dict, rows_of, sort
from zerocopy.monitor.errors import MonitorFileError, require
from zerocopy.monitor.sample import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Call sites of one process that are listed; each is a time series in Prometheus.
MOST_SITES = 20

#: Labels, and figures by key.
_Series = list[tuple[dict[str, str], Mapping[str, Any]]]

#: Kind, name, the time series in the result of `_series`, the key of the figure, and text.
_FAMILIES = (
    ("counter", "conversions", "pair", "calls", "Conversions."),
    ("counter", "refused_conversions", "pair", "refused_calls", "Conversions that raised an exception."),
    ("counter", "aliased_bytes", "pair", "aliased_bytes", "Bytes of results in the memory of their sources."),
    ("counter", "copied_bytes", "pair", "copied_bytes", "Bytes that conversions copied."),
    ("counter", "conversion_seconds", "pair", "seconds", "Duration of conversions."),
    (
        "counter",
        "site_copied_bytes",
        "site",
        "copied_bytes",
        f"Bytes copied by the worst {MOST_SITES} lines.",
    ),
    ("gauge", "process_resident_bytes", "process", "rss", "Resident memory."),
    ("gauge", "shared_bytes", "process", "segment_bytes", "Shared memory that the process created."),
    ("gauge", "mapped_bytes", "process", "mapped_bytes", "Mapped shared memory of other processes."),
    ("gauge", "leases", "process", "leases", "Results that keep shared memory alive."),
    ("gauge", "pool_in_use_bytes", "device", "in_use", "Bytes of a GPU's pool that are in use."),
    ("gauge", "pool_reserved_bytes", "device", "reserved", "Bytes that the pool has taken from the GPU."),
    ("gauge", "pool_limit_bytes", "device", "limit", "Limit of the pool."),
    ("gauge", "host_in_use_bytes", "mode", "in_use", "Host memory in use, by mode."),
    ("gauge", "host_kept_bytes", "mode", "kept", "Host memory kept for later, by mode."),
    ("gauge", "framework_pool_bytes", "framework", "in_use", "Bytes of the pools that a framework holds."),
    ("counter", "loader_batches", "loader", "batches", "Batches delivered."),
    ("counter", "loader_rows", "loader", "rows", "Rows delivered."),
    ("counter", "loader_reader_wait_seconds", "loader", "reader_wait", "Time in which the reader waited."),
    ("counter", "loader_consumer_wait_seconds", "loader", "consumer_wait", "Time of the consumer's waits."),
    ("gauge", "loader_ready", "loader", "depth", "Batches or groups that are ready."),
    ("gauge", "gpu_utilization_ratio", "gpu", "ratio", "Share of the time in which a kernel ran."),
    ("gauge", "gpu_memory_total_bytes", "gpu", "memory_total", "Memory of the GPU."),
    ("gauge", "gpu_memory_used_bytes", "gpu", "memory_used", "Memory of the GPU in use."),
    ("gauge", "gpu_temperature_celsius", "gpu", "temperature", "Temperature."),
    ("gauge", "gpu_power_watts", "gpu", "power", "Power."),
    ("gauge", "gpu_pcie_received_bytes_per_second", "gpu", "pcie_received", "Received by the GPU."),
    ("gauge", "gpu_pcie_sent_bytes_per_second", "gpu", "pcie_sent", "Sent by the GPU."),
    ("counter", "gpu_nvlink_received_bytes", "link", "received_bytes", "Bytes received over an NVLink."),
    ("counter", "gpu_nvlink_sent_bytes", "link", "sent_bytes", "Bytes sent over an NVLink."),
    ("gauge", "machine_cpu_ratio", "core", "ratio", "Share of the time in which a core was busy."),
    ("gauge", "machine_memory_total_bytes", "machine", "memory_total", "Memory of the machine or container."),
    ("gauge", "machine_memory_available_bytes", "machine", "memory_available", "Memory that is available."),
    ("gauge", "machine_shared_memory_free_bytes", "machine", "shared_memory_free", "Free in /dev/shm."),
)


def exposition(sample: Sample) -> str:
    """Return a sample in Prometheus' text format, which ends with a line feed.

    Values that cannot be read are left out, as are families without values.

    Raises
    ------
    FrameworkNotInstalledError
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
        core, series = require("prometheus_client.core", "Prometheus' text"), _series(self._sample)
        for kind, name, items, key, text in _FAMILIES:
            # The format allows each set of labels once: one line can contain several functions.
            sums: dict[tuple[tuple[str, str], ...], float] = {}
            for labels, figures in series[items]:
                if figures[key] is not None:
                    each = tuple((label, printable(value, "\n")) for label, value in labels.items())
                    sums[each] = sums.get(each, 0) + figures[key]
            if sums:
                family = core.Metric(f"zerocopy_{name}", text, kind)
                full_name = f"zerocopy_{name}" + "_total" * (kind == "counter")
                for each, value in sums.items():
                    family.add_sample(full_name, dict(each), value)
                yield family


def _series(sample: Sample) -> dict[str, _Series]:
    """Return the time series of a sample. Ended processes have counters, and no gauges."""
    names = ("pair", "site", "process", "device", "mode", "framework", "loader", "gpu", "link", "core")
    series: dict[str, _Series] = {name: [] for name in names}
    series["machine"] = [({}, sample["machine"])]
    for record in sample["processes"]:
        who = {"pid": str(record["process"]["pid"]), "program": record["process"]["program"]}
        for number, row in enumerate(sort(rows_of([record]))):
            pair = {"source": row.source, "target": row.target}
            series["pair"].append(({**who, **pair}, as_dict(row)))
            if number < MOST_SITES and row.copied_bytes and row.file:
                site = {"file": PurePath(row.file).name, "line": str(row.line), "function": row.function}
                series["site"].append(({**who, **site, **pair}, as_dict(row)))
        if not record["ended"]:
            pool: Any = record["pool"]
            series["process"].append((who, {"rss": record["rss"], **record["shared"]}))
            series["loader"] += [({**who, "loader": each["name"]}, each) for each in record["loaders"]]
            for name, part in (("device", "devices"), ("mode", "host"), ("framework", "frameworks")):
                series[name] += [({**who, name: index}, each) for index, each in pool[part].items()]
    for card in sample["cards"]["cards"]:
        gpu, percent = {"gpu": card["index"], "uuid": card["uuid"], "name": card["name"]}, card["utilization"]
        series["gpu"].append((gpu, {**card, "ratio": None if percent is None else percent / 100}))
        series["link"] += [({**gpu, "link": str(link["link"])}, link) for link in card["nvlinks"]]
    for number, busy in enumerate(sample["machine"]["cpu_percent"]):
        series["core"].append(({"core": str(number)}, {"ratio": busy / 100}))
    return series


class PrometheusFile:
    """A file for node_exporter's textfile collector, which each sample replaces.

    A reader sees the old or the new text, never a part. node_exporter reads files with the suffix ``.prom``.

    Raises
    ------
    MonitorFileError
        The path is not that of a regular file, or its directory does not exist.
    """

    def __init__(self, path: str) -> None:
        self._client = require("prometheus_client", "--prometheus")
        self.name = path
        self._path = os.path.realpath(path)  # a link stays, and its target is replaced
        asked = f"--prometheus {path}"
        if not os.path.isdir(os.path.dirname(self._path)):
            why, fix = "its directory does not exist", "create the directory, or pass another file"
            raise MonitorFileError(asked, why, fix)
        if os.path.exists(self._path) and not stat.S_ISREG(os.stat(self._path).st_mode):
            raise MonitorFileError(asked, "it is not a regular file", "pass another name")

    def write(self, sample: Sample) -> None:
        """Replace the file; raise OSError if the disk is full, and keep the former text."""
        self._client.write_to_textfile(self._path, _Collector(sample))

    def close(self) -> None:
        """Do nothing: the last text stays."""
