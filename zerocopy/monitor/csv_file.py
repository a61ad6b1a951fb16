"""``CsvFile``: one row for each GPU and sample, in a file that other programs can read at any time."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
import stat
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from zerocopy.formatting.printable import printable
from zerocopy.monitor.csv_fields import Field, Row
from zerocopy.monitor.errors import MonitorFileError
from zerocopy.monitor.rates import Rates
from zerocopy.monitor.sample import Card, Sample
from zerocopy.monitor.totals import COUNT_FIELDS, Totals, sum_record


class CsvFile:
    """A CSV file with a header.

    Values are quoted as in RFC 4180; lines end with a line feed, as those of nvidia-smi.

    Parameters
    ----------
    path : str
        The file, or ``"-"`` for standard output.
    fields : sequence of Field
        Its columns.
    append : bool, default False
        Add rows to an existing file that has the same columns.

    Raises
    ------
    MonitorFileError
        The file exists already, has other columns, or cannot be written.

    Examples
    --------
    >>> from zerocopy.monitor.csv_fields import select
    >>> file = CsvFile("-", select("index,name"))
    index,name
    """

    def __init__(self, path: str, fields: Sequence[Field], append: bool = False) -> None:
        self.name = "standard output" if path == "-" else path
        self._fields = fields
        self._totals = _RunningTotals()
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
        totals = self._totals.update(sample)
        cards: Sequence[Card | None] = sample["cards"]["cards"] or [None]
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


class _RunningTotals:
    """Sums over all processes of past samples: samples omit ended processes after a minute."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], Totals] = {}

    def update(self, sample: Sample) -> Totals:
        for record in sample["processes"]:
            self._seen[record["process"]["pid"], record["recording_since"]] = sum_record(record)
        return Totals(
            **{name: sum(getattr(each, name) for each in self._seen.values()) for name in COUNT_FIELDS}
        )


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
        file = open(path, "ab", buffering=0)  # noqa: SIM115 - `close` closes it
        return file, not status.st_size
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
