"""``MachineReader``: cores, memory, disks and networks, read through psutil."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zerocopy.monitor.errors import require
from zerocopy.monitor.sample import Machine
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.shared.room import cgroup_limits


class MachineReader:
    """Reads the figures of the machine; a cgroup's limit replaces the machine's memory.

    Memory is bounded by each ``memory.max`` of cgroups version 2, or ``memory.limit_in_bytes`` of
    version 1, from this process's cgroup up to the root. Cores, swap, disks and networks are those of
    the machine, or of the container's network namespace.
    """

    def __init__(
        self,
        cgroups: Path = Path("/sys/fs/cgroup"),
        proc: Path = Path("/proc"),
        shm: Path = Path("/dev/shm"),
    ) -> None:
        self._psutil = require("psutil", "reading the machine")
        self._cgroups, self._proc, self._shm = cgroups, proc, shm
        self._psutil.cpu_percent(percpu=True)  # read() returns the use since this call

    def read(self) -> Machine:
        """Return the figures; one that the system does not have is None."""
        psutil = self._psutil
        memory = psutil.virtual_memory()
        limits = list(cgroup_limits(self._cgroups, self._proc))
        disk = _optional(psutil.disk_io_counters)
        network = _optional(psutil.net_io_counters)
        shm = _optional(lambda: shutil.disk_usage(self._shm))
        return Machine(
            cpu_count=psutil.cpu_count() or 1,
            cpu_percent=_optional(lambda: list(map(float, psutil.cpu_percent(percpu=True)))) or [],
            memory_total=min([memory.total, *(limit.total for limit in limits)]),
            memory_available=min([memory.available, *(limit.free for limit in limits)]),
            swap_used=getattr(_optional(psutil.swap_memory), "used", 0),
            disk_read=getattr(disk, "read_bytes", None),
            disk_written=getattr(disk, "write_bytes", None),
            network_received=getattr(network, "bytes_recv", None),
            network_sent=getattr(network, "bytes_sent", None),
            shared_memory_total=getattr(shm, "total", None),
            shared_memory_free=getattr(shm, "free", None),
        )


def _optional(read: Callable[[], Any]) -> Any:
    """Return the figures, or None where the system hides them, as containers do with /proc/diskstats."""
    try:
        return read()
    except BaseException as error:  # psutil parses files that differ between systems
        if not is_error(error):
            raise
        return None
