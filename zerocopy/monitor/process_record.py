"""Creates the record of this process: its conversions, its pool, its shared memory and its loaders."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from zerocopy.monitor.checked_record import FORMAT
from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.process_info import describe_process, resident_bytes
from zerocopy.monitor.sample import LoaderRecord, PoolRecord, ProcessRecord, SharedRecord
from zerocopy.monitor.totals import as_dict, limited
from zerocopy.protocols.exporter_errors import is_error

#: Call sites of a record; the others are summed. 500 take 0.3 MB.
MOST_SITES = 500


class RowRecorder(Protocol):
    """Interface of `zerocopy.monitor.recorder.Recorder`."""

    def start(self) -> Any:
        """Begin to count."""

    def stop(self) -> Any:
        """End counting; the rows stay."""

    def rows(self) -> Sequence[ConversionRow]:
        """Return the counts since the start."""


class Sources:
    """Functions that read the parts of a record other than conversions.

    Parameters
    ----------
    pool, shared, loaders : callable
        Return their part. An exception leaves the part empty, and is reported to `on_error`.
    """

    def __init__(
        self,
        pool: Callable[[], PoolRecord],
        shared: Callable[[], SharedRecord],
        loaders: Callable[[], list[LoaderRecord]],
    ) -> None:
        self.pool, self.shared, self.loaders = pool, shared, loaders


def own_sources() -> Sources:
    """Return the sources of this process; they do not import parts of zerocopy that it has not imported."""
    from zerocopy.monitor.sources.loaders import read_loaders
    from zerocopy.monitor.sources.pool import read_pool
    from zerocopy.monitor.sources.shared import read_shared

    return Sources(read_pool, read_shared, read_loaders)


def no_pool() -> PoolRecord:
    """Return the record of a process without a pool."""
    return PoolRecord(kind="", why_not="no pool is installed", devices={}, host={}, frameworks={}, notes=[])


def no_shared() -> SharedRecord:
    """Return the record of a process that shares no memory."""
    return SharedRecord(segments=0, segment_bytes=0, handles=0, mapped=0, mapped_bytes=0, leases=0)


def make_record(
    rows: Sequence[ConversionRow],
    sources: Sources,
    since: float,
    *,
    ended: bool = False,
    on_error: Callable[[str, Exception], None] | None = None,
) -> ProcessRecord:
    """Return the present record of this process.

    Parameters
    ----------
    rows : sequence of ConversionRow
        All counts. The record has those of `MOST_SITES` call sites, and the sums of the others.
    sources : Sources
        The other parts.
    since : float
        When counting began, in seconds since 1970.
    ended : bool
        Whether this is the last record.
    on_error : callable, optional
        Receives the name and the exception of a part that cannot be read.
    """
    shown, others = limited(rows, MOST_SITES)

    def read(name: str, function: Callable[[], Any], default: Any) -> Any:
        try:
            return function()
        except BaseException as error:
            if on_error is None or not is_error(error):
                raise
            on_error(name, error)
            return default

    return ProcessRecord(
        format=FORMAT,
        time=time.time(),
        recording_since=since,
        ended=ended,
        process=describe_process(),
        conversions=[as_dict(row) for row in shown],
        other_sites=others,
        pool=read("the pool", sources.pool, no_pool()),
        shared=read("shared memory", sources.shared, no_shared()),
        loaders=read("loaders", sources.loaders, []),
        rss=resident_bytes(),
    )
