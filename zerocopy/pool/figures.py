"""`PoolFigures`: the methods of a pool that report, and change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy.pool.host.mode import HostFigures, HostStats
from zerocopy.pool.pool_base import PoolBase
from zerocopy.pool.report import Report
from zerocopy.pool.stats import Stats, process_stats
from zerocopy.pool.tracker import Leak


class PoolFigures:
    """The report and the statistics of a :class:`~zerocopy.pool.pool.Pool`.

    Examples
    --------
    >>> import zerocopy as zc
    >>> with zc.install_pool(host="off") as pool:
    ...     isinstance(pool, PoolFigures)
    True
    >>> pool.close()
    """

    def __init__(self, base: PoolBase, host: Sequence[Any]) -> None:
        self._base = base
        self._host = host  # modes of host memory

    def report(self) -> Report:
        """Return the present state of each framework's attachment.

        Returns
        -------
        Report
            ``print`` shows it; ``report["name"]`` is the `Attachment` of a framework, ``as_dict()``
            the report for JSON. It does not change with the pool.

        Examples
        --------
        >>> import zerocopy as zc
        >>> pool = zc.install_pool(host="off")
        >>> row = pool.report()["rmm"]
        >>> row.status in list(type(row.status))
        True
        >>> pool.close()
        """
        return Report.of(self._base, self._host)

    def stats(self, device: int | str | None = None) -> Stats:
        """Return memory in use, peak and memory taken from a device, in bytes.

        Parameters
        ----------
        device : int or "host", optional
            One of the pool's devices. Default: the first, or the host if the pool has no device.

        Returns
        -------
        Stats
            Figures of the whole process. In a ``with`` block, peak and totals are those since the block
            began. On the host, the sum of `host_stats`: the peak is the most that was taken from the
            system since the process began. Without a mode of host memory, the process's resident memory.

        Raises
        ------
        DeviceError
            The pool is not on that device.

        Examples
        --------
        >>> import zerocopy as zc
        >>> with zc.install_pool(host="off") as pool:
        ...     pool.stats().peak_bytes > 0
        True
        >>> pool.close()
        """
        if device == "host" or (device is None and not self._base.pools):
            return host_sum(self.host_stats()) or process_stats()
        return self._base.recorder(self._base.check_device(device)).stats()

    def host_stats(self) -> dict[str, HostStats]:
        """Return the memory of each mode of host memory.

        Returns
        -------
        dict of str to HostStats
            In use, kept and peak, by the name of the mode; None where the mode cannot count. The figures
            of ``"aligned"`` and ``"recycle"`` are those of the C library's heap, which NumPy, torch and
            others share; if both are installed, only ``"aligned"`` has figures. The C library counts the
            pages that `trim` has returned from between blocks as kept until they are used again.

        Examples
        --------
        >>> import zerocopy as zc
        >>> pool = zc.install_pool(host="recycle")
        >>> heap = pool.host_stats()["recycle"]
        >>> heap.in_use > 0, heap.peak >= heap.in_use + heap.kept
        (True, True)
        >>> pool.close()
        """
        figures = HostFigures()
        counted: set[str] = set()
        for mode in self._host:
            figures[mode.name] = HostStats() if mode.memory in counted else mode.stats()
            counted.add(mode.memory)
        return figures

    def check_leaks(self) -> list[Leak]:
        """Return the memory that was allocated and not freed.

        Memory that is still in use on purpose is included: call it when all memory should be free.

        Returns
        -------
        list of Leak
            Each allocation with its Python stack if the pool was installed with ``track=True``.
            Without it, one entry with the sum for each device with memory in use. Under the kind
            ``"driver"``, frameworks that do not call the pool appear in the sum only; the report
            names them.
        """
        return self._base.leaks()


def host_sum(figures: dict[str, HostStats]) -> Stats | None:
    """Return the sum of the modes of host memory; None if none of them counts."""
    known = [each for each in figures.values() if each.in_use is not None]
    if not known:
        return None
    in_use = sum(each.in_use or 0 for each in known)
    held = in_use + sum(each.kept or 0 for each in known)
    return Stats(in_use, max(held, sum(each.peak or 0 for each in known)), held)
