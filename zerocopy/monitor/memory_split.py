"""``memory_split``: divides the memory of a GPU among pools, monitored processes and other processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zerocopy.monitor.sample import Card, Cards, PoolDevice, ProcessRecord

#: Bytes that a GPU without processes may use, such as those of a display.
_IDLE = 64 << 20


#: The parts that are shown.
PARTS = ("pool_in_use", "pool_free", "process_outside_pool", "other_processes", "free")


@dataclass(frozen=True, slots=True)
class MemorySplit:
    """The present memory of one GPU, in bytes. A figure is None if it is unknown: see `why_not`."""

    pool_in_use: int | None  # allocated from the pools of the monitored processes
    pool_free: int | None  # taken from the device by these pools, and free
    #: The rest of these processes' memory, such as CUDA contexts, libraries' workspaces, and frameworks that
    #: do not use the pool.
    process_outside_pool: int | None
    other_processes: int | None  # of processes that are not monitored
    free: int | None
    reserved: int | None = None  # memory that the driver keeps for itself
    why_not: tuple[str, ...] = ()  # one sentence for each figure that is unknown

    @property
    def total(self) -> int | None:
        """The sum of all parts: the GPU's memory; None if a part is unknown."""
        return sum_known([*(getattr(self, name) for name in PARTS), self.reserved])

    def shown(self, total: int) -> dict[str, int | None]:
        """Return `PARTS` and the rest of the GPU's memory: that of unknown holders and of the driver."""
        parts = {name: getattr(self, name) for name in PARTS}
        rest = total - sum(size or 0 for size in parts.values())
        return {**parts, "not_divided": max(rest, 0)}


def memory_split(card: Card, processes: Iterable[ProcessRecord], cards: Cards | None = None) -> MemorySplit:
    """Divide the memory of a GPU among the pools, the monitored processes and other processes.

    NVML counts by process, and the records count by CUDA's index of the device. A record has no UUIDs,
    so a device of the record is attributed to this GPU only if

    - the process sees one GPU, and NVML lists the process on this GPU and on no other; or
    - the process sees as many GPUs as the machine has. CUDA's index is then assumed to equal NVML's. This is
      wrong if the machine has different GPUs and CUDA orders them by speed (``CUDA_DEVICE_ORDER``), or
      if ``CUDA_VISIBLE_DEVICES`` lists all of them in another order.

    Processes that have ended are ignored. `cards` are all GPUs of the same sample; without them, `card` is
    the only one. The figures are of slightly different moments. A small negative difference is reported as 0.
    """
    listed = [card] if cards is None else cards["cards"]
    running = [record for record in processes if not record["ended"]]
    problems: list[str] = []
    pools = _pools(card, running, listed, problems)
    own = _memory_of(card, {record["process"]["pid"] for record in running}, set(pools or ()), problems)
    in_use = kept = outside = None
    if pools is not None:
        in_use, kept = (
            sum_known(pool["in_use"] for pool in pools.values()),
            sum_known(map(_free, pools.values())),
        )
    if own is not None and in_use is not None and kept is not None:
        outside = own - in_use - kept
    used, free, total = card["memory_used"], card["memory_free"], card["memory_total"]
    if used is None or free is None or total is None:
        problems.append("NVML has no figures of this GPU's memory")
    return MemorySplit(
        pool_in_use=in_use,
        pool_free=kept,
        process_outside_pool=outside,
        other_processes=None if own is None or used is None else max(used - own, 0),
        free=free,
        reserved=None if used is None or free is None or total is None else max(total - used - free, 0),
        why_not=tuple(problems),
    )


def _pools(
    card: Card, running: list[ProcessRecord], listed: list[Card], problems: list[str]
) -> dict[int, PoolDevice] | None:
    """Return the pools on this GPU by PID; None if one cannot be attributed to it."""
    memory = _by_pid(card)
    pools: dict[int, PoolDevice] = {}
    for record in running:
        pid = record["process"]["pid"]
        try:
            pool = _pool(record, card, listed)
        except _UnknownGPUError as error:
            problems.append(str(error))
            return None
        if pool is None:
            continue
        taken, used = pool["reserved"], memory.get(pid)
        if taken is None:
            problems.append(f"the pool of PID {pid} does not count its free memory")
        elif used is not None and max(taken, pool["in_use"]) > used:
            problems.append(
                f"the pool of PID {pid} has more memory than NVML counts for the process on this GPU: it is "
                "managed memory, or the pool of another GPU"
            )
            return None
        pools[pid] = pool
    return pools


class _UnknownGPUError(Exception):
    """A record does not identify the GPU of its device."""


def _pool(record: ProcessRecord, card: Card, listed: list[Card]) -> PoolDevice | None:
    """Return the pool of a process on this GPU; None if it has none there."""
    devices, pid = record["pool"]["devices"], record["process"]["pid"]
    if not any(device["in_use"] or device["reserved"] for device in devices.values()):
        return None
    places = [other["index"] for other in listed if pid in _by_pid(other)]
    if len(devices) == 1 and len(places) == 1:
        return next(iter(devices.values())) if places == [card["index"]] else None
    in_mig_mode = any(":" in other["index"] for other in listed)
    if in_mig_mode or len(devices) != len(listed):
        kind = "GPUs and MIG devices" if in_mig_mode else "GPUs"
        raise _UnknownGPUError(
            f"PID {pid} has a pool on {len(devices)} of {len(listed)} {kind}, and its record does not name "
            "them: CUDA_VISIBLE_DEVICES may select them"
        )
    return devices.get(card["index"])


def _memory_of(card: Card, pids: set[int], with_pool: set[int], problems: list[str]) -> int | None:
    """Return the memory of the monitored processes on this GPU; None if NVML does not count it."""
    if not pids:
        return 0
    memory, used = _by_pid(card), card["memory_used"] or 0
    hidden = not memory and used > _IDLE
    if card["processes"] is None or hidden or with_pool - set(memory):
        # NVML in a container lists no processes, or PIDs of the host, as nvidia-smi does.
        problems.append(
            "NVML does not list the monitored processes on this GPU, as in a container: run the monitor and "
            "the program in the host's PID namespace"
        )
        return None
    own = sum_known(memory[pid] for pid in pids if pid in memory)
    if own is None:
        problems.append("NVML does not count the memory of each process on this GPU")
    return own


def _by_pid(card: Card) -> dict[int, int | None]:
    return {one["pid"]: one["memory"] for one in card["processes"] or ()}


def _free(pool: PoolDevice) -> int | None:
    return None if pool["reserved"] is None else max(pool["reserved"] - pool["in_use"], 0)


def sum_known(values: Iterable[int | None]) -> int | None:
    """Return the sum; None if a value is unknown."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
