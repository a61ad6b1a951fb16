"""The record of a process: its conversions, pool, shared memory and loaders, and facts from ``/proc``."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from zerocopy.monitor.conversion import ConversionRow, as_dict, limited
from zerocopy.monitor.sample import FORMAT, LoaderRecord, PoolRecord, ProcessInfo, ProcessRecord, SharedRecord

_PACKAGE = __name__.removesuffix("monitor.process_record")
#: Call sites of a record; the others are summed. 500 take 0.3 MB.
MOST_SITES = 500


# -- the parts of a record: nothing is imported that the process has not imported ------------


def no_pool() -> PoolRecord:
    """Return the record of a process without a pool."""
    why = "no pool is installed: zerocopy.install_pool()"
    return PoolRecord(kind="", why_not=why, devices={}, host={}, frameworks={}, notes=[])


def no_shared() -> SharedRecord:
    """Return the record of a process that shares no memory."""
    return SharedRecord(segments=0, segment_bytes=0, handles=0, mapped=0, mapped_bytes=0, leases=0)


def read_pool() -> PoolRecord:
    """Return the figures of this process's pool, without creating a CUDA context.

    Bytes by framework are known for pools of the kind ``"driver"`` with ``track=True``, and only for
    frameworks that call the pool: CuPy and Numba. The row ``"allocate()"`` is other code that calls the pool.
    """
    # The module lacks its functions while another thread imports it.
    installed_pool = getattr(sys.modules.get(f"{_PACKAGE}pool.install"), "installed_pool", None)
    pool = None if installed_pool is None else installed_pool()
    return no_pool() if pool is None else cast("PoolRecord", pool._record())


def read_shared() -> SharedRecord:
    """Return how much memory this process shares, and how much memory of other processes it has mapped.

    Objects of up to 64 KiB are copied when they are opened, and are then not mapped. CUDA memory counts as
    handles only.
    """
    # The module exists once the process has shared or opened an object.
    if f"{_PACKAGE}shared.segment" not in sys.modules:
        return no_shared()
    from zerocopy.shared.segment import read_figures

    return cast("SharedRecord", read_figures()._asdict())


def read_loaders() -> list[LoaderRecord]:
    """Return the figures of the loaders that exist, the oldest first.

    A loader stays in the list until the program releases it, also after its last batch. The name contains
    only the last part of a path or URL.
    """
    # The class is missing while another thread imports the module.
    if not hasattr(sys.modules.get(f"{_PACKAGE}loading.loader"), "Loader"):
        return []
    from zerocopy.loading.stats import read_records

    return cast("list[LoaderRecord]", read_records())


#: By field of the record: the name of the part in warnings, its reader and its value if that fails.
Sources = Mapping[str, tuple[str, Callable[[], Any], Callable[[], Any]]]
SOURCES: Sources = {
    "pool": ("the pool", read_pool, no_pool),
    "shared": ("shared memory", read_shared, no_shared),
    "loaders": ("loaders", read_loaders, list),
}


def make_record(
    rows: Sequence[ConversionRow],
    since: float,
    *,
    ended: bool = False,
    on_error: Callable[[str, Exception], None] | None = None,
    sources: Sources = SOURCES,
) -> ProcessRecord:
    """Return the present record of this process.

    It has the rows of `MOST_SITES` call sites, and the sums of the others. `since` is when counting began.
    `on_error` receives the name and the exception of a part that cannot be read, which is then empty.
    """
    shown, others = limited(rows, MOST_SITES)
    parts = {}
    for key, (name, read, default) in sources.items():
        try:
            parts[key] = read()
        except Exception as error:
            if on_error is None:
                raise
            on_error(name, error)
            parts[key] = default()
    return ProcessRecord(
        format=FORMAT,
        time=time.time(),
        recording_since=since,
        ended=ended,
        process=describe_process(),
        conversions=[as_dict(row) for row in shown],
        other_sites=others,
        pool=parts["pool"],
        shared=parts["shared"],
        loaders=parts["loaders"],
        rss=resident_bytes(),
    )


def describe_process() -> ProcessInfo:
    """Return the part of a record that identifies this process."""
    from zerocopy._version import __version__

    pid = os.getpid()
    return ProcessInfo(
        pid=pid,
        parent=os.getppid(),
        started=_start_time(pid),
        program=program(),
        python=platform.python_version(),
        zerocopy=__version__,
    )


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


# -- /proc ---------------------------------------------------------------------------


def stat_field(pid: int, index: int) -> bytes | None:
    """Return a field after the name, which may contain spaces and parentheses; see proc_pid_stat(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
        return stat[stat.rindex(b")") + 1 :].split()[index]
    except (OSError, ValueError, IndexError):
        return None


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the system started; None if it has ended.

    0 if the time is unknown: the system has no ``/proc``, or hides the processes of other users.
    """
    ticks = stat_field(pid, 19)
    if ticks is not None or pid <= 0:
        return None if ticks is None else int(ticks)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except OSError:
        return 0
    return 0


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended and its parent has not read its exit code."""
    return stat_field(pid, 0) == b"Z"


def parent_of(pid: int) -> int | None:
    """Return the ID of a process's parent; None if the process has ended or its parent is unknown."""
    parent = stat_field(pid, 1)
    return None if parent is None else int(parent)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if it is unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


@cache
def _start_time(pid: int) -> float:
    ticks = start_ticks(pid)
    if not ticks:
        return time.time()
    with open("/proc/stat", "rb") as file:
        boot = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
    return boot + ticks / float(os.sysconf("SC_CLK_TCK"))
