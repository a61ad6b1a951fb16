"""Samples of the monitor with chosen GPUs and processes, and an observer that makes changing ones."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import asdict, replace
from typing import Any

from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.observer import rates
from zerocopy.monitor.sample import (
    Card,
    Cards,
    LoaderRecord,
    Machine,
    PoolRecord,
    ProcessRecord,
    Sample,
    SharedRecord,
)

MIB, GIB = 1 << 20, 1 << 30
BEGIN = 1_790_000_000.0

#: A file name and texts that a page must show as text.
HOSTILE = "<script>alert(1)</script>.py"

NO_GPU = "the NVIDIA driver is not installed: nvidia-smi is missing"

ROWS = (
    ConversionRow(
        file="/home/user/project/train.py",
        line=42,
        function="train",
        source="polars.DataFrame",
        target="torch",
        calls=40,
        copied_calls=40,
        copied_bytes=40 * 37_718_912,
        seconds=0.61,
        why="it is in 11 chunks",
        fix="x.rechunk() copies it into one",
        code="chunks",
    ),
    ConversionRow(
        file="/home/user/project/data.py",
        line=7,
        function="Batches.__iter__",
        source="numpy.ndarray",
        target="torch",
        calls=1000,
        aliased_calls=1000,
        aliased_bytes=1000 * 4 * MIB,
        seconds=0.0004,
    ),
    ConversionRow(
        file=HOSTILE,
        line=3,
        function="<lambda>",
        source="pandas.DataFrame",
        target="jax",
        calls=2,
        refused_calls=2,
        seconds=0.0002,
        why="column 'a & b' has nulls, and JAX has none: $$\\frac{a}{b}$$",
        fix='zc.convert(x, "jax", nulls="mask") gives a mask with the values',
        code="nulls",
    ),
)


def card(index: str = "0", **changes: Any) -> Card:
    """Return a GPU in use."""
    made: Card = {
        "index": index,
        "uuid": f"GPU-0000000{index}",
        "name": "NVIDIA H200",
        "utilization": 87,
        "memory_utilization": 41,
        "memory_total": 141 * GIB,
        "memory_used": 60 * GIB,
        "memory_free": 81 * GIB,
        "temperature": 61,
        "power": 512.5,
        "power_limit": 700.0,
        "sm_clock": 1980,
        "memory_clock": 3201,
        "pcie_received": 3_000_000_000,
        "pcie_sent": 250_000_000,
        "nvlinks": [
            {"link": number, "received_bytes": number * GIB, "sent_bytes": (number + 1) * GIB}
            for number in range(4)
        ],
        "processes": [{"pid": 100, "memory": 40 * GIB}, {"pid": 999, "memory": 15 * GIB}],
        "lost": "",
    }
    made.update(changes)  # type: ignore[typeddict-item]
    return made


def unreadable_card(index: str = "0") -> Card:
    """Return a GPU whose fields are all "N/A"."""
    names = (
        *("utilization", "memory_utilization", "memory_total", "memory_used", "memory_free", "temperature"),
        *("power", "power_limit", "sm_clock", "memory_clock", "pcie_received", "pcie_sent", "processes"),
    )
    return card(index, nvlinks=[], **dict.fromkeys(names))


def lost_card(index: str = "0") -> Card:
    """Return a GPU that stopped answering."""
    return Card(**{**unreadable_card(index), "lost": "the GPU is lost: it has fallen off the bus"})


def mig_card(index: str = "0:1") -> Card:
    """Return a MIG device, whose utilization NVML does not count."""
    return card(
        index, name="NVIDIA H200 MIG 1g.18gb", utilization=None, memory_utilization=None,
        memory_total=18 * GIB, memory_used=4 * GIB, memory_free=14 * GIB, nvlinks=[],
        pcie_received=None, pcie_sent=None,
    )  # fmt: skip


def cards(*several: Card) -> Cards:
    """Return the GPUs of a machine; without arguments, a machine that has none."""
    return {"driver": "580.65" if several else "", "why_not": "" if several else NO_GPU, "cards": [*several]}


def machine() -> Machine:
    """Return a machine with 4 cores."""
    return {
        "cpu_count": 4,
        "cpu_percent": [90.0, 35.0, 10.0, 0.0],
        "memory_total": 32 * GIB,
        "memory_available": 20 * GIB,
        "swap_used": 0,
        "disk_read": 5 * GIB,
        "disk_written": 2 * GIB,
        "network_received": GIB,
        "network_sent": GIB,
        "shared_memory_total": 16 * GIB,
        "shared_memory_free": 15 * GIB,
    }


def pool(**changes: Any) -> PoolRecord:
    """Return a pool of one GPU with host modes and two frameworks."""
    made: PoolRecord = {
        "kind": "async",
        "why_not": "",
        "devices": {
            "0": {
                "in_use": 20 * GIB, "reserved": 32 * GIB, "peak": 30 * GIB, "limit": 100 * GIB,
                "largest_free": 6 * GIB, "fragmentation": 0.5,
            }
        },
        "host": {"recycle": {"in_use": GIB, "kept": 256 * MIB, "peak": 2 * GIB}},
        "frameworks": {
            "torch": {"status": "attached", "in_use": 12 * GIB, "detail": "its allocator calls the pool"},
            "cupy": {"status": "attached", "in_use": 8 * GIB, "detail": ""},
        },
        "notes": [],
    }  # fmt: skip
    made.update(changes)  # type: ignore[typeddict-item]
    return made


def no_pool() -> PoolRecord:
    """Return the record of a process without a pool."""
    why = "no pool is installed: zerocopy.install_pool() installs one"
    return {"kind": "", "why_not": why, "devices": {}, "host": {}, "frameworks": {}, "notes": []}


def shared(**changes: int) -> SharedRecord:
    """Return memory shared with other processes."""
    made: SharedRecord = {
        "segments": 2, "segment_bytes": 128 * MIB, "handles": 5, "mapped": 1, "mapped_bytes": 64 * MIB,
        "leases": 3,
    }  # fmt: skip
    made.update(changes)  # type: ignore[typeddict-item]
    return made


def loader(**changes: Any) -> LoaderRecord:
    """Return a loader whose consumer waits."""
    made: LoaderRecord = {
        "name": "flights.parquet -> torch", "batches": 120, "rows": 983_040, "bytes": 112 * MIB,
        "depth": 1, "limit": 4, "reader_wait": 0.2, "consumer_wait": 1.4,
        "bottleneck": "the consumer waits for the reader", "running": True,
    }  # fmt: skip
    made.update(changes)  # type: ignore[typeddict-item]
    return made


def process(pid: int = 100, time: float = BEGIN, **changes: Any) -> ProcessRecord:
    """Return the record of one process."""
    made: ProcessRecord = {
        "format": 1,
        "time": time,
        "recording_since": BEGIN - 60,
        "ended": False,
        "process": {
            "pid": pid, "parent": 1, "started": BEGIN - 61, "program": "train.py", "python": "3.11.7",
            "zerocopy": "0.1.0",
        },
        "conversions": [asdict(row) for row in ROWS],
        "other_sites": 0,
        "pool": pool(),
        "shared": shared(),
        "loaders": [loader()],
        "rss": 3 * GIB,
    }  # fmt: skip
    made.update(changes)  # type: ignore[typeddict-item]
    return made


def sample(*processes: ProcessRecord, gpus: Cards | None = None, time: float = BEGIN) -> Sample:
    """Return a sample; by default of one process on a machine without a GPU."""
    return {
        "time": time,
        "processes": [*processes] if processes else [process(time=time)],
        "cards": cards() if gpus is None else gpus,
        "machine": machine(),
        "problems": [],
        "order": "bytes",
        "rates": None,
    }


def empty_sample(time: float = BEGIN) -> Sample:
    """Return a sample of a machine on which no process is monitored."""
    return {
        "time": time,
        "processes": [],
        "cards": cards(),
        "machine": machine(),
        "problems": [],
        "order": "bytes",
        "rates": None,
    }


#: Samples by name, for tests of everything that displays one.
SAMPLES: dict[str, Sample] = {
    "no GPU": sample(),
    "no process": empty_sample(),
    "1 GPU": sample(gpus=cards(card())),
    "2 GPUs": sample(process(100), process(200, pool=no_pool(), loaders=[]), gpus=cards(card(), card("1"))),
    "MIG": sample(gpus=cards(mig_card("0:0"), mig_card("0:1"))),
    "N/A": sample(gpus=cards(unreadable_card())),
    "lost": sample(gpus=cards(card(), lost_card("1"))),
    "ended": sample(process(ended=True)),
    "nothing recorded": sample(process(conversions=[], pool=no_pool(), loaders=[])),
}


class ChangingObserver:
    """Samples in which one process copies 36 MiB a second, and later aliases.

    It has the methods of `zerocopy.monitor.observer.Observer` that readers call.
    """

    def __init__(self, gpus: Cards | None = None, aliases_after: int = 1_000_000) -> None:
        self.history: deque[Sample] = deque(maxlen=300)
        self.newest: Sample | None = None
        self._gpus = cards() if gpus is None else gpus
        self._ticks, self._aliases_after = 0, aliases_after

    def read(self) -> Sample:
        """Make the sample of the next second."""
        self._ticks += 1
        copied = min(self._ticks, self._aliases_after)
        aliased = self._ticks - copied
        first = replace(
            ROWS[0], calls=self._ticks, copied_calls=copied, copied_bytes=copied * 37_718_912,
            aliased_calls=aliased, aliased_bytes=aliased * 37_718_912, seconds=0.015 * copied,
        )  # fmt: skip
        now = BEGIN + self._ticks
        record = process(time=now, conversions=[asdict(first), *map(asdict, ROWS[1:])])
        record["pool"]["frameworks"]["torch"]["in_use"] = (12 + self._ticks % 5) * GIB
        made = sample(record, gpus=copy.deepcopy(self._gpus), time=now)
        for gpu in made["cards"]["cards"]:
            gpu["utilization"] = None if gpu["utilization"] is None else 50 + self._ticks % 50
            for link in gpu["nvlinks"]:
                link["received_bytes"] = (link["received_bytes"] or 0) + self._ticks * GIB
        if self.newest is not None:
            made["rates"] = rates(self.newest, made)
        self.history.append(made)
        self.newest = made
        return made
