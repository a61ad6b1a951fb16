"""A process that runs one epoch and prints its peak memory as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pyarrow as pa

import zerocopy as zc
from benchmarks.loader.data import BATCH, table
from benchmarks.loader.targets import MODES
from benchmarks.machine import peak, reset_peak, resident

#: Seconds between two batches, so that the loader is as far ahead as it may be.
_PAUSE = 0.002


def main(mode: str, path: str, window: int) -> list[int]:
    """Return the peak beyond the memory before, the peak of Arrow's pool, and the bytes of buffers."""
    options = dict(MODES[mode])
    if options.get("shuffle"):
        options["shuffle"] = window
    for _ in zc.loader(table(2 * BATCH), to="torch", batch=BATCH, **options):
        pass  # imports, threads
    before = resident()
    if not reset_peak():
        raise RuntimeError("the system does not reset the peak of a process")
    loader: Any = zc.loader(path, to="torch", batch=BATCH, **options)
    for _ in loader:
        time.sleep(_PAUSE)
    buffers = loader._buffers
    pool: Any = pa.default_memory_pool()
    held = 0 if buffers is None else buffers.allocated * buffers.nbytes  # columns in order have none
    return [peak() - before, pool.max_memory(), held]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
