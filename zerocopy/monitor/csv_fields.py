"""The fields of the CSV file: those of ``nvidia-smi --query-gpu`` by its names and units, then ours.

nvidia-smi has no field for PCIe throughput: ``pcie.rx`` and ``pcie.tx`` follow its style.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zerocopy.monitor.errors import MonitorFieldError
from zerocopy.monitor.memory_split import memory_split
from zerocopy.monitor.rates import Rates
from zerocopy.monitor.sample import Card, Sample
from zerocopy.monitor.totals import Totals

_MIB = 1 << 20


class Row(NamedTuple):
    """The values from which a row of the file is computed; `card` is None on a machine without GPUs."""

    sample: Sample
    card: Card | None
    rates: Rates | None
    totals: Totals  # of all processes, including those that are no longer in the sample


class Field(NamedTuple):
    """A column. A value that cannot be read is None, which is an empty cell."""

    name: str
    unit: str
    read: Callable[[Row], Any]

    @property
    def title(self) -> str:
        """The header of the column, in the form of nvidia-smi: ``memory.used [MiB]``."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


def _timestamp(row: Row) -> str:
    """Return the local time in nvidia-smi's form."""
    now = row.sample["time"]
    return time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now)) + f".{int(now % 1 * 1000):03d}"


def _card(key: str, scale: float = 1) -> Callable[[Row], Any]:
    """Return a reader of a figure of the GPU; with a scale, the result is rounded."""

    def read(row: Row) -> Any:
        value: Any = None if row.card is None else row.card[key]  # type: ignore[literal-required]
        return value if value is None or scale == 1 else round(value / scale)

    return read


def _watts(key: str) -> Callable[[Row], str | None]:
    """Return a reader of a power, with two digits as in nvidia-smi."""
    read = _card(key)
    return lambda row: None if read(row) is None else f"{read(row):.2f}"


def _split(key: str) -> Callable[[Row], int | None]:
    """Return a reader of a part of the GPU's memory."""

    def read(row: Row) -> int | None:
        if row.card is None:
            return None
        value: int | None = getattr(memory_split(row.card, row.sample["processes"], row.sample["cards"]), key)
        return value

    return read


def _nvlink(key: str) -> Callable[[Row], int | None]:
    """Return a reader of the sum over the links of a GPU."""

    def read(row: Row) -> int | None:
        values: list[Any] = [link[key] for link in row.card["nvlinks"]] if row.card else []  # type: ignore[literal-required]
        return sum(values) if values and None not in values else None

    return read


def _rate(key: str) -> Callable[[Row], int | None]:
    """Return a reader of a rate of conversions; empty in the first row."""
    return lambda row: None if row.rates is None else round(row.rates["conversions"][key])  # type: ignore[literal-required]


def _running(read: Callable[[Any], int]) -> Callable[[Row], int]:
    """Return a reader of the sum over the processes that run."""
    return lambda row: sum(read(record) for record in row.sample["processes"] if not record["ended"])


def _host(key: str) -> Callable[[Any], int]:
    return lambda record: sum(mode[key] or 0 for mode in record["pool"]["host"].values())


def _wait(key: str) -> Callable[[Row], float]:
    """Return a reader of the time that loaders waited."""

    def read(row: Row) -> float:
        loaders: list[Any] = [each for record in row.sample["processes"] for each in record["loaders"]]
        total: float = sum(each[key] for each in loaders)
        return round(total, 3)

    return read


def _machine(key: str) -> Callable[[Row], int | None]:
    return lambda row: row.sample["machine"][key]  # type: ignore[literal-required,no-any-return]


def _cpu(row: Row) -> float | None:
    """Return the use of all cores."""
    cores = row.sample["machine"]["cpu_percent"]
    return round(sum(cores) / len(cores), 1) if cores else None


