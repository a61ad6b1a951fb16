"""Reads the records of all processes of a run directory; damaged files are problems, not exceptions."""

from __future__ import annotations

import json
import os
import stat
import time
from typing import Any, NamedTuple, NoReturn

from zerocopy.monitor.checked_record import checked
from zerocopy.monitor.run_directory import FileName, opened, remove
from zerocopy.monitor.sample import ProcessRecord

#: Bytes of a file that are read at most. 500 call sites take 0.3 MB.
MOST_BYTES = 4 << 20
#: Seconds for which the record of a process that has ended is shown, and for which its file is kept.
SHOWN = 60.0
KEPT = 3600.0


class _Parsed(NamedTuple):
    """The parsed content of one version of a file."""

    version: tuple[int, int, int]
    record: ProcessRecord | None
    problem: str


class RunFiles:
    """The files of one run directory; those that have not changed are parsed once.

    Parameters
    ----------
    directory : str
    shown : float
        Seconds for which the record of a process that has ended is returned, at most `KEPT`.

    Examples
    --------
    >>> RunFiles("/nonexistent/directory").read()
    ([], ['/nonexistent/directory does not exist: no process was monitored'])
    """

    def __init__(self, directory: str, shown: float = SHOWN) -> None:
        self.directory, self._shown = directory, shown
        self._parsed: dict[str, _Parsed] = {}

    def read(self, now: float | None = None) -> tuple[list[ProcessRecord], list[str]]:
        """Return the records, by process ID, and the problems; remove files older than `KEPT`."""
        now = time.time() if now is None else now
        try:
            with opened(self.directory) as folder:
                return self._read_all(folder, now)
        except FileNotFoundError:
            return [], [f"{self.directory} does not exist: no process was monitored"]
        except OSError as error:
            return [], [str(error)]

    def _read_all(self, folder: int, now: float) -> tuple[list[ProcessRecord], list[str]]:
        records, problems, parsed = [], [], {}
        for entry in sorted(os.listdir(folder)):
            name = FileName.read(entry)
            if name is None:
                _remove_old_temporary(folder, entry, now)
                continue
            alive = name.is_alive
            try:
                result = self._read_one(folder, entry, name, None if alive else now)
            except OSError as error:
                if not isinstance(error, FileNotFoundError):  # its process may remove it
                    problems.append(f"{entry}: {error.strerror or error}")
                continue
            if result is None:
                continue
            parsed[entry] = result
            if result.record is None:
                problems.append(f"{entry}: {result.problem}")
            elif not result.record["ended"]:
                records.append(result.record if alive else {**result.record, "ended": True})
            elif now - result.record["time"] <= self._shown:  # a live process may have stopped its session
                records.append(result.record)
        self._parsed = parsed
        return sorted(records, key=lambda record: record["process"]["pid"]), problems

    def _read_one(self, folder: int, entry: str, name: FileName, now: float | None) -> _Parsed | None:
        """Return a file's record; None for an ended process (`now` is given) that is no longer shown."""
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        fd = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return _Parsed((0, 0, 0), None, "it is not a regular file of this user")
            if now is not None and now - status.st_mtime > KEPT:
                remove(folder, entry)
            if now is not None and now - status.st_mtime > self._shown:
                return None
            version = status.st_ino, status.st_mtime_ns, status.st_size
            known = self._parsed.get(entry)
            if known is not None and known.version == version:
                return known
            record, problem = _parse(fd, status.st_size, name)
            return _Parsed(version, record, problem)
        finally:
            os.close(fd)


def _parse(fd: int, size: int, name: FileName) -> tuple[ProcessRecord | None, str]:
    """Return a record and "", or None and the reason."""
    if size > MOST_BYTES:
        return None, f"it has {size:,} bytes; at most {MOST_BYTES:,} are read"
    with os.fdopen(os.dup(fd), "rb") as file:
        data = file.read(MOST_BYTES)
    try:
        record = checked(json.loads(data, parse_constant=_refuse))
    except RecursionError:
        return None, "its JSON is nested too deeply"
    except ValueError as error:  # of json and of unicode too
        return None, str(error)
    if record["process"]["pid"] != name.pid:
        return None, f"it names another process: {record['process']['pid']}"
    return record, ""


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and infinities, which are not JSON."""
    raise ValueError(f"{constant} is not JSON")


def _remove_old_temporary(folder: int, entry: str, now: float) -> None:
    """Remove an incomplete file, whose process was killed while it wrote."""
    name = FileName.read(entry[1:].removesuffix(".tmp") + ".json") if entry.startswith(".") else None
    if name is None or not entry.endswith(".tmp") or name.is_alive:
        return
    try:
        status: Any = os.stat(entry, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return
    if now - status.st_mtime > SHOWN:
        remove(folder, entry)
