"""The figures of a sample: for each, its series, its column in CSV files and its metric in Prometheus.

CSV files, Prometheus' text and the charts of the page read a sample through `SERIES`. Columns are those of
``nvidia-smi --query-gpu`` by its names and units, then ours. nvidia-smi has no field for PCIe throughput:
``pcie.rx`` and ``pcie.tx`` follow its style. Counters end in ``_total``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from zerocopy.monitor.conversion import as_dict, rows_of, sort
from zerocopy.monitor.sample import ProcessRecord, Sample

#: Call sites of one process that are listed; each is a time series in Prometheus.
MOST_SITES = 20
_MIB = 1 << 20


class Figure(NamedTuple):
    """A figure: the name of its series and its key there, its column with the unit, and its metric."""

    series: str
    key: str
    column: str = ""
    metric: str = ""
    help: str = ""
    form: int | str = ""  # of the column: a number that divides the value before it is rounded, or a format

    @property
    def name(self) -> str:
        """The column without its unit: ``memory.used`` for ``memory.used [MiB]``."""
        return self.column.partition(" [")[0]

    def cell(self, row: Mapping[str, Any]) -> Any:
        """Return the value from figures by series and key; None, which is an empty cell, if it is unknown."""
        figures = row[self.series]
        value = None if figures is None else figures[self.key]
        if value is None or not self.form:
            return value
        return format(value, self.form) if isinstance(self.form, str) else round(value / self.form)


_F = Figure
# fmt: off
#: All figures: columns in the order of the file; metrics are grouped by their series.
FIGURES = (
    _F("time", "timestamp", "timestamp"),
    _F("gpu", "index", "index"),
    _F("gpu", "name", "name"),
    _F("gpu", "uuid", "uuid"),
    _F("gpu", "utilization", "utilization.gpu [%]",
       "gpu_utilization_ratio", "Share of the time in which a kernel ran."),
    _F("gpu", "memory_utilization", "utilization.memory [%]"),
    _F("gpu", "memory_total", "memory.total [MiB]",
       "gpu_memory_total_bytes", "Memory of the GPU.", form=_MIB),
    _F("gpu", "memory_used", "memory.used [MiB]",
       "gpu_memory_used_bytes", "Memory of the GPU in use.", form=_MIB),
    _F("gpu", "memory_free", "memory.free [MiB]", form=_MIB),
    _F("gpu", "temperature", "temperature.gpu", "gpu_temperature_celsius", "Temperature."),
    _F("gpu", "power", "power.draw [W]",  # two digits as in nvidia-smi
       "gpu_power_watts", "Power.", form=".2f"),
    _F("gpu", "power_limit", "power.limit [W]", form=".2f"),
    _F("gpu", "sm_clock", "clocks.current.sm [MHz]"),
    _F("gpu", "memory_clock", "clocks.current.memory [MHz]"),
    _F("gpu", "pcie_received", "pcie.rx [KiB/s]",
       "gpu_pcie_received_bytes_per_second", "Received by the GPU.", form=1024),
    _F("gpu", "pcie_sent", "pcie.tx [KiB/s]",
       "gpu_pcie_sent_bytes_per_second", "Sent by the GPU.", form=1024),
    _F("time", "time", "zerocopy.time [s]", form=".3f"),
    _F("link", "received_bytes", "zerocopy.nvlink.received [bytes]",
       "gpu_nvlink_received_bytes_total", "Bytes received over an NVLink."),
    _F("link", "sent_bytes", "zerocopy.nvlink.sent [bytes]",
       "gpu_nvlink_sent_bytes_total", "Bytes sent over an NVLink."),
    _F("split", "pool_in_use", "zerocopy.pool.used [bytes]"),
    _F("split", "pool_free", "zerocopy.pool.free [bytes]"),
    _F("split", "process_outside_pool", "zerocopy.outside_pool [bytes]"),
    _F("split", "other_processes", "zerocopy.other_processes [bytes]"),
    _F("process", "count", "zerocopy.processes"),
    _F("pair", "calls", "zerocopy.calls", "conversions_total", "Conversions."),
    _F("pair", "refused_calls", "zerocopy.refused",
       "refused_conversions_total", "Conversions that raised an exception."),
    _F("pair", "aliased_bytes", "zerocopy.aliased [bytes]",
       "aliased_bytes_total", "Bytes of results in the memory of their sources."),
    _F("pair", "copied_bytes", "zerocopy.copied [bytes]",
       "copied_bytes_total", "Bytes that conversions copied."),
    _F("pair", "seconds", "", "conversion_seconds_total", "Duration of conversions."),
    _F("site", "copied_bytes", "",
       "site_copied_bytes_total", f"Bytes copied by the worst {MOST_SITES} lines."),
    _F("rates", "aliased_bytes", "zerocopy.aliased_rate [bytes/s]", form=1),
    _F("rates", "copied_bytes", "zerocopy.copied_rate [bytes/s]", form=1),
    _F("process", "rss", "zerocopy.resident [bytes]", "process_resident_bytes", "Resident memory."),
    _F("device", "in_use", "", "pool_in_use_bytes", "Bytes of a GPU's pool that are in use."),
    _F("device", "reserved", "", "pool_reserved_bytes", "Bytes that the pool has taken from the GPU."),
    _F("device", "limit", "", "pool_limit_bytes", "Limit of the pool."),
    _F("mode", "in_use", "zerocopy.host.used [bytes]", "host_in_use_bytes", "Host memory in use, by mode."),
    _F("mode", "kept", "zerocopy.host.kept [bytes]",
       "host_kept_bytes", "Host memory kept for later, by mode."),
    _F("framework", "in_use", "", "framework_pool_bytes", "Bytes of the pools that a framework holds."),
    _F("process", "segment_bytes", "zerocopy.shared [bytes]",
       "shared_bytes", "Shared memory that the process created."),
    _F("process", "mapped_bytes", "", "mapped_bytes", "Mapped shared memory of other processes."),
    _F("process", "leases", "", "leases", "Results that keep shared memory alive."),
    _F("loader", "batches", "", "loader_batches_total", "Batches delivered."),
    _F("loader", "rows", "", "loader_rows_total", "Rows delivered."),
    _F("loader", "reader_wait", "zerocopy.loader.reader_wait [s]",
       "loader_reader_wait_seconds_total", "Time in which the reader waited."),
    _F("loader", "consumer_wait", "zerocopy.loader.consumer_wait [s]",
       "loader_consumer_wait_seconds_total", "Time of the consumer's waits."),
    _F("loader", "depth", "", "loader_ready", "Batches or groups that are ready."),
    _F("core", "percent", "zerocopy.cpu [%]",
       "machine_cpu_ratio", "Share of the time in which a core was busy."),
    _F("machine", "memory_total", "zerocopy.machine.memory.total [bytes]",
       "machine_memory_total_bytes", "Memory of the machine or container."),
    _F("machine", "memory_available", "zerocopy.machine.memory.available [bytes]",
       "machine_memory_available_bytes", "Memory that is available."),
    _F("machine", "shared_memory_free", "", "machine_shared_memory_free_bytes", "Free in /dev/shm."),
    _F("machine", "disk_read", "zerocopy.disk.read [bytes]"),
    _F("machine", "disk_written", "zerocopy.disk.written [bytes]"),
    _F("machine", "network_received", "zerocopy.network.received [bytes]"),
    _F("machine", "network_sent", "zerocopy.network.sent [bytes]"),
)
# fmt: on


# -- the series: labels, and figures by key ------------------------------------------------

Series = Iterator[tuple[dict[str, str], Mapping[str, Any]]]


def _process_labels(record: ProcessRecord) -> dict[str, str]:
    return {"pid": str(record["process"]["pid"]), "program": record["process"]["program"]}


def _pairs(sample: Sample) -> Series:
    for record in sample["processes"]:
        for row in sort(rows_of([record])):
            yield {**_process_labels(record), "source": row.source, "target": row.target}, as_dict(row)


def _sites(sample: Sample) -> Series:
    """Yield the call sites that copy the most bytes; labels have a bounded number of values."""
    for record in sample["processes"]:
        for row in sort(rows_of([record]))[:MOST_SITES]:
            if row.copied_bytes and row.file:
                site = {"file": PurePath(row.file).name, "line": str(row.line), "function": row.function}
                pair = {"source": row.source, "target": row.target}
                yield {**_process_labels(record), **site, **pair}, as_dict(row)


def _processes(sample: Sample) -> Series:
    for record in sample["processes"]:
        yield _process_labels(record), {"rss": record["rss"], **record["shared"]}


def _in_pools(label: str, part: str) -> Callable[[Sample], Series]:
    def series(sample: Sample) -> Series:
        for record in sample["processes"]:
            pool: Any = record["pool"]
            for name, each in pool[part].items():
                yield {**_process_labels(record), label: name}, each

    return series


def _loaders(sample: Sample) -> Series:
    for record in sample["processes"]:
        for loader in record["loaders"]:
            yield {**_process_labels(record), "loader": loader["name"]}, loader


def _gpus(sample: Sample) -> Series:
    for card in sample["cards"]["cards"]:
        yield {"gpu": card["index"], "uuid": card["uuid"], "name": card["name"]}, card


def _links(sample: Sample) -> Series:
    for gpu, card in _gpus(sample):
        for link in card["nvlinks"]:
            yield {**gpu, "link": str(link["link"])}, link


def _cores(sample: Sample) -> Series:
    for number, busy in enumerate(sample["machine"]["cpu_percent"]):
        yield {"core": str(number)}, {"percent": busy}


#: Each series by its name, in the order of Prometheus' text.
SERIES: dict[str, Callable[[Sample], Series]] = {
    "pair": _pairs,
    "site": _sites,
    "process": _processes,
    "device": _in_pools("device", "devices"),
    "mode": _in_pools("mode", "host"),
    "framework": _in_pools("framework", "frameworks"),
    "loader": _loaders,
    "gpu": _gpus,
    "link": _links,
    "core": _cores,
    "machine": lambda sample: iter([({}, sample["machine"])]),
}


def running(sample: Sample) -> Sample:
    """Return the sample without the processes that have ended."""
    return {**sample, "processes": [record for record in sample["processes"] if not record["ended"]]}