_NVIDIA = (
    Field("timestamp", "", _timestamp),
    Field("index", "", _card("index")),
    Field("name", "", _card("name")),
    Field("uuid", "", _card("uuid")),
    Field("utilization.gpu", "%", _card("utilization")),
    Field("utilization.memory", "%", _card("memory_utilization")),
    Field("memory.total", "MiB", _card("memory_total", _MIB)),
    Field("memory.used", "MiB", _card("memory_used", _MIB)),
    Field("memory.free", "MiB", _card("memory_free", _MIB)),
    Field("temperature.gpu", "", _card("temperature")),
    Field("power.draw", "W", _watts("power")),
    Field("power.limit", "W", _watts("power_limit")),
    Field("clocks.current.sm", "MHz", _card("sm_clock")),
    Field("clocks.current.memory", "MHz", _card("memory_clock")),
    Field("pcie.rx", "KiB/s", _card("pcie_received", 1024)),
    Field("pcie.tx", "KiB/s", _card("pcie_sent", 1024)),
)
_OURS = (
    Field("zerocopy.time", "s", lambda row: f"{row.sample['time']:.3f}"),
    Field("zerocopy.nvlink.received", "bytes", _nvlink("received_bytes")),
    Field("zerocopy.nvlink.sent", "bytes", _nvlink("sent_bytes")),
    Field("zerocopy.pool.used", "bytes", _split("pool_in_use")),
    Field("zerocopy.pool.free", "bytes", _split("pool_free")),
    Field("zerocopy.outside_pool", "bytes", _split("process_outside_pool")),
    Field("zerocopy.other_processes", "bytes", _split("other_processes")),
    Field("zerocopy.processes", "", _running(lambda record: 1)),
    Field("zerocopy.calls", "", lambda row: row.totals.calls),
    Field("zerocopy.refused", "", lambda row: row.totals.refused_calls),
    Field("zerocopy.aliased", "bytes", lambda row: row.totals.aliased_bytes),
    Field("zerocopy.copied", "bytes", lambda row: row.totals.copied_bytes),
    Field("zerocopy.aliased_rate", "bytes/s", _rate("aliased_bytes")),
    Field("zerocopy.copied_rate", "bytes/s", _rate("copied_bytes")),
    Field("zerocopy.resident", "bytes", _running(lambda record: record["rss"])),
    Field("zerocopy.host.used", "bytes", _running(_host("in_use"))),
    Field("zerocopy.host.kept", "bytes", _running(_host("kept"))),
    Field("zerocopy.shared", "bytes", _running(lambda record: record["shared"]["segment_bytes"])),
    Field("zerocopy.loader.reader_wait", "s", _wait("reader_wait")),
    Field("zerocopy.loader.consumer_wait", "s", _wait("consumer_wait")),
    Field("zerocopy.cpu", "%", _cpu),
    Field("zerocopy.machine.memory.total", "bytes", _machine("memory_total")),
    Field("zerocopy.machine.memory.available", "bytes", _machine("memory_available")),
    Field("zerocopy.disk.read", "bytes", _machine("disk_read")),
    Field("zerocopy.disk.written", "bytes", _machine("disk_written")),
    Field("zerocopy.network.received", "bytes", _machine("network_received")),
    Field("zerocopy.network.sent", "bytes", _machine("network_sent")),
)
#: All fields, in the order of the file.
FIELDS = {field.name: field for field in (*_NVIDIA, *_OURS)}


def select(names: str | None) -> Sequence[Field]:
    """Return the fields with the names in a list with commas; all fields for None.

    Raises
    ------
    MonitorFieldError
        A name is unknown, or occurs twice.

    Examples
    --------
    >>> [field.title for field in select("timestamp,memory.used")]
    ['timestamp', 'memory.used [MiB]']
    """
    if names is None:
        return tuple(FIELDS.values())
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in FIELDS:
            raise MonitorFieldError(f"--fields {names}", f"there is no field {name!r}", _suggestion(name))
        if asked.count(name) > 1:
            raise MonitorFieldError(f"--fields {names}", f"{name!r} occurs twice", "name it once")
    return [FIELDS[name] for name in asked]


def _suggestion(name: str) -> str:
    """Return the remedy for an unknown name, without the list of all names, which is long."""
    near = difflib.get_close_matches(name.lower(), FIELDS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return f"{hint}--list-fields lists all names"
