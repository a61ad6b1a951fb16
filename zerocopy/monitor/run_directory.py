"""The run directory, in which each monitored process writes one file, and its reader.

The directory belongs to one user alone. Damaged files are problems of the reader, not exceptions.

The directory of another user, in ``/tmp`` for instance, could be read by that user, or hold links through
which a write replaces a file of this user. Each operation opens the directory again and checks it: a program
may close all file descriptors, and the system then reuses their numbers.
"""

from __future__ import annotations

import json
import os
import stat
import time
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple, NoReturn

from zerocopy.errors import MonitorFileError
from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.process_record import start_ticks
from zerocopy.monitor.sample import FORMAT, ProcessRecord

VARIABLE = "ZEROCOPY_MONITOR_DIR"
_NAME = "zerocopy-monitor"
#: Bytes of a file that are read at most. 500 call sites take 0.3 MB.
MOST_BYTES = 4 << 20
#: Seconds for which the record of a process that has ended is shown, and for which its file is kept.
SHOWN = 60.0
KEPT = 3600.0
_LARGEST = 1 << 63


def default_directory() -> str:
    """Return the path of the run directory of this user; it may not exist.

    ``ZEROCOPY_MONITOR_DIR``, else ``$XDG_RUNTIME_DIR/zerocopy-monitor``, else ``/tmp/zerocopy-monitor-UID``.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return os.path.abspath(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    # Under sudo, the variable can be that of another user.
    with suppress(OSError):
        if os.path.isabs(runtime) and os.stat(runtime).st_uid == os.geteuid():
            return os.path.join(runtime, _NAME)
    return f"/tmp/{_NAME}-{os.geteuid()}"


@contextmanager
def opened(path: str, *, create: bool = False) -> Iterator[int]:
    """Yield a file descriptor of the directory, after all checks.

    Raises
    ------
    MonitorFileError
        The directory belongs to another user, others can read it, or it is not a directory.
    OSError
        It does not exist, or cannot be created.
    """
    if create:
        with suppress(FileExistsError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.mkdir(path, 0o700)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:  # for a symbolic link too
        raise _unsafe(path, "it is a symbolic link, or not a directory") from error
    try:
        _check(path, os.fstat(fd))
        yield fd
    finally:
        os.close(fd)


def _check(path: str, status: os.stat_result) -> None:
    """Raise `MonitorFileError` for a directory that other users can read or own."""
    if status.st_uid != os.geteuid():
        raise _unsafe(path, f"it belongs to the user with the number {status.st_uid}")
    if status.st_mode & 0o077:
        mode = stat.filemode(status.st_mode)
        why = f"other users have permissions on it ({mode})"
        raise MonitorFileError(
            f"the run directory {path}", why, f"chmod 700 {path}; or {_ELSEWHERE}", code="run-directory"
        )


_ELSEWHERE = f"set {VARIABLE}, or directory=, to a directory of your own"


def _unsafe(path: str, why: str) -> MonitorFileError:
    return MonitorFileError(f"the run directory {path}", why, _ELSEWHERE, code="run-directory")


class FileName(NamedTuple):
    """The name of a process's file: ``PID-START.json``, with the start in clock ticks.

    Examples
    --------
    >>> FileName.read("12-345.json")
    FileName(pid=12, started=345)
    >>> FileName.read("../12-345.json") is None
    True
    """

    pid: int
    started: int

    @classmethod
    def read(cls, name: str) -> FileName | None:
        """Return the parts of a name; None for other files."""
        stem, dot, suffix = name.rpartition(".")
        pid, _, started = stem.partition("-")
        numbers = pid.isascii() and pid.isdecimal() and started.isascii() and started.isdecimal()
        if not numbers or dot + suffix != ".json" or len(stem) > 40:
            return None
        return cls(int(pid), int(started))

    @classmethod
    def of_this_process(cls) -> FileName:
        """Return the name for this process."""
        return cls(os.getpid(), start_ticks(os.getpid()) or 0)

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}.json"

    @property
    def temporary(self) -> str:
        """The name of the file until it is complete."""
        return f".{self.pid}-{self.started}.tmp"

    @property
    def is_alive(self) -> bool:
        """Whether the process exists; a later process with the same ID began at another time."""
        ticks = start_ticks(self.pid)
        return ticks is not None and (ticks == self.started or not ticks or not self.started)


def write(directory: str, name: FileName, record: ProcessRecord) -> None:
    """Replace a process's file; a reader sees the old or the new file, never a part.

    Raises
    ------
    OSError
        `MonitorFileError` is one too. The temporary file has been removed.
    """
    text = json.dumps(record, allow_nan=False, separators=(",", ":")).encode("ascii")
    with opened(directory, create=True) as folder:
        remove(folder, name.temporary)  # of an earlier process with this ID, or a link
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name.temporary, flags, 0o600, dir_fd=folder)
            try:
                view = memoryview(text)
                while view:  # on a nearly full file system, a call may write only a part
                    view = view[os.write(fd, view) :]
            finally:
                os.close(fd)
            os.replace(name.temporary, str(name), src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            remove(folder, name.temporary)
            raise


def remove(folder: int, name: str) -> None:
    """Remove a file of an opened directory, if it exists."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


