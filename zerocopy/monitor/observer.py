"""``Observer``: reads all monitored processes, the GPUs and the machine, for a reader that displays them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from zerocopy.errors import ZeroCopyError
from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.process_info import parent_of
from zerocopy.monitor.rates import Rates, rates
from zerocopy.monitor.ring import Ring
from zerocopy.monitor.run_directory import default_directory
from zerocopy.monitor.run_files import SHOWN, RunFiles
from zerocopy.monitor.sample import Cards, Machine, ProcessRecord, Sample
from zerocopy.monitor.totals import as_dict, check_order, sort, summarized
from zerocopy.protocols.exporter_errors import is_error

#: Seconds between the samples of `Observer.rates`: processes write their records once a second.
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
        self.directory = default_directory() if directory is None else os.path.abspath(os.fspath(directory))
        self.pid, self.order = pid, check_order(order)
        #: The samples of the last seconds. Each has one row of conversions a process, with the sums.
        self.history: Ring[Sample] = Ring(keep)
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
                rows = sort((ConversionRow(**row) for row in record["conversions"]), self.order)
                record["conversions"] = list(map(as_dict, rows))
        cards, machine = no_cards(), no_machine()
        try:
            self._cards = self._cards or _cards_reader()
            cards = self._cards()
        except BaseException as error:  # of a driver, or a library that is missing
            if not is_error(error):
                raise
            cards["why_not"] = _one_line("", error).removeprefix(": ")
            problems.append(_one_line("GPUs", error))
        try:
            self._machine = self._machine or _machine_reader()
            machine = self._machine()
        except BaseException as error:  # as above
            if not is_error(error):
                raise
            problems.append(_one_line("the machine", error))
        sample = Sample(
            time=now, processes=records, cards=cards, machine=machine, problems=problems, order=self.order
        )
        self.history.add(now, {**sample, "processes": [summarized(record) for record in records]})
        return sample

    def rates(self, seconds: float = WINDOW) -> Rates | None:
        """Return the rates over the last `seconds`; None before the second sample."""
        newest = self.history.newest
        if newest is None or len(self.history) < 2:
            return None
        before = self.history.at(newest["time"] - seconds)
        return rates(before or newest, newest)

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
        """Whether a process is `pid` or descends from it."""
        seen: set[int] = set()
        current: int | None = pid
        while current and current not in seen:
            if current == self.pid:
                return True
            seen.add(current)
            current = parents.get(current) or parent_of(current)
        return False


def _cards_reader() -> Callable[[], Cards]:
    from zerocopy.monitor.sources.cards import CardReader

    return CardReader().read


def _machine_reader() -> Callable[[], Machine]:
    from zerocopy.monitor.sources.machine import MachineReader

    return MachineReader().read


def no_cards() -> Cards:
    """Return the record of a machine without GPUs."""
    return Cards(driver="", why_not="", cards=[])


def no_machine() -> Machine:
    """Return the record of a machine that cannot be read."""
    return Machine(
        cpu_count=os.cpu_count() or 1,
        cpu_percent=[],
        memory_total=0,
        memory_available=0,
        swap_used=0,
        disk_read=None,
        disk_written=None,
        network_received=None,
        network_sent=None,
        shared_memory_total=None,
        shared_memory_free=None,
    )


def _one_line(what: str, error: Exception) -> str:
    """Return an error as a problem of a sample, which is shown in one line."""
    if isinstance(error, ZeroCopyError):
        return f"{what}: {error.why}; to fix: {error.remedy}" if error.remedy else f"{what}: {error.why}"
    return f"{what}: {error}"
