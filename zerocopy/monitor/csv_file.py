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
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, TextIO

from zerocopy.errors import OptionError
from zerocopy.formatting import printable
from zerocopy.monitor.conversion import ConversionRow, as_dict, sum_record, sum_rows
from zerocopy.monitor.errors import MonitorFileError
from zerocopy.monitor.memory_split import memory_split
from zerocopy.monitor.sample import Card, Sample

_MIB = 1 << 20


class Field(NamedTuple):
    """A column: the keys of its value in the dict that `_row` returns, and how the value is written."""

    name: str
    unit: str
    path: str
    #: A number by which the value is divided and then rounded, or a format.
    form: int | str = ""

    @property
    def title(self) -> str:
        """The header of the column, in the form of nvidia-smi: ``memory.used [MiB]``."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def read(self, row: Any) -> Any:
        """Return the value; None, which is an empty cell, if it cannot be read."""
        for key in self.path.split("."):
            row = None if row is None else row[key]
        if row is None or not self.form:
            return row
        return format(row, self.form) if isinstance(self.form, str) else round(row / self.form)


_ALL = (
    Field("timestamp", "", "timestamp"),
    Field("index", "", "card.index"),
    Field("name", "", "card.name"),
    Field("uuid", "", "card.uuid"),
    Field("utilization.gpu", "%", "card.utilization"),
    Field("utilization.memory", "%", "card.memory_utilization"),
    Field("memory.total", "MiB", "card.memory_total", _MIB),
    Field("memory.used", "MiB", "card.memory_used", _MIB),
    Field("memory.free", "MiB", "card.memory_free", _MIB),
    Field("temperature.gpu", "", "card.temperature"),
    Field("power.draw", "W", "card.power", ".2f"),  # two digits as in nvidia-smi
    Field("power.limit", "W", "card.power_limit", ".2f"),
    Field("clocks.current.sm", "MHz", "card.sm_clock"),
    Field("clocks.current.memory", "MHz", "card.memory_clock"),
    Field("pcie.rx", "KiB/s", "card.pcie_received", 1024),
    Field("pcie.tx", "KiB/s", "card.pcie_sent", 1024),
    Field("zerocopy.time", "s", "time", ".3f"),
    Field("zerocopy.nvlink.received", "bytes", "links.received_bytes"),
    Field("zerocopy.nvlink.sent", "bytes", "links.sent_bytes"),
    Field("zerocopy.pool.used", "bytes", "split.pool_in_use"),
    Field("zerocopy.pool.free", "bytes", "split.pool_free"),
    Field("zerocopy.outside_pool", "bytes", "split.process_outside_pool"),
    Field("zerocopy.other_processes", "bytes", "split.other_processes"),
    Field("zerocopy.processes", "", "running.processes"),
    Field("zerocopy.calls", "", "totals.calls"),
    Field("zerocopy.refused", "", "totals.refused_calls"),
    Field("zerocopy.aliased", "bytes", "totals.aliased_bytes"),
    Field("zerocopy.copied", "bytes", "totals.copied_bytes"),
    Field("zerocopy.aliased_rate", "bytes/s", "rates.conversions.aliased_bytes", 1),
    Field("zerocopy.copied_rate", "bytes/s", "rates.conversions.copied_bytes", 1),
    Field("zerocopy.resident", "bytes", "running.rss"),
    Field("zerocopy.host.used", "bytes", "running.host_in_use"),
    Field("zerocopy.host.kept", "bytes", "running.host_kept"),
    Field("zerocopy.shared", "bytes", "running.shared"),
    Field("zerocopy.loader.reader_wait", "s", "loaders.reader_wait"),
    Field("zerocopy.loader.consumer_wait", "s", "loaders.consumer_wait"),
    Field("zerocopy.cpu", "%", "cpu"),
    Field("zerocopy.machine.memory.total", "bytes", "machine.memory_total"),
    Field("zerocopy.machine.memory.available", "bytes", "machine.memory_available"),
    Field("zerocopy.disk.read", "bytes", "machine.disk_read"),
    Field("zerocopy.disk.written", "bytes", "machine.disk_written"),
    Field("zerocopy.network.received", "bytes", "machine.network_received"),
    Field("zerocopy.network.sent", "bytes", "machine.network_sent"),
)
#: All fields by name, in the order of the file.
FIELDS = {field.name: field for field in _ALL}


def select(names: str | None) -> Sequence[Field]:
    """Return the fields with the names in a list with commas; all fields for None."""
    if names is None:
        return _ALL
    asked = [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in FIELDS:
            near = difflib.get_close_matches(name.lower(), FIELDS, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            fix = f"{hint}--list-fields lists all names"  # the list of all names is long
            raise OptionError(f"--fields {names}", f"there is no field {name!r}", fix, code="unknown-field")
        if asked.count(name) > 1:
            raise OptionError(
                f"--fields {names}", f"{name!r} occurs twice", "name it once", code="unknown-field"
            )
    return [FIELDS[name] for name in asked]


def _row(sample: Sample, card: Card | None, totals: ConversionRow) -> dict[str, Any]:
    """Return the values of a row; `card` is None on a machine without GPUs."""
    now, records, cores = sample["time"], sample["processes"], sample["machine"]["cpu_percent"]
    running = [record for record in records if not record["ended"]]
    modes = [mode for record in running for mode in record["pool"]["host"].values()]
    loaders = [loader for record in records for loader in record["loaders"]]
    local = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now))
    split = None if card is None else asdict(memory_split(card, records, sample["cards"]))
    return {
        "timestamp": f"{local}.{int(now % 1 * 1000):03d}",  # in nvidia-smi's form
        "time": now,
        "card": card,
        "links": _sums(card["nvlinks"] if card else [], "received_bytes", "sent_bytes"),
        "split": split,
        "running": {
            "processes": len(running),
            "rss": sum(record["rss"] for record in running),
            "host_in_use": sum(mode["in_use"] or 0 for mode in modes),
            "host_kept": sum(mode["kept"] or 0 for mode in modes),
            "shared": sum(record["shared"]["segment_bytes"] for record in running),
        },
        "totals": as_dict(totals),
        "rates": sample["rates"],
        "loaders": {
            side: round(sum(float(each[side]) for each in loaders), 3)  # type: ignore[literal-required]
            for side in ("reader_wait", "consumer_wait")
        },
        "cpu": round(sum(cores) / len(cores), 1) if cores else None,
        "machine": sample["machine"],
    }


def _sums(items: Sequence[Any], *keys: str) -> dict[str, Any]:
    """Return the sums by key; None if a value is unknown, or there are none."""
    columns = {key: [item[key] for item in items] for key in keys}
    return {key: sum(values) if values and None not in values else None for key, values in columns.items()}


# -- the file -------------------------------------------------------------------------


class CsvFile:
    """A CSV file with a header, or standard output for the path ``"-"``.

    Values are quoted as in RFC 4180; lines end with a line feed, as those of nvidia-smi. With `append`, rows
    are added to an existing file that has the same columns.
    """

    def __init__(self, path: str, fields: Sequence[Field], append: bool = False) -> None:
        self.name: str = "standard output" if path == "-" else path
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

    def write(self, sample: Sample) -> None:
        """Write the rows of a sample; other programs can read them at once.

        Raises
        ------
        OSError
            The disk is full, or the reader of a pipe has ended. No part of the rows remains in a file.
        """
        for record in sample["processes"]:
            self._seen[record["process"]["pid"], record["recording_since"]] = sum_record(record)
        totals = sum_rows(self._seen.values())
        cards: Sequence[Any] = sample["cards"]["cards"] or [None]
        rows = [_row(sample, card, totals) for card in cards]
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
        discard_rest(sys.stdout)
        raise


def discard_rest(file: TextIO) -> None:
    """Discard what a standard stream still buffers after an error.

    Otherwise the interpreter writes it at its end: it prints another error, or exits with 120, which Python
    3.14 does for standard error too.
    """
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, file.fileno())
        os.close(null)


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
