"""``CsvFile``: one row for each GPU and sample, in a file that other programs can read at any time.

The fields are those of ``nvidia-smi --query-gpu`` by its names and units, then ours. nvidia-smi has no field
for PCIe throughput: ``pcie.rx`` and ``pcie.tx`` follow its style.
"""

from __future__ import annotations

import contextlib
import csv
import difflib
import errno
import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from zerocopy.formatting.printable import printable
from zerocopy.monitor.conversion import ConversionRow, rows_of, sum_rows
from zerocopy.monitor.errors import MonitorFieldError, MonitorFileError
from zerocopy.monitor.memory_split import memory_split
from zerocopy.monitor.observer import Rates
from zerocopy.monitor.sample import Sample

_MIB = 1 << 20


class Row(NamedTuple):
    """The values from which a row of the file is computed; `card` is None on a machine without GPUs."""

    sample: Any
    card: Any
    rates: Rates | None
    totals: ConversionRow  # of all processes, including those that are no longer in the sample

    @property
    def running(self) -> list[Any]:
        """The records of the processes that run."""
        return [record for record in self.sample["processes"] if not record["ended"]]


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


def _card(name: str, unit: str, key: str, scale: int = 1, digits: str = "") -> Field:
    """Return the field of a figure of the GPU."""

    def read(row: Row) -> Any:
        value = None if row.card is None else row.card[key]
        if value is None:
            return None
        return format(value, digits) if digits else value if scale == 1 else round(value / scale)

    return Field(name, unit, read)


def _split(name: str, key: str) -> Field:
    """Return the field of a part of the GPU's memory."""

    def read(row: Row) -> int | None:
        if row.card is None:
            return None
        value: int | None = getattr(memory_split(row.card, row.sample["processes"], row.sample["cards"]), key)
        return value

    return Field(f"zerocopy.{name}", "bytes", read)


def _nvlink(name: str) -> Field:
    """Return the field of the sum over the links of a GPU."""

    def read(row: Row) -> int | None:
        values = [link[f"{name}_bytes"] for link in row.card["nvlinks"]] if row.card else []
        return sum(values) if values and None not in values else None

    return Field(f"zerocopy.nvlink.{name}", "bytes", read)


def _conversions(name: str, unit: str, key: str) -> Field:
    return Field(f"zerocopy.{name}", unit, lambda row: getattr(row.totals, key))


def _rate(name: str, key: str) -> Field:
    """Return the field of a rate of conversions; empty in the first row."""
    unknown = None
    return Field(
        f"zerocopy.{name}_rate",
        "bytes/s",
        lambda row: unknown if row.rates is None else round(row.rates["conversions"][key]),
    )


def _running(name: str, unit: str, read: Callable[[Any], int]) -> Field:
    """Return the field of the sum over the processes that run."""
    return Field(f"zerocopy.{name}", unit, lambda row: sum(map(read, row.running)))


def _host(key: str) -> Callable[[Any], int]:
    return lambda record: sum(mode[key] or 0 for mode in record["pool"]["host"].values())


def _wait(side: str) -> Field:
    """Return the field of the time that one side of all loaders waited."""

    def read(row: Row) -> float:
        loaders = [each for record in row.sample["processes"] for each in record["loaders"]]
        return round(sum(float(each[f"{side}_wait"]) for each in loaders), 3)

    return Field(f"zerocopy.loader.{side}_wait", "s", read)


def _machine(name: str, key: str) -> Field:
    return Field(f"zerocopy.{name}", "bytes", lambda row: row.sample["machine"][key])


def _cpu(row: Row) -> float | None:
    """Return the use of all cores."""
    cores = row.sample["machine"]["cpu_percent"]
    return round(sum(cores) / len(cores), 1) if cores else None


_ALL = (
    Field("timestamp", "", _timestamp),
    _card("index", "", "index"),
    _card("name", "", "name"),
    _card("uuid", "", "uuid"),
    _card("utilization.gpu", "%", "utilization"),
    _card("utilization.memory", "%", "memory_utilization"),
    _card("memory.total", "MiB", "memory_total", _MIB),
    _card("memory.used", "MiB", "memory_used", _MIB),
    _card("memory.free", "MiB", "memory_free", _MIB),
    _card("temperature.gpu", "", "temperature"),
    _card("power.draw", "W", "power", digits=".2f"),  # two digits as in nvidia-smi
    _card("power.limit", "W", "power_limit", digits=".2f"),
    _card("clocks.current.sm", "MHz", "sm_clock"),
    _card("clocks.current.memory", "MHz", "memory_clock"),
    _card("pcie.rx", "KiB/s", "pcie_received", 1024),
    _card("pcie.tx", "KiB/s", "pcie_sent", 1024),
    Field("zerocopy.time", "s", lambda row: f"{row.sample['time']:.3f}"),
    _nvlink("received"),
    _nvlink("sent"),
    _split("pool.used", "pool_in_use"),
    _split("pool.free", "pool_free"),
    _split("outside_pool", "process_outside_pool"),
    _split("other_processes", "other_processes"),
    _running("processes", "", lambda record: 1),
    _conversions("calls", "", "calls"),
    _conversions("refused", "", "refused_calls"),
    _conversions("aliased", "bytes", "aliased_bytes"),
    _conversions("copied", "bytes", "copied_bytes"),
    _rate("aliased", "aliased_bytes"),
    _rate("copied", "copied_bytes"),
    _running("resident", "bytes", lambda record: int(record["rss"])),
    _running("host.used", "bytes", _host("in_use")),
    _running("host.kept", "bytes", _host("kept")),
    _running("shared", "bytes", lambda record: int(record["shared"]["segment_bytes"])),
    _wait("reader"),
    _wait("consumer"),
    Field("zerocopy.cpu", "%", _cpu),
    _machine("machine.memory.total", "memory_total"),
    _machine("machine.memory.available", "memory_available"),
    _machine("disk.read", "disk_read"),
    _machine("disk.written", "disk_written"),
    _machine("network.received", "network_received"),
    _machine("network.sent", "network_sent"),
)
#: All fields by name, in the order of the file.
FIELDS = {field.name: field for field in _ALL}


