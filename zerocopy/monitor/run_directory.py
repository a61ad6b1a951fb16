"""The run directory, in which each monitored process writes one file; it belongs to one user alone.

The directory of another user, in ``/tmp`` for instance, could be read by that user, or hold links through
which a write replaces a file of this user. Each operation opens the directory again and checks it: a program
may close all file descriptors, and the system then reuses their numbers.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from zerocopy.monitor.errors import RunDirectoryError
from zerocopy.monitor.process_info import start_ticks
from zerocopy.monitor.sample import ProcessRecord

VARIABLE = "ZEROCOPY_MONITOR_DIR"
_NAME = "zerocopy-monitor"


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
    RunDirectoryError
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
    """Raise `RunDirectoryError` for a directory that other users can read or own."""
    if status.st_uid != os.geteuid():
        raise _unsafe(path, f"it belongs to the user with the number {status.st_uid}")
    if status.st_mode & 0o077:
        mode = stat.filemode(status.st_mode)
        why = f"other users have permissions on it ({mode})"
        raise RunDirectoryError(f"the run directory {path}", why, f"chmod 700 {path}; or {_ELSEWHERE}")


_ELSEWHERE = f"set {VARIABLE}, or directory=, to a directory of your own"


def _unsafe(path: str, why: str) -> RunDirectoryError:
    return RunDirectoryError(f"the run directory {path}", why, _ELSEWHERE)


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
        `RunDirectoryError` is one too. The temporary file has been removed.
    """
    text = json.dumps(record, allow_nan=False, separators=(",", ":")).encode("ascii")
    with opened(directory, create=True) as folder:
        remove(folder, name.temporary)  # of an earlier process with this ID, or a link
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(name.temporary, flags, 0o600, dir_fd=folder)
            try:
                _write_all(fd, text)
            finally:
                os.close(fd)
            os.replace(name.temporary, str(name), src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            remove(folder, name.temporary)
            raise


def _write_all(fd: int, data: Any) -> None:
    """Write all bytes: on a nearly full file system, a call may write only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def remove(folder: int, name: str) -> None:
    """Remove a file of an opened directory, if it exists."""
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)
