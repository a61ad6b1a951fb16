"""``Observer``: reads all monitored processes, the GPUs and the machine; rates between samples."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zerocopy.errors import FrameworkNotInstalledError, ZeroCopyError
from zerocopy.monitor.conversion import as_dict, check_order, rows_of, sort, sum_record, sum_rows, summarized
from zerocopy.monitor.process_record import parent_of
from zerocopy.monitor.run_directory import SHOWN, RunFiles, default_directory
from zerocopy.monitor.sample import Card, Cards, Machine, ProcessRecord, Rates, Sample
from zerocopy.monitor.sampling import Ring
from zerocopy.shared.room import cgroup_limits

#: Seconds between the two samples of the rates: processes write their records once a second.
WINDOW = 2.0


class Observer:
    """The processes of one run directory, the GPUs and the machine.

    Parameters
    ----------
    directory : path, optional
        The run directory. Default: that of this user.
    pid : int, optional
        Only this process and its descendants.
    keep : float
        Seconds of samples in `history`.
    shown : float
        Seconds for which a process that has ended is in the samples, at most 3600.
    order : {"bytes", "time"}
        The order of conversions in the samples: most copied bytes first, or the longest time first.
    cards, machine : callable, optional
        Return the GPUs and the machine. Default: read with NVML and psutil.

    Examples
    --------
    >>> observer = Observer("/nonexistent/directory")
    >>> sample = observer.read()
    >>> sample["processes"], sample["problems"][0]
    ([], '/nonexistent/directory does not exist: no process was monitored')
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        pid: int | None = None,
        keep: float = 300.0,
        *,
        shown: float = SHOWN,
        order: str = "bytes",
        cards: Callable[[], Cards] | None = None,
        machine: Callable[[], Machine] | None = None,
    ) -> None:
        self.directory: str = default_directory() if directory is None else os.path.abspath(directory)
        self.pid = pid
        self.order: str = check_order(order)
        #: The samples of the last seconds. Each has one row of conversions a process, with the sums.
        self.history: Ring[Sample] = Ring(keep)
        #: The last sample, with the call sites; None before the first.
        self.newest: Sample | None = None
        self._files = RunFiles(self.directory, shown)
        self._cards, self._machine = cards, machine
        self._descendants: set[tuple[int, float]] = set()
        self._clock = time.time

    def read(self) -> Sample:
        """Return the present sample, and append it to `history`; raises no exceptions."""
        now = self._clock()
        records, problems = self._files.read(now)
        if self.pid is not None:
            records = self._of_family(records)
        if self.order != "bytes":  # the order of the files
            for record in records:
                record["conversions"] = list(map(as_dict, sort(rows_of([record]), self.order)))
        cards, why_not = self._read_part(self._read_cards, no_cards)
        if why_not:
            cards["why_not"] = why_not
            problems.append(f"GPUs: {why_not}")
        machine, why_not = self._read_part(self._read_machine, no_machine)
        problems += [f"the machine: {why_not}"] * bool(why_not)
        sample = Sample(
            time=now, processes=records, cards=cards, machine=machine, problems=problems, order=self.order,
            rates=None,
        )  # fmt: skip
        before = self.history.at(now - WINDOW)
        if before is not None:
            sample["rates"] = rates(before, sample)
        self.history.add(now, {**sample, "processes": [summarized(record) for record in records]})
        self.newest = sample
        return sample

    def _read_cards(self) -> Cards:
        if self._cards is None:
            from zerocopy.monitor.cards import CardReader

            self._cards = CardReader().read
        return self._cards()

    def _read_machine(self) -> Machine:
        if self._machine is None:
            self._machine = MachineReader().read
        return self._machine()

    def _read_part(self, read: Callable[[], Any], default: Callable[[], Any]) -> tuple[Any, str]:
        """Return a part of the sample and "", or a default and why it cannot be read, in one line."""
        try:
            return read(), ""
        except Exception as error:  # noqa: BLE001 - of a driver, or a library that is missing
            remedy = getattr(error, "remedy", "")
            why = error.why if isinstance(error, ZeroCopyError) else str(error)
            return default(), f"{why}; to fix: {remedy}" if remedy else why

    def _of_family(self, records: list[ProcessRecord]) -> list[ProcessRecord]:
        """Return the records of `pid` and its descendants, including those whose parents have ended."""
        parents = {record["process"]["pid"]: record["process"]["parent"] for record in records}
        family = []
        for record in records:
            pid, identity = record["process"]["pid"], (record["process"]["pid"], record["process"]["started"])
            if identity in self._descendants or self._descends(pid, parents):
                self._descendants.add(identity)
                family.append(record)
        return family

    def _descends(self, pid: int, parents: dict[int, int]) -> bool:
        seen: set[int] = set()
        current: int | None = pid
        while current and current not in seen:
            if current == self.pid:
                return True
            seen.add(current)
            current = parents.get(current) or parent_of(current)
        return False