def select(names: str | None) -> Sequence[Field]:
    """Return the fields with the names in a list with commas; all fields for None.

    Examples
    --------
    >>> [field.title for field in select("timestamp,memory.used")]
    ['timestamp', 'memory.used [MiB]']
    """
    if names is None:
        return _ALL
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in FIELDS:
            near = difflib.get_close_matches(name.lower(), FIELDS, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            fix = f"{hint}--list-fields lists all names"  # the list of all names is long
            raise MonitorFieldError(f"--fields {names}", f"there is no field {name!r}", fix)
        if asked.count(name) > 1:
            raise MonitorFieldError(f"--fields {names}", f"{name!r} occurs twice", "name it once")
    return [FIELDS[name] for name in asked]


# -- the file -------------------------------------------------------------------------


class CsvFile:
    """A CSV file with a header, or standard output for the path ``"-"``.

    Values are quoted as in RFC 4180; lines end with a line feed, as those of nvidia-smi. With `append`, rows
    are added to an existing file that has the same columns.

    Examples
    --------
    >>> file = CsvFile("-", select("index,name"))
    index,name
    """

    def __init__(self, path: str, fields: Sequence[Field], append: bool = False) -> None:
        self.name = "standard output" if path == "-" else path
        self._fields = fields
        #: The sums of each process: samples omit ended processes after a minute.
        self._seen: dict[tuple[int, float], ConversionRow] = {}
        header = _text([[field.title for field in fields]])
        self._file, is_new = _open(path, header, append)
        try:
            if is_new:
                self._write(header)
        except OSError as error:
            self.close()
            raise _unwritable(f"--csv {path}", error) from error

    def write(self, sample: Sample, rates: Rates | None) -> None:
        """Write the rows of a sample; other programs can read them at once.

        Raises
        ------
        OSError
            The disk is full, or the reader of a pipe has ended. No part of the rows remains in a file.
        """
        for record in sample["processes"]:
            self._seen[record["process"]["pid"], record["recording_since"]] = sum_rows(rows_of([record]))
        totals = sum_rows(self._seen.values())
        cards: Sequence[Any] = sample["cards"]["cards"] or [None]
        rows = [Row(sample, card, rates, totals) for card in cards]
        self._write(_text([[field.read(row) for field in self._fields] for row in rows]))

    def close(self) -> None:
        """Close the file; standard output stays open."""
        if self._file is not None:
            self._file.close()

    def _write(self, text: str) -> None:
        if self._file is None:
            write_output(text)
            return
        data, start = memoryview(text.encode()), self._file.tell() if self._file.seekable() else None
        try:
            while data:  # a file system that is nearly full writes only a part
                data = data[self._file.write(data) or 0 :]
        except OSError:
            if start is not None:
                with contextlib.suppress(OSError):
                    self._file.truncate(start)
            raise


def write_output(text: str) -> None:
    """Write text to standard output at once; after an error, discard what is still buffered.

    Raises
    ------
    OSError
        The disk is full, or the reader of a pipe has ended.
    """
    if sys.stdout is None:  # it was closed before the program started
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        # Otherwise the interpreter writes the rest at its end, and prints another error.
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
        raise


def _text(rows: Iterable[Sequence[Any]]) -> str:
    buffer = io.StringIO()
    cells = ([printable(cell, "\n") if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(buffer, lineterminator="\n").writerows(cells)
    return buffer.getvalue()


def _open(path: str, header: str, append: bool) -> tuple[io.FileIO | None, bool]:
    """Return the file, None for standard output, and whether it needs a header."""
    if path == "-":
        return None, True
    asked = f"--csv {path}"
    try:
        try:
            return open(path, "xb", buffering=0), True
        except FileExistsError:
            status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device
            return open(path, "wb", buffering=0), True
        if status.st_size and not append:
            why, fix = "the file exists", "pass another name, or --append to add rows to it"
            raise MonitorFileError(asked, why, fix, code="file-exists")
        if status.st_size:
            _check_header(asked, path, header)
        return open(path, "ab", buffering=0), not status.st_size
    except MonitorFileError:
        raise
    except OSError as error:
        raise _unwritable(asked, error) from error


def _unwritable(asked: str, error: OSError) -> MonitorFileError:
    why = f"it cannot be written: {error.strerror or error}"
    return MonitorFileError(asked, why, "pass a file in a directory that has space and where you may write")


def _check_header(asked: str, path: str, header: str) -> None:
    """Raise `MonitorFileError` if rows cannot be added to a file."""
    with open(path, "rb") as file:
        first = file.readline(len(header) + 4096)
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
    if first.decode("utf-8", "replace").rstrip("\r\n") != header.rstrip("\n"):
        why = "the file has other columns"
        raise MonitorFileError(asked, why, "pass the same --fields, or another file", code="other-columns")
    if last != b"\n":
        why = "the last line of the file is incomplete"
        raise MonitorFileError(asked, why, "remove that line, or pass another file", code="incomplete-line")
