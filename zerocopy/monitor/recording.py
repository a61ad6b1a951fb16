"""``record``: the conversions of a block of code; ``Snapshot``: the figures of a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zerocopy.formatting.printable import printable
from zerocopy.formatting.units import format_bytes, format_count, format_seconds
from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.errors import MonitorRunningError
from zerocopy.monitor.process_record import RowRecorder
from zerocopy.monitor.report import ConversionReport
from zerocopy.monitor.sample import ProcessRecord
from zerocopy.monitor.totals import as_dict, sum_rows


def new_recorder(sites: bool) -> RowRecorder:
    """Return a recorder of all conversions of this process."""
    # Imported here, because it loads the engine, and `import zerocopy` with ZEROCOPY_MONITOR must not.
    from zerocopy.monitor.recorder import Recorder

    return Recorder(sites=sites)


def record(sites: bool = True, order: str = "bytes") -> Recording:
    """Record the conversions of a block of code, in all threads of this process.

    Parameters
    ----------
    sites : bool, default True
        Record the line of code of each conversion, its time and why it copies.
    order : {"bytes", "time"}
        The order of the rows: most copied bytes first, or the longest time first. The attribute `order` of
        the result changes it.

    Returns
    -------
    Recording
        A context manager, which can be read in the block and afterwards. Blocks may be nested.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> with zc.monitor.record() as r:
    ...     array = zc.convert(np.arange(3.0), to="numpy", copy=True)
    >>> r.totals.calls, r.totals.copied_bytes
    (1, 24)
    """
    recording = Recording(sites)
    recording.order = order
    return recording


class Recording(ConversionReport):
    """The conversions of a block; :func:`zerocopy.monitor.record` creates it.

    Examples
    --------
    >>> import zerocopy as zc
    >>> with zc.monitor.record() as r:
    ...     pass
    >>> print(r)
    no conversions
    """

    def __init__(self, sites: bool = True, *, recorder: Callable[[bool], RowRecorder] = new_recorder) -> None:
        self._sites, self._new_recorder = sites, recorder
        self._recorder: RowRecorder | None = None
        self._rows: Sequence[ConversionRow] = []

    def __enter__(self) -> Recording:
        if self._recorder is not None:
            raise MonitorRunningError(
                "monitor.record()", "the block of this recording is running", "call record() once more"
            )
        recorder = self._new_recorder(self._sites)
        recorder.start()
        self._recorder = recorder
        return self

    def __exit__(self, *error: object) -> None:
        recorder = self._recorder
        if recorder is not None:
            recorder.stop()
            self._rows, self._recorder = recorder.rows(), None

    def _unsorted(self) -> Sequence[ConversionRow]:
        recorder = self._recorder
        return self._rows if recorder is None else recorder.rows()

    def as_dict(self) -> dict[str, Any]:
        """Return the sums and the rows as JSON types.

        Examples
        --------
        >>> import zerocopy as zc
        >>> with zc.monitor.record() as r:
        ...     pass
        >>> r.as_dict()["rows"]
        []
        """
        rows = self.rows
        return {"totals": sum_rows(rows)._asdict(), "rows": [as_dict(row) for row in rows]}


class Snapshot(ConversionReport):
    """The figures of this process at one moment; :func:`zerocopy.monitor.snapshot` returns it.

    Attributes
    ----------
    record : ProcessRecord
        The conversions, the pool, shared memory and the loaders, as other processes read them.

    Examples
    --------
    >>> import zerocopy as zc
    >>> session = zc.monitor.start()
    >>> zc.monitor.stop().record["ended"]
    True
    """

    def __init__(self, rows: Sequence[ConversionRow], record: ProcessRecord) -> None:
        self._rows, self.record = rows, record

    def _unsorted(self) -> Sequence[ConversionRow]:
        return self._rows

    def as_dict(self) -> ProcessRecord:
        """Return the record, in JSON types.

        Examples
        --------
        >>> import zerocopy as zc
        >>> session = zc.monitor.start()
        >>> zc.monitor.stop().as_dict()["conversions"]
        []
        """
        return self.record

    def __str__(self) -> str:
        return "\n".join([*map(printable, self._heads()), super().__str__()])

    def _repr_html_(self) -> str:
        from zerocopy.notebooks import html

        first, *others = self._heads()
        facts = [tuple(line.split(": ", 1)) for line in others]
        return html.table(first, facts) + super()._repr_html_()

    def _heads(self) -> list[str]:
        """Return lines about the process, its memory, pool, shared memory and loaders."""
        record = self.record
        process, pool, shared = record["process"], record["pool"], record["shared"]
        seconds = format_seconds(record["time"] - record["recording_since"])
        lines = [f"process {process['pid']} ({process['program']}), recorded for {seconds}"]
        lines.append(f"memory: {format_bytes(record['rss'])} resident")
        if pool["kind"]:
            in_use = sum(device["in_use"] for device in pool["devices"].values())
            in_use += sum(mode["in_use"] or 0 for mode in pool["host"].values())
            lines.append(f"pool: {pool['kind']}, {format_bytes(in_use)} in use")
        if shared["segments"] or shared["mapped"]:
            segments = (
                f"{format_count(shared['segments'], 'segment')}, {format_bytes(shared['segment_bytes'])}"
            )
            lines.append(f"shared: {segments}; {format_bytes(shared['mapped_bytes'])} of others mapped")
        lines += [f"loader: {loader['name']}: {loader['bottleneck']}" for loader in record["loaders"]]
        return lines