def require(module: str, purpose: str) -> Any:
    """Import and return a module of the extra ``monitor``; errors name the `purpose`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        absent = error.name in (package, module)
        why = f"{package} is not installed" if absent else f"importing it failed: {error}"
        raise FrameworkNotInstalledError(purpose, why, f"pip install {package.replace('_', '-')}") from error


def no_cards() -> Cards:
    """Return the record of a machine without GPUs."""
    return Cards(driver="", why_not="", cards=[])


def no_machine() -> Machine:
    """Return the record of a machine that cannot be read."""
    unknown = dict.fromkeys(Machine.__annotations__)
    known = {"cpu_count": os.cpu_count() or 1, "cpu_percent": []}
    zeros = dict.fromkeys(("memory_total", "memory_available", "swap_used"), 0)
    return Machine(**{**unknown, **known, **zeros})  # type: ignore[typeddict-item]


# -- rates ---------------------------------------------------------------------------


_COUNTED = ("calls", "refused_calls", "aliased_bytes", "copied_bytes")


def rates(before: Sample, after: Sample) -> Rates:
    """Return the rates between two samples; 0 if the later sample is not later.

    A process writes its record at most once a second, so samples should be at least two seconds
    apart; `Observer.read` selects them. The counts of a process are divided by the time between
    its own records. A counter that is smaller than before was reset; its rate is 0.
    """
    seconds = max(after["time"] - before["time"], 0.0)
    earlier = {_identity(record): record for record in before["processes"]}
    processes = {
        record["process"]["pid"]: _conversions(earlier.get(_identity(record)), record, before["time"])
        for record in after["processes"]
    }
    traffic = {
        name: _rate(before["machine"][name], after["machine"][name], seconds)  # type: ignore[literal-required]
        for name in ("disk_read", "disk_written", "network_received", "network_sent")
    }
    cards = {_card_identity(card): card for card in before["cards"]["cards"]}
    links = {
        card["index"]: _links(cards.get(_card_identity(card)), card, seconds)
        for card in after["cards"]["cards"]
    }
    result: Rates = Rates(
        seconds=seconds,
        conversions={name: sum(each[name] for each in processes.values()) for name in _COUNTED},
        processes=processes,
        nvlinks={index: rows for index, rows in links.items() if rows},
        **traffic,  # type: ignore[typeddict-item]
    )
    return result


def _identity(record: ProcessRecord) -> tuple[int, float]:
    """Return the key of a process and of the start of its counts."""
    return record["process"]["pid"], record["recording_since"]


def _card_identity(card: Card) -> str:
    return card["uuid"] or card["index"]


def _conversions(before: ProcessRecord | None, after: ProcessRecord, since: float) -> dict[str, float]:
    """Return one process's rates; a new process has counted since it began to record."""
    if before is None and after["recording_since"] < since:
        return dict.fromkeys(_COUNTED, 0.0)
    if before is not None:
        seconds = after["time"] - before["time"]
    else:  # a new process's first record may be milliseconds old
        seconds = max(after["time"] - after["recording_since"], 1.0)
    old, new = sum_rows([]) if before is None else sum_record(before), sum_record(after)
    return {name: _rate(getattr(old, name), getattr(new, name), seconds) or 0.0 for name in _COUNTED}


def _links(before: Card | None, after: Card, seconds: float) -> dict[int, dict[str, float | None]]:
    earlier = {link["link"]: link for link in before["nvlinks"]} if before is not None else {}
    return {
        link["link"]: {
            name: _rate(earlier[link["link"]][name], link[name], seconds)  # type: ignore[literal-required]
            for name in ("received_bytes", "sent_bytes")
        }
        for link in after["nvlinks"]
        if link["link"] in earlier
    }


def _rate(before: int | None, after: int | None, seconds: float) -> float | None:
    """Return the growth per second; 0 for a counter that was reset, None for an unknown one."""
    if before is None or after is None:
        return None
    return max(after - before, 0) / seconds if seconds > 0 else 0.0


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
    except Exception:  # noqa: BLE001 - psutil parses files that differ between systems
        return None
