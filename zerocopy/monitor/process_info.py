"""Facts of a process from ``/proc``: when it began, its parent, and its memory."""

from __future__ import annotations

import os
import platform
import sys
import time
from functools import cache

from zerocopy.monitor.sample import ProcessInfo


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the system started; None if it has ended.

    0 if the time is unknown: the system has no ``/proc``, or hides the processes of other users.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(_fields(file.read())[19])
    except FileNotFoundError:
        return None if os.path.exists("/proc/self/stat") else _answers(pid)
    except ProcessLookupError:
        return None
    except (OSError, ValueError, IndexError):
        return 0


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended and its parent has not read its exit code."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return _fields(file.read())[0] == b"Z"
    except (OSError, ValueError, IndexError):
        return False


def parent_of(pid: int) -> int | None:
    """Return the ID of a process's parent; None if the process has ended or its parent is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(_fields(file.read())[1])
    except (OSError, ValueError, IndexError):
        return None


def _fields(stat: bytes) -> list[bytes]:
    """Return the fields after the name, which may contain spaces and parentheses; see proc_pid_stat(5)."""
    return stat[stat.rindex(b")") + 1 :].split()


def _answers(pid: int) -> int | None:
    """Return 0 if a process exists, on systems without ``/proc``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if it is unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


@cache
def _start_time(pid: int) -> float:
    """Return when this process began, in seconds since 1970."""
    ticks = start_ticks(pid)
    if not ticks:
        return time.time()
    with open("/proc/stat", "rb") as file:
        boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return boot + ticks / float(os.sysconf("SC_CLK_TCK"))


def program() -> str:
    """Return the base name of the script, or ``-c``, ``-m package`` or ``interactive``."""
    arguments = sys.orig_argv[1:]
    if "-m" in arguments[:8]:
        following = arguments[arguments.index("-m") + 1 :]
        return f"-m {following[0]}" if following else "-m"
    first = sys.argv[0] if getattr(sys, "argv", None) else ""
    if hasattr(sys, "ps1") or not first:
        return "interactive"
    return first if first in ("-c", "-m") else os.path.basename(first)


def describe_process() -> ProcessInfo:
    """Return the part of a record that identifies this process."""
    from zerocopy import __version__

    pid = os.getpid()
    return ProcessInfo(
        pid=pid,
        parent=os.getppid(),
        started=_start_time(pid),
        program=program(),
        python=platform.python_version(),
        zerocopy=__version__,
    )
