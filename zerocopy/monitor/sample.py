"""The data of the monitor, as JSON types: one process, one GPU, the machine, and a sample of all.

Bytes, seconds and counts are totals since the process began to record, unless the text says "now";
readers compute rates. None means that the value cannot be read, as "N/A" in nvidia-smi.
"""

from __future__ import annotations

from typing import Any, TypedDict

#: The version of the format of `ProcessRecord`.
FORMAT = 1


class ProcessInfo(TypedDict):
    """The process that a record describes."""

    pid: int
    parent: int
    started: float  # when the process began, in seconds since 1970
    program: str  # the base name of the script, or "-c", "-m package" or "interactive"
    python: str  # versions
    zerocopy: str


class PoolDevice(TypedDict):
    """The pool of one GPU."""

    in_use: int  # bytes, now
    reserved: int | None  # bytes taken from the device, in use or free, now
    peak: int
    limit: int | None
    largest_free: int | None  # bytes of the largest free block, now
    fragmentation: float | None  # 1 - largest_free / free; None if the kind of pool does not report it


class HostMode(TypedDict):
    """One mode of host memory, such as "aligned" or "recycle"."""

    in_use: int | None  # bytes, now; None if the mode does not count
    kept: int | None  # bytes kept for the next allocation, now
    peak: int | None


class PoolFramework(TypedDict):
    """The memory that one framework holds in the pool."""

    status: str  # of zerocopy.pool.hook.Status
    in_use: int | None  # bytes on all devices, now; None if the pool does not count by framework
    detail: str


class PoolRecord(TypedDict):
    """The installed pool; without one, `kind` is "" and `why_not` has the reason."""

    kind: str
    why_not: str
    devices: dict[str, PoolDevice]  # by index
    host: dict[str, HostMode]
    frameworks: dict[str, PoolFramework]
    notes: list[str]


class SharedRecord(TypedDict):
    """Memory shared between processes, now."""

    segments: int  # created by this process and not yet removed, including those kept for reuse
    segment_bytes: int
    handles: int  # objects of this process that others can open
    mapped: int  # segments of other processes that are mapped here
    mapped_bytes: int
    leases: int  # locks of this process on segments: one for each mapping that a result keeps alive


class LoaderRecord(TypedDict):
    """One loader, summed over its iterators."""

    name: str  # the source and the target: "flights.parquet -> torch"
    batches: int
    rows: int
    bytes: int  # of the batches
    depth: int  # batches or groups that are ready, now
    limit: int  # largest depth that `prefetch` permits
    reader_wait: float  # seconds in which the reader waited for the consumer
    consumer_wait: float  # seconds in which the consumer waited for the reader
    bottleneck: str  # a sentence that names the slower side
    running: bool


class ProcessRecord(TypedDict):
    """Everything that one monitored process writes to its file in the run directory."""

    format: int
    time: float  # of this record, in seconds since 1970
    recording_since: float
    ended: bool  # whether the process wrote its last record
    process: ProcessInfo
    conversions: list[dict[str, Any]]  # dataclasses.asdict of ConversionRow, most copied bytes first
    other_sites: int  # call sites beyond the limit, whose counts are in one row without a place
    pool: PoolRecord
    shared: SharedRecord
    loaders: list[LoaderRecord]
    rss: int  # bytes of resident memory, now


class NVLink(TypedDict):
    """One active link."""

    link: int
    received_bytes: int | None
    sent_bytes: int | None


class CardProcess(TypedDict):
    """A process that NVML lists on a GPU."""

    pid: int
    memory: int | None  # bytes, now


class Card(TypedDict):
    """One GPU, or one MIG device of it."""

    index: str  # "0", or "0:1" for the second MIG device of GPU 0
    uuid: str
    name: str
    utilization: int | None  # percent of the time in which a kernel ran
    memory_utilization: int | None  # percent of the time in which memory was read or written
    memory_total: int | None  # bytes
    memory_used: int | None
    memory_free: int | None
    temperature: int | None  # degrees Celsius
    power: float | None  # watts
    power_limit: float | None
    sm_clock: int | None  # MHz
    memory_clock: int | None
    pcie_received: int | None  # bytes per second, over the driver's last 20 ms
    pcie_sent: int | None
    nvlinks: list[NVLink]
    processes: list[CardProcess] | None
    lost: str  # why the GPU stopped answering; "" if it answers


class Cards(TypedDict):
    """All GPUs of the machine."""

    driver: str  # version, or ""
    why_not: str  # why there are none: no driver, no library, no permission
    cards: list[Card]


class Machine(TypedDict):
    """The machine, or the container where its limits are known."""

    cpu_count: int
    cpu_percent: list[float]  # of each core, since the previous sample
    memory_total: int
    memory_available: int  # now
    swap_used: int  # now
    disk_read: int | None  # bytes since the machine started
    disk_written: int | None
    network_received: int | None
    network_sent: int | None
    shared_memory_total: int | None  # bytes of /dev/shm
    shared_memory_free: int | None


class Rates(TypedDict):
    """Rates per second. None means that at least one of the samples lacks the value."""

    seconds: float  # between the samples
    conversions: dict[str, float]  # of all processes: calls, refused_calls, aliased_bytes, copied_bytes
    processes: dict[int, dict[str, float]]  # the same by process ID
    disk_read: float | None
    disk_written: float | None
    network_received: float | None
    network_sent: float | None
    #: By the card's index, then by link: received_bytes and sent_bytes.
    nvlinks: dict[str, dict[int, dict[str, float | None]]]


class Sample(TypedDict):
    """One moment of all monitored processes, the GPUs and the machine."""

    time: float  # seconds since 1970
    processes: list[ProcessRecord]
    cards: Cards
    machine: Machine
    problems: list[str]  # failed reads, with their reasons
    order: str  # of conversions: "bytes" or "time"
    rates: Rates | None  # over the last two seconds; None in the first sample