# -- the reader ---------------------------------------------------------------------


class RunFiles:
    """The files of one run directory; those that have not changed are parsed once.

    The record of a process that has ended is returned for `shown` seconds, at most `KEPT`.
    """

    def __init__(self, directory: str, shown: float = SHOWN) -> None:
        self.directory = directory
        self._shown = shown
        #: The version of each file, and its record.
        self._parsed: dict[str, tuple[tuple[int, int, int], ProcessRecord]] = {}

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
        records, problems = [], []
        entries = sorted(os.listdir(folder))
        self._parsed = {entry: known for entry, known in self._parsed.items() if entry in entries}
        for entry in entries:
            name = FileName.read(entry)
            if name is None:
                _remove_old_temporary(folder, entry, now)
                continue
            alive = name.is_alive
            try:
                record = self._read_one(folder, entry, name, None if alive else now)
            except FileNotFoundError:
                continue  # its process may remove it
            except RecursionError:
                problems.append(f"{entry}: its JSON is nested too deeply")
                continue
            except (OSError, ValueError) as error:  # of the system, of json and of unicode, and those below
                problems.append(f"{entry}: {getattr(error, 'strerror', None) or error}")
                continue
            if record is None:
                continue
            if not record["ended"]:
                records.append(record if alive else {**record, "ended": True})
            elif now - record["time"] <= self._shown:  # a live process may have stopped its session
                records.append(record)
        return sorted(records, key=lambda record: record["process"]["pid"]), problems

    def _read_one(self, folder: int, entry: str, name: FileName, now: float | None) -> ProcessRecord | None:
        """Return a file's record; None for an ended process (`now` is given) that is no longer shown."""
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        fd = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                raise ValueError("it is not a regular file of this user")
            if now is not None and now - status.st_mtime > KEPT:
                remove(folder, entry)
            if now is not None and now - status.st_mtime > self._shown:
                return None
            version = status.st_ino, status.st_mtime_ns, status.st_size
            known = self._parsed.get(entry)
            if known is not None and known[0] == version:
                return known[1]
            if status.st_size > MOST_BYTES:
                raise ValueError(f"it has {status.st_size:,} bytes; at most {MOST_BYTES:,} are read")
            with open(fd, "rb", closefd=False) as file:
                record = checked(json.loads(file.read(MOST_BYTES), parse_constant=_refuse))
        finally:
            os.close(fd)
        if record["process"]["pid"] != name.pid:
            raise ValueError(f"it names another process: {record['process']['pid']}")
        self._parsed[entry] = version, record
        return record


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


# -- the types of a record ------------------------------------------------------------


def checked(value: object) -> ProcessRecord:
    """Return a record with the known fields of `value`.

    Raises
    ------
    ValueError
        A field is missing or has another type. The message names the field.
    """
    if isinstance(value, dict) and type(value.get("format")) is int and value["format"] != FORMAT:
        version = value["format"]
        raise ValueError(f"its format is {version}; this version of zerocopy reads format {FORMAT}")
    record: ProcessRecord = _convert(value, ProcessRecord, "record")
    rows = record["conversions"]
    record["conversions"] = [_fields(row, ConversionRow, f"conversions[{i}]") for i, row in enumerate(rows)]
    return record


def _convert(value: Any, expected: Any, path: str) -> Any:
    """Return a value of the expected type; an int passes as a float."""
    origin = typing.get_origin(expected)
    if origin in (types.UnionType, typing.Union):  # of a type and None
        choices = typing.get_args(expected)
        return None if value is None else _convert(value, choices[0], path)
    if origin is list and type(value) is list:
        (item,) = typing.get_args(expected)
        return [_convert(each, item, f"{path}[{i}]") for i, each in enumerate(value)]
    if origin is dict and type(value) is dict:
        item = typing.get_args(expected)[1]
        return {key: _convert(each, item, f"{path}[{key[:40]!r}]") for key, each in value.items()}
    if typing.is_typeddict(expected) and type(value) is dict:
        return _fields(value, expected, path)
    if expected is Any:
        return value
    if expected is float and type(value) in (int, float) and abs(value) < _LARGEST:  # False for NaN
        return float(value)
    if expected in (str, bool) and type(value) is expected:
        return value
    if expected is int and type(value) is int and abs(value) < _LARGEST:
        return value
    name = getattr(expected, "__name__", str(expected))
    raise ValueError(f"{path} is not {name}: {repr(value)[:60]}")


def _fields(value: dict[str, Any], expected: type, path: str) -> Any:
    """Return the fields of a `TypedDict` or a dataclass; others are dropped."""
    result = {}
    for name, annotation in _hints(expected).items():
        if name not in value:
            raise ValueError(f"{path} lacks {name!r}")
        result[name] = _convert(value[name], annotation, f"{path}.{name}")
    return result


@cache
def _hints(expected: type) -> dict[str, Any]:
    return typing.get_type_hints(expected)
