"""`Pool`: one allocator under several frameworks, with a report of which use it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from zerocopy.errors import OptionError
from zerocopy.forks import LOADING
from zerocopy.formatting import printable, shown
from zerocopy.pool.host import HostFigures, HostStats, Mode, Pinned
from zerocopy.pool.limits import Limit, read_limit
from zerocopy.pool.memory import DeviceMemory, read_stream
from zerocopy.pool.report import OWN_REQUESTER, Report, read_record
from zerocopy.pool.settings import Settings
from zerocopy.pool.sizes import read_nbytes, read_option
from zerocopy.pool.stats import Leak, OpenScope, Scope, Stats, host_sum, process_stats, warn_of_leaks

_HOST = "host"


class Pool:
    """The pool that :func:`zerocopy.install_pool` returns; do not construct it directly.

    A pool implements the external allocator interface, ``allocate(nbytes, stream)`` and
    ``deallocate(ptr, nbytes, stream)``, so that other code can allocate from it. It is
    thread-safe. ``with pool:`` begins a scope of statistics and leaks, and neither installs nor closes
    the pool.

    Attributes
    ----------
    kind : str
        ``"driver"``, ``"rmm"``, ``"rmm:arena"``, ..., ``"managed"``, ``"custom"``; ``"none"`` on a
        machine without a device, where only host memory can be pooled.
    settings : Settings
        The options; their text form is a valid ``ZEROCOPY_POOL``.
    devices : tuple of int
        Devices of the pool, as CUDA numbers them.
    limits : dict of int to Limit
        Limit of each device that has one: ``nbytes``, and its origin as ``source``.
    closed : bool
        Whether the pool was closed.
    scopes : dict of int to Scope
        Figures of the ``with`` block that ended last, by device: ``stats`` and ``leaks``.

    Examples
    --------
    With a custom allocator, here over memory of NumPy, which needs RMM but no GPU:

    >>> import numpy as np, zerocopy as zc
    >>> class Mine:
    ...     blocks = {}
    ...     def allocate(self, nbytes, stream):
    ...         block = np.empty(nbytes, "u1")
    ...         self.blocks[block.ctypes.data] = block
    ...         return block.ctypes.data
    ...     def deallocate(self, ptr, nbytes, stream):
    ...         del self.blocks[ptr]
    >>> pool = zc.install_pool(allocator=Mine(), limit="1MiB", frameworks=(), track=True)
    >>> with pool:
    ...     ptr = pool.allocate(1000)
    ...     pool.deallocate(ptr, 1000)
    >>> pool.scopes[0].stats.peak_bytes, pool.scopes[0].leaks
    (1000, [])
    >>> ptr = pool.allocate(500)
    >>> [leak.nbytes for leak in pool.check_leaks()]
    [500]
    >>> pool.deallocate(ptr, 500)
    >>> pool.allocate(2 << 20)
    Traceback (most recent call last):
        ...
    zerocopy.errors.PoolLimitError: allocate(2097152): 2 MiB on top of the 0 B in use would exceed ...
    >>> pool.trim(), pool.refresh()
    (0, [])
    >>> pool.close()
    >>> pool.closed, zc.installed_pool() is None
    (True, True)
    """

    def __init__(self, memory: DeviceMemory, host: list[Mode], on_close: Callable[[Pool], None]) -> None:
        self._memory, self._host, self._on_close = memory, host, on_close
        self.kind: str = memory.kind
        self.settings: Settings = memory.settings
        self.devices: tuple[int, ...] = memory.devices
        self.scopes: dict[int, Scope] = {}
        # Each thread leaves the blocks that it has entered.
        self._blocks = threading.local()

    @property
    def limits(self) -> dict[int, Limit]:
        """Limit of each device that has one."""
        return self._memory.limits

    @property
    def closed(self) -> bool:
        """Whether the pool was closed."""
        return self._memory.closed

    def allocate(self, nbytes: int, stream: Any = None, device: int | None = None) -> int:
        """Allocate memory of a device.

        Parameters
        ----------
        nbytes : int
            Size in bytes.
        stream : int or object, optional
            Stream on which the memory is used first: a handle, or an object with
            ``__cuda_stream__``. Default: the legacy default stream.
        device : int, optional
            One of the pool's devices. Default: the first.

        Returns
        -------
        int
            Address of uninitialised memory, to be freed with `deallocate`; 0 for 0 bytes.

        Raises
        ------
        PoolLimitError
            The allocation would exceed the limit. The pool stays usable.
        MemoryError
            The device is out of memory.
        OptionError
            `nbytes` is not a number of bytes, or `stream` is not a stream.
        PoolClosedError
            The pool was closed.
        DeviceError
            The pool is not on that device, or has no device.
        """
        size, handle = read_option(read_nbytes, nbytes, "nbytes"), read_stream(stream)
        return self._memory.allocate_for(OWN_REQUESTER, size, handle, self._memory.check_device(device))

    def deallocate(self, ptr: int, nbytes: int, stream: Any = None, device: int | None = None) -> None:
        """Free memory from `allocate`, ordered after the work submitted to the stream so far.

        Also valid on a closed pool. Address and size are not checked, except under ``track=True``.

        Parameters
        ----------
        ptr : int
            The address; 0, the result for 0 bytes, is ignored.
        nbytes : int
            The size passed to `allocate`.
        stream : int or object, optional
            Stream that used the memory last; see `allocate`.
        device : int, optional
            Device of the memory. Default: the driver looks it up.

        Raises
        ------
        OptionError
            Under ``track=True``: no such allocation is outstanding.
        DeviceError
            The pool is on several devices, and the driver does not know the address.
        """
        if not ptr:
            return
        memory = self._memory
        if device is None and len(memory.pools) > 1:
            device = memory.owner(ptr)
        device, size = memory.check_device(device), read_option(read_nbytes, nbytes, "nbytes")
        if memory.tracker is not None:
            memory.tracker.check(device, ptr, size)
        memory.free(ptr, size, read_stream(stream), device)

    def pinned(self, shape: Any, dtype: Any = "float64") -> Any:
        """Return an array in page-locked memory, for fast transfers to and from a GPU.

        Parameters
        ----------
        shape : int or sequence of int
            Shape in elements.
        dtype : dtype
            Any dtype without Python objects.

        Returns
        -------
        numpy.ndarray
            Row-major, writable and uninitialised, over memory that no other array uses. The memory
            returns to the pool when the last view is dropped, also on a closed pool.

        Raises
        ------
        OptionError
            The pool was not installed with ``host="pinned"``, or shape or dtype is invalid.
        PoolLimitError
            The system cannot lock more pages.
        PoolClosedError
            The pool was closed.
        """
        self._memory.check_open("pinned()")
        for mode in self._host:
            if isinstance(mode, Pinned):
                return mode.allocator.empty(shape, dtype)
        why, remedy = "the pool has no page-locked memory", 'zc.install_pool(host="pinned")'
        raise OptionError(f"pinned({shape!r})", why, remedy)

    def set_limit(self, limit: int | str | None, device: int | str | None = None) -> None:
        """Change the limit of the pool while it is in use.

        A limit on a device may be less than the memory in use: further allocations are refused until
        enough memory is freed. ``device="host"`` limits the memory that modes of host memory keep.

        Parameters
        ----------
        limit : int, str or None
            Bytes, ``"2GiB"``, or ``"50%"`` of the GPU's total memory. None removes the limit; one that MPS
            sets stays.
        device : int or "host", optional
            One of the pool's devices. Default: all of them, or the host if the pool has no device.

        Raises
        ------
        OptionError
            The size is invalid, exceeds the GPU, or is less than ``initial=``; the kind has no limit, as
            ``"driver"``; or RMM's resources cannot be replaced, as they serve torch.
        PoolUnavailableError
            Memory of the pool is in use, and its resources are RMM's own, whose limit cannot be changed: the
            pool is replaced by one with the new limit when none of its memory is in use.
        PoolUnavailableError
            The device has no memory for the second pool; the first one stays, with its limit.
        PoolClosedError
            The pool was closed.
        DeviceError
            The pool is not on that device.

        Notes
        -----
        Only ``allocator=`` with methods in Python changes its limit while memory is in use. On the host,
        ``"pinned"`` frees kept blocks until the limit is met. ``"recycle"`` and ``"aligned"`` trim at once,
        and then limit the free memory at the end of the C library's heap, not that between blocks.

        Examples
        --------
        >>> import zerocopy as zc
        >>> pool = zc.install_pool(host="recycle")
        >>> pool.set_limit("64MiB", device="host")
        >>> print(pool.report().host[0])
        recycle: the C library keeps freed blocks of any size up to 64 MiB at the end of its heap; ...
        >>> pool.close()
        """
        asked = f"set_limit({shown(limit)})"
        self._memory.check_open(asked)
        fraction, nbytes = read_limit(limit, asked)
        if device == _HOST or (device is None and not self._memory.pools and self._host):
            self._limit_host(fraction, nbytes, f"{asked}, device='host'")
        else:
            self._memory.change_limit(fraction, nbytes, device, asked)

    def _limit_host(self, fraction: float | None, nbytes: int | None, asked: str) -> None:
        if not self._host:
            remedy = 'zc.install_pool(host="recycle")'
            raise OptionError(asked, "the pool has no host memory", remedy)
        if fraction is not None:
            why = "a fraction of the host's memory is not a valid limit"
            raise OptionError(asked, why, 'pass a size: "2GiB"')
        for mode in self._host:
            mode.keep_at_most(nbytes)

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
        return Report.of(self._memory, self._host)

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
        if device == _HOST or (device is None and not self._memory.pools):
            return host_sum(self.host_stats()) or process_stats()
        return self._memory.recorders[self._memory.check_device(device)].stats()

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
        return HostFigures.of(self._host)

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
        return self._memory.leaks()

    def trim(self) -> int:
        """Return unused memory to the devices and the system.

        Returns
        -------
        int
            Bytes returned; under ``"rmm:async"``, the growth of the device's free memory. RMM's
            own pools can be trimmed only when none of their memory is in use.
        """
        trimmed = sum(mode.trim() for mode in self._host)
        return trimmed if self.closed else trimmed + self._memory.trim()

    def refresh(self) -> list[str]:
        """Attach frameworks again whose allocator was replaced, and set the release threshold again.

        ``import cudf`` gives CuPy and Numba RMM's plain allocators; the pool notices that by itself.
        torch and XLA write the release threshold.

        Returns
        -------
        list of str
            Names of the frameworks that were attached again.

        Raises
        ------
        PoolClosedError
            The pool was closed.
        """
        return self._memory.refresh()

    def close(self) -> None:
        """Refuse new requests, and restore the frameworks' own allocators.

        Memory that a framework still holds stays valid until the framework frees it. The report lists
        the allocators that could not be restored. A second call does nothing.
        """
        with LOADING, ExitStack() as stack:
            if self.closed:
                return
            # The stack calls all of them, in reverse order, even if one raises.
            stack.callback(self._on_close, self)
            stack.callback(self._memory.release)
            for mode in self._host:
                stack.callback(mode.restore)
            stack.callback(self._memory.attachments.detach)
            self._memory.closed = True

    def __enter__(self) -> Pool:
        """Begin a scope of statistics, peak and leaks; `scopes` has its figures afterwards."""
        self._memory.check_open("with pool")
        scope = OpenScope(self._memory.recorders, self._memory.tracker, self.check_leaks)
        vars(self._blocks).setdefault("open", []).append(scope)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End the scope; leaks in it emit a ``ResourceWarning``. The pool stays installed."""
        blocks: list[OpenScope] = vars(self._blocks).get("open", [])
        if not blocks:
            raise OptionError("leaving a block", "no block is open", "write: with pool:")
        self.scopes = blocks.pop().end()
        if kind is None:
            warn_of_leaks(self.scopes)

    def __reduce__(self) -> Any:
        raise TypeError("a pool belongs to its process: it can be neither copied nor pickled")

    def __repr__(self) -> str:
        parts = []
        if self.kind != "none":
            count = len(self.devices)
            parts.append(f"{self.kind} on {count} device{'' if count == 1 else 's'}")
        if self._host:
            parts.append(f"host memory {' + '.join(mode.name for mode in self._host)}")
        reason = self._memory.missing_device
        serves = ", ".join(parts) or f"off, {reason.why if reason else 'no device'}"
        return printable(f"<{'closed ' if self.closed else ''}zerocopy.Pool: {serves}>")

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def _record(self) -> dict[str, Any]:
        return read_record(self._memory, self._host)
