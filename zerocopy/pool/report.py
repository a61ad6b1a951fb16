"""`Report`: the state of each framework's attachment, as text and as data; and the monitor's figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from zerocopy.formatting import format_bytes, html, printable
from zerocopy.pool.hook import Attachment, join_names
from zerocopy.pool.host import MODES, HostFigures, Mode
from zerocopy.pool.memory import DeviceMemory
from zerocopy.pool.settings import KINDS

#: The requester of `Pool.allocate`, which is not a framework.
OWN_REQUESTER = "allocate()"


@dataclass(frozen=True, repr=False)
class Report:
    """State of an installed pool, from `Pool.report`.

    Iterate over it for the rows, or index it by a framework's name: ``report["cupy"]``.

    Attributes
    ----------
    kind : str
        As `Pool.kind`.
    options : str
        The options, in the form of ``ZEROCOPY_POOL``.
    devices : list of str
        One line each: the GPU, its limit and where that comes from, memory in use.
    host : list of str
        One line for each mode of host memory.
    frameworks : list of Attachment
        One row for each framework that can use a pool, in order of attachment.
    notes : list of str
        Remarks: other processes on the GPU, frameworks that are not tracked.

    Examples
    --------
    >>> from zerocopy.pool.hook import Status
    >>> report = Report("none", "auto", ["none: no driver"], [], [Attachment("mine", Status.ABSENT)])
    >>> print(report)
    pool: none
    device: none: no driver
    host: off
      mine  absent
    >>> report["mine"].served, report.as_dict()["frameworks"][0]["status"]
    (False, 'absent')
    """

    kind: str
    options: str
    devices: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)
    frameworks: list[Attachment] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, pool: DeviceMemory, host: Sequence[Mode]) -> Report:
        """Read a pool and its modes of host memory."""
        rows = pool.attachments.current()
        reason = pool.missing_device
        devices = [_device(pool, index) for index in pool.devices]
        return cls(
            pool.kind,
            str(pool.settings),
            devices if reason is None else [f"none: {reason.why}"],
            [mode.describe() for mode in host],
            rows,
            _notes(pool, host=bool(host)),
        )

    def __getitem__(self, framework: str) -> Attachment:
        """Return one framework's row."""
        for row in self.frameworks:
            if row.framework == framework:
                return row
        raise KeyError(f"{framework!r}: there are {', '.join(row.framework for row in self.frameworks)}")

    def __iter__(self) -> Iterator[Attachment]:
        """Return the rows."""
        return iter(self.frameworks)

    def __repr__(self) -> str:
        """Return the text that ``print`` shows, for notebooks."""
        return str(self)

    def _repr_html_(self) -> str:
        settings = [("device", line) for line in self.devices]
        settings += [("host", line) for line in self.host or ["off"]]
        settings += [("note", note) for note in self.notes]
        rows = [
            (o.framework, str(o.status), o.detail + (f"\nfix: {o.remedy}" if o.remedy else ""))
            for o in self.frameworks
        ]
        titles = ("framework", "status", "detail")
        return html.table(f"pool: {self.kind}", settings) + html.table("Frameworks", rows, titles)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        rows = [{**asdict(row), "status": str(row.status)} for row in self.frameworks]
        return {**asdict(self), "frameworks": rows}

    def __str__(self) -> str:
        lines = [f"pool: {self.kind}" + (f", {KINDS[self.kind]}" if self.kind in KINDS else "")]
        lines += [f"device: {line}" for line in self.devices]
        lines += [f"host: {line}" for line in self.host or ["off"]]
        name_width = max((len(o.framework) for o in self.frameworks), default=0)
        status_width = max((len(o.status) for o in self.frameworks), default=0)
        for o in self.frameworks:
            lines.append(f"  {o.framework:<{name_width}}  {o.status:<{status_width}}  {o.detail}".rstrip())
            if o.remedy:
                lines.append(f"  {'':<{name_width}}  {'':<{status_width}}  fix: {o.remedy}")
        lines += [f"note: {note}" for note in self.notes]
        return printable("\n".join(lines), "\n")


def _notes(pool: DeviceMemory, *, host: bool) -> list[str]:
    notes, pooled = list(pool.notes), pool.missing_device is None
    hooks = pool.attachments.hooks
    if not pool.closed and not pool.uses_rmm:  # RMM's pools have no release threshold
        writers = [hook.threshold_writer for hook in hooks if hook.threshold_writer]
        for device in pool.pools:
            notes += pool.pools[device].notes(writers)
    if pool.tracked and not pool.uses_rmm and pooled:
        tracked = join_names([*(hook.display_name for hook in hooks if hook.calls_pool), "allocate()"])
        others = join_names(hook.display_name for hook in hooks if not hook.calls_pool)
        notes.append(f"only {tracked} are tracked; {others} do not call the pool")
    if not pooled and not host:
        about = MODES["aligned"].about
        notes.append(f'no memory is pooled; install_pool(host="aligned") works without a GPU: {about}')
    if pool.closed:
        notes.append("the pool was closed")
    return notes


def _device(pool: DeviceMemory, index: int) -> str:
    gpu, limit = pool.gpus.get(index), pool.limits.get(index)
    size = format_bytes(gpu.total) if gpu and gpu.total is not None else "memory not reported"
    text = f"{index}, {gpu.name}, {size}" if gpu else f"{index}, a custom allocator"
    text += f"; limit {limit}" if limit is not None else "; no limit"
    if not pool.closed and index in pool.pools:
        text += f"; {pool.recorders[index].stats()}"
    return text


def read_record(pool: DeviceMemory, host: Sequence[Mode]) -> dict[str, Any]:
    """Return the fields of `zerocopy.monitor.sample.PoolRecord`: the figures of a pool as JSON types.

    No CUDA context is created.
    """
    report, missing = Report.of(pool, host), pool.missing_device
    totals = pool.tracker.totals() if pool.tracker is not None else None
    # Only these frameworks call the pool to allocate and to free.
    counted = {h.name for h in pool.attachments.hooks if h.calls_pool and not pool.uses_rmm}
    frameworks = {}
    for row in report.frameworks:
        in_use = totals.get(row.framework, 0) if totals is not None and row.framework in counted else None
        frameworks[row.framework] = {"status": str(row.status), "in_use": in_use, "detail": row.detail}
    if totals is not None and pool.pools:
        in_use, detail = totals.get(OWN_REQUESTER, 0), "code that calls the pool itself"
        frameworks[OWN_REQUESTER] = {"status": "installed", "in_use": in_use, "detail": detail}
    return {
        "kind": pool.kind,
        "why_not": missing.why if missing is not None else "",
        "devices": {str(device): _figures(pool, device) for device in pool.pools},
        "host": {name: asdict(stats) for name, stats in HostFigures.of(host).items()},
        "frameworks": frameworks,
        "notes": list(report.notes),
    }


def _figures(pool: DeviceMemory, device: int) -> dict[str, int | None]:
    """Return one device's figures. RMM's Python API and CUDA's pools do not report their free blocks."""
    stats, limit = pool.recorders[device].overall(), pool.limits.get(device)
    return {
        "in_use": stats.current_bytes,
        "reserved": stats.reserved_bytes,
        "peak": stats.peak_bytes,
        "limit": None if limit is None else limit.nbytes,
        "largest_free": None,
        "fragmentation": None,
    }
