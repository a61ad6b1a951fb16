"""The figures of a pool as JSON types, for the monitor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from zerocopy.pool.figures import PoolFigures
from zerocopy.pool.pool_base import PoolBase
from zerocopy.pool.report import Report

#: The requester of `Pool.allocate`, which is not a framework.
_OWN = "allocate()"


def read_record(pool: PoolFigures) -> dict[str, Any]:
    """Return the fields of `zerocopy.monitor.sample.PoolRecord`.

    No CUDA context is created, and the time does not depend on the number of allocations.
    """
    base, report = pool._base, pool.report()
    missing = base.missing_device()
    return {
        "kind": base.kind,
        "why_not": missing.why if missing is not None else "",
        "devices": {str(device): _device(base, device) for device in base.active_devices},
        "host": {name: asdict(stats) for name, stats in pool.host_stats().items()},
        "frameworks": _frameworks(base, report),
        "notes": list(report.notes),
    }


def _device(base: PoolBase, device: int) -> dict[str, Any]:
    """Return one device's figures. RMM's Python API and CUDA's pools do not report their free blocks."""
    stats, limit = base.recorder(device).overall(), base.limits.get(device)
    return {
        "in_use": stats.current_bytes,
        "reserved": stats.reserved_bytes,
        "peak": stats.peak_bytes,
        "limit": None if limit is None else limit.nbytes,
        "largest_free": None,
        "fragmentation": None,
    }


def _frameworks(base: PoolBase, report: Report) -> dict[str, dict[str, Any]]:
    """Return what each framework holds, and `Pool.allocate` if the pool is tracked."""
    totals = base.tracker.totals() if base.tracker is not None else None
    hooks = {hook.name: hook for hook in base.attachments.hooks}
    rows = {
        row.framework: _row(str(row.status), _in_use(base, hooks[row.framework], totals), row.detail)
        for row in report.frameworks
    }
    if totals is not None and base.pools:
        rows[_OWN] = _row("installed", totals.get(_OWN, 0), "code that calls the pool itself")
    return rows


def _in_use(base: PoolBase, hook: Any, totals: Mapping[str, int] | None) -> int | None:
    """Return the bytes that a framework holds, if it calls the pool to allocate and to free."""
    if totals is None or not hook.calls_pool or base.uses_rmm:
        return None
    return totals.get(hook.name, 0)


def _row(status: str, in_use: int | None, detail: str) -> dict[str, Any]:
    return {"status": status, "in_use": in_use, "detail": detail}
