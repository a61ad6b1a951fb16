"""``CsvFile``: one row for each GPU and sample, in a file that other programs can read at any time."""

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
from typing import Any, TextIO

from zerocopy.errors import MonitorFileError, OptionError
from zerocopy.formatting import printable
from zerocopy.monitor.conversion import ConversionRow, as_dict, sum_record, sum_rows
from zerocopy.monitor.figures import FIGURES, SERIES, Figure, running
from zerocopy.monitor.memory_split import memory_split, sum_known
from zerocopy.monitor.sample import Card, NVLink, Sample

#: The figures with a column, by its name.
FIELDS = {figure.name: figure for figure in FIGURES if figure.column}


def select(names: str | None) -> Sequence[Figure]:
    """Return the fields with the names in a list with commas; all fields for None."""
    if names is None:
        return list(FIELDS.values())
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
    """Return the figures of a row by series and key; `card` is None on a machine without GPUs."""
    now, present, cores = sample["time"], running(sample), sample["machine"]["cpu_percent"]
    local = time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(now))
    split = None if card is None else asdict(memory_split(card, sample["processes"], sample["cards"]))
    waits = _sums(sample, "loader", "reader_wait", "consumer_wait")
    return {
        "time": {"timestamp": f"{local}.{int(now % 1 * 1000):03d}", "time": now},  # in nvidia-smi's form
        "gpu": card,
        "link": _link_sums(card["nvlinks"] if card else []),
        "split": split,
        "process": {"count": len(present["processes"]), **_sums(present, "process", "rss", "segment_bytes")},
        "pair": as_dict(totals),
        "rates": sample["rates"] and sample["rates"]["conversions"],
        "mode": _sums(present, "mode", "in_use", "kept"),
        "loader": {side: round(seconds, 3) for side, seconds in waits.items()},
        "core": {"percent": round(sum(cores) / len(cores), 1) if cores else None},
        "machine": sample["machine"],
    }


def _sums(sample: Sample, series: str, *keys: str) -> dict[str, Any]:
    entries = [figures for _, figures in SERIES[series](sample)]
    return {key: sum(figures[key] or 0 for figures in entries) for key in keys}


def _link_sums(links: Sequence[NVLink]) -> dict[str, int | None]:
    """Return the sums of the links; None if a value is unknown, or there are none."""
    received, sent = [link["received_bytes"] for link in links], [link["sent_bytes"] for link in links]
    return {"received_bytes": sum_known(received or [None]), "sent_bytes": sum_known(sent or [None])}


# -- the file -------------------------------------------------------------------------


class CsvFile:
    """A CSV file with a header, or standard output for the path ``"-"``.

    Values are quoted as in RFC 4180; lines end with a line feed, as those of nvidia-smi. With `append`, rows
    are added to an existing file that has the same columns.
    """

    def __init__(self, path: str, fields: Sequence[Figure], append: bool = False) -> None:
        self.name: str = "standard output" if path == "-" else path
        self._fields = fields
        #: The sums of each process: samples omit ended processes after a minute.
        self._seen: dict[tuple[int, float], ConversionRow] = {}
        header = _text([[field.column for field in fields]])
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
        self._write(_text([[field.cell(row) for field in self._fields] for row in rows]))

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
