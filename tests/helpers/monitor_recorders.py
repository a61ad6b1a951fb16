"""A recorder with chosen rows, and sources without figures, for sessions and recordings."""

from __future__ import annotations

from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.process_record import Sources, no_pool, no_shared


def row(line: int = 1, **counts: object) -> ConversionRow:
    """Return a row of one call site, whose bytes are aliased."""
    values = {"calls": 1, "aliased_calls": 1, "aliased_bytes": 8, "seconds": 0.001} | counts
    return ConversionRow("/home/a/train.py", line, "main", "numpy.ndarray", "torch", **values)


class ChosenRecorder:
    """Returns the rows of its class while it runs, and afterwards."""

    chosen: tuple[ConversionRow, ...] = (row(),)
    running = 0

    def __init__(self, sites: bool = True) -> None:
        self.sites = sites

    def start(self) -> None:
        type(self).running += 1

    def stop(self) -> None:
        type(self).running -= 1

    def rows(self) -> list[ConversionRow]:
        return list(self.chosen)


def recorder_of(*rows: ConversionRow) -> type[ChosenRecorder]:
    """Return a class of recorders with these rows."""
    return type("Recorder", (ChosenRecorder,), {"chosen": rows, "running": 0})


def no_sources() -> Sources:
    """Return sources without figures."""
    return {
        "pool": ("the pool", no_pool, no_pool),
        "shared": ("shared memory", no_shared, no_shared),
        "loaders": ("loaders", list, list),
    }
