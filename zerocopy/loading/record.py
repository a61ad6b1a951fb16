"""The figures of all loaders as JSON types, for the monitor."""

from __future__ import annotations

from typing import Any

from zerocopy.loading.live import live_loaders
from zerocopy.loading.loader import Loader


def read_records() -> list[dict[str, Any]]:
    """Return the fields of `zerocopy.monitor.sample.LoaderRecord` for each loader, the oldest first."""
    return [_record(loader) for loader in live_loaders()]


def _record(loader: Loader) -> dict[str, Any]:
    stats, iterators = loader.stats(), loader._counters.open_iterators()
    return {
        "name": loader._title,
        "batches": stats.batches,
        "rows": stats.rows,
        "bytes": stats.nbytes,
        "depth": stats.ready,
        "limit": loader._options.prefetch * max(1, iterators),
        "reader_wait": stats.reader_waited,
        "consumer_wait": stats.consumer_waited,
        "bottleneck": stats.bottleneck,
        "running": iterators > 0,
    }
