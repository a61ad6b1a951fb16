"""``Pool``: one allocator under several frameworks, and the truth about which."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from zerocopy.errors import PoolOptionError, Reason
from zerocopy.forks import LOADING
from zerocopy.pool.arguments import handle, number_of_bytes
from zerocopy.pool.attachments import Attachments
from zerocopy.pool.backing import Backing
from zerocopy.pool.cards import Card
from zerocopy.pool.hook import PoolHook
from zerocopy.pool.ledger import Leak
from zerocopy.pool.limits import Limit
from zerocopy.pool.outcome import Status
from zerocopy.pool.report import Report
from zerocopy.pool.scope import OpenScope, Scope, warn
from zerocopy.pool.settings import Settings
from zerocopy.pool.stats import Stats
from zerocopy.protocols import cuda_driver


class Pool(Backing):
    """What :func:`zerocopy.install_pool` returns; it is not made in another way.

    It speaks the external allocator interface, ``allocate(nbytes, stream)`` and
    ``deallocate(ptr, nbytes, stream)``, so other code can take memory from it. It may be used in
    several threads. ``with pool:`` scopes the figures, and installs and closes nothing.

    Attributes
    ----------
    kind : str
        ``"driver"``, ``"rmm"``, ``"rmm:arena"``, ..., ``"managed"``, ``"custom"``; ``"none"`` where
        there is no device, and host memory alone may be pooled.
    settings : Settings
        What was asked; as text it is what ``ZEROCOPY_POOL`` takes.
    devices : tuple of int
        Those that it is for, as CUDA numbers them.
    limits : dict of int to Limit
        The cap of each device that has one: ``nbytes``, and in ``source`` where it comes from.
    closed : bool
        Whether it serves no more.
    scopes : dict of int to Scope
        What happened in the ``with`` block that ended last, by device: ``stats`` and ``leaks``.

    Examples
    --------
    Over an allocator of one's own, here the C library's, which needs no GPU (but RMM):

    >>> import zerocopy as zc
    >>> from zerocopy.pool.host import LibcMemory
    >>> class Mine:
    ...     memory = LibcMemory()
    ...     def allocate(self, nbytes, stream):
    ...         return self.memory.take(nbytes)
    ...     def deallocate(self, ptr, nbytes, stream):
    ...         self.memory.give(ptr, nbytes)
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
    zerocopy.errors.PoolLimitError: allocate(2097152): 2 MiB beside the 0 B in use would pass the limit ...
    >>> pool.close()
    """

    def __init__(
        self,
        settings: Settings,
        kind: str,
        cards: list[Card],
        missing: Reason | None,
        limits: dict[int, Limit],
        hooks: list[PoolHook],
        host: list[Any],
    ) -> None:
        super().__init__(settings, kind, cards, missing, limits)
        self.host = host
        self.attachments = Attachments(self, hooks)
        self.scopes: dict[int, Scope] = {}
        self.notes: list[str] = []
        # Each thread leaves the blocks that it has entered.
        self._blocks = threading.local()

    # -- the external allocator interface -----------------------------------------

    def allocate(self, nbytes: int, stream: Any = None, device: int | None = None) -> int:
        """Allocate memory of a device.

        Parameters
        ----------
        nbytes : int
            How much, in bytes.
        stream : int or object, optional
            The stream on whose work the memory is going to be used: a handle, or an object with
            ``__cuda_stream__``; the legacy default stream if it is left out.
        device : int, optional
            Where: one of the pool's devices, the first by default.

        Returns
        -------
        int
            The address of memory that is nobody else's and not cleared, to be freed with
            `deallocate`. 0 for 0 bytes.

        Raises
        ------
        PoolLimitError
            It would pass the limit. The pool works on.
        MemoryError
            The device has no more.
        PoolOptionError
            `nbytes` is no number of bytes, or `stream` no handle.
        PoolClosedError
            The pool was closed.
        DeviceError
            The pool is not on that device, or on none.
        """
        size, number, on = number_of_bytes(nbytes), handle(stream), self._device(device)
        return self.take(size, number, on, "allocate()")

    def deallocate(self, ptr: int, nbytes: int, stream: Any = None, device: int | None = None) -> None:
        """Free what `allocate` returned, after what the stream has been given so far.

        Works on a pool that is closed too. Like any ``free`` it takes the caller's word for address
        and size; under ``track=True`` they are looked up, and refused if they are wrong.

        Parameters
        ----------
        ptr : int
            The address; 0, which is that of 0 bytes, does nothing.
        nbytes : int
            As many bytes as were asked for.
        stream : int or object, optional
            The stream whose work used it last; see `allocate`.
        device : int, optional
            That of the memory; where the driver knows it, it may be left out.

        Raises
        ------
        PoolOptionError
            Under ``track=True``: nothing of that address and size is out.
        DeviceError
            The pool is on several devices, and which of them is not known.
        """
        if not ptr:
            return  # what allocate(0) returned
        if device is None and len(self._pools) > 1:
            device = self._owner(ptr)
        if self.ledger is not None:
            self.ledger.check(self._device(device), ptr, nbytes)
        self.give(ptr, number_of_bytes(nbytes), handle(stream), self._device(device))

    def pinned(self, shape: Any, dtype: Any = "float64") -> Any:
        """Return an array in page-locked memory, for fast transfers to and from a GPU.

        Parameters
        ----------
        shape : int or sequence of int
            Its extents, in elements.
        dtype : dtype
            Of values, not of Python objects.

        Returns
        -------
        numpy.ndarray
            Row-major, writable, not initialised, over memory of the pool that no other array looks
            at. It goes back with the last view over it, in any thread, also when the pool was closed.

        Raises
        ------
        PoolOptionError
            The pool was not installed with ``host="pinned"``, or shape or dtype are none.
        PoolLimitError
            The system locks no more pages.
        PoolClosedError
            The pool was closed.
        """
        self._open("pinned()")
        mode = next((mode for mode in self.host if mode.name == "pinned"), None)
        if mode is None or mode.allocator is None:
            raise PoolOptionError(
                f"pinned({shape!r})", "the pool has no pinned memory", 'install_pool(host="pinned")'
            )
        return mode.allocator.empty(shape, dtype)

    # -- figures --------------------------------------------------------------------

    def report(self) -> Report:
        """Tell what took effect, framework by framework, as it is now.

        Returns
        -------
        Report
            ``print`` shows it; ``report["name"]`` is the `Outcome` of a framework, ``as_dict()`` all
            of it for JSON. It does not change with the pool.

        Examples
        --------
        >>> import zerocopy as zc
        >>> pool = zc.install_pool(host="off")
        >>> row = pool.report()["rmm"]
        >>> row.status in list(type(row.status))
        True
        >>> pool.close()
        """
        return Report.of(self, self.attachments.outcomes(), self.host)

    def stats(self, device: int | None = None) -> Stats:
        """Tell how much of a device is in use, at most, and taken, in bytes.

        Parameters
        ----------
        device : int, optional
            One of the pool's devices, the first by default.

        Returns
        -------
        Stats
            As it is now, of the whole process. In a ``with`` block its peak and totals are those
            since the block began.

        Raises
        ------
        DeviceError
            The pool is not on that device, or on none.
        """
        return self.timeline(self._device(device)).stats()

    def check_leaks(self) -> list[Leak]:
        """Tell what was asked for and not given back.

        What is in use on purpose is in it too: call it where nothing should be.

        Returns
        -------
        list of Leak
            Each allocation with the lines of Python that asked for it, where the pool was installed
            with ``track=True``. Without it an entry for each device of which something is in use, with
            the sum. Under the kind ``"driver"`` those of frameworks that do not ask the pool are in
            the sum alone; the report names them.
        """
        return [leak for device in self._pools for leak in self.outstanding(device)]

    def trim(self) -> int:
        """Give memory that nobody uses back to the devices and the system.

        Returns
        -------
        int
            How many bytes; under ``"rmm:async"``, which does not tell, by how much more the device
            has free. RMM's own pools can give back only when nothing of them is in use, and
            not while they write a log.

        Examples
        --------
        >>> import zerocopy as zc
        >>> pool = zc.install_pool(host="off")
        >>> pool.trim() >= 0
        True
        >>> pool.close()
        """
        given: int = sum(mode.trim() for mode in self.host)
        if self.closed or self.attachments.freeing_through("rmm"):
            return given  # what they free must find the resource that it came from
        free = {device: self._free(device) for device, pool in self._pools.items() if pool.by_device}
        for device, pool in self._pools.items():
            self.timeline(device).look()  # another pool counts from nothing
            given += pool.trim()
        if self.by_rmm:
            # Of another pool now, perhaps; RMM holds the one before until then.
            self.attachments.tell_again("rmm")
        return given + sum(max(0, self._free(device) - before) for device, before in free.items())

    def _free(self, device: int) -> int:
        return cuda_driver.memory_info(device)[0]

    # -- frameworks, and the end ------------------------------------------------------

    def refresh(self) -> list[str]:
        """Put back what others have replaced since.

        ``import cudf`` gives CuPy and Numba RMM's plain allocators: that is noticed by itself.
        The release threshold, which torch and XLA write too, is written again.

        Returns
        -------
        list of str
            The names of the frameworks that were told again.

        Raises
        ------
        PoolClosedError
            The pool was closed.

        Examples
        --------
        >>> import zerocopy as zc
        >>> pool = zc.install_pool(host="off")
        >>> pool.refresh()
        []
        >>> pool.close()
        """
        self._open("refresh()")
        for pool in self._pools.values():
            pool.settle()
        return self.attachments.put_right()

    def close(self) -> None:
        """Stop serving new requests, and give frameworks their own allocators back.

        Memory that a framework still holds stays valid, and is freed as before. What cannot be
        given back is in the report. A second call does nothing.

        Examples
        --------
        >>> import zerocopy as zc
        >>> pool = zc.install_pool(host="off")
        >>> pool.close()
        >>> pool.closed, zc.installed_pool() is None
        (True, True)
        """
        from zerocopy.pool import install

        with LOADING, ExitStack() as stack:
            if self.closed:
                return
            # The last first; what fails keeps none of the others from being done.
            stack.callback(install.forget, self)
            stack.callback(self._give_up)
            for mode in self.host:
                stack.callback(mode.restore)
            stack.callback(self.attachments.detach)
            self.closed = True

    def _give_up(self) -> None:
        """Let go of what is behind it, where no framework frees into it any more."""
        if self.attachments.freeing_through("rmm"):
            return
        left = any(o.status is Status.INSTALLED for o in self.attachments.outcomes())
        with ExitStack() as stack:
            for pool in self._pools.values():
                stack.callback(pool.release, left)

    def __enter__(self) -> Pool:
        """Begin a scope of statistics, peak and leaks; `scopes` has its figures afterwards."""
        self._open("with pool")
        vars(self._blocks).setdefault("open", []).append(OpenScope(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """End the scope; what leaked in it is a ``ResourceWarning``. The pool stays installed."""
        blocks: list[OpenScope] = vars(self._blocks).get("open", [])
        if not blocks:
            raise PoolOptionError("leaving a block", "none is open", "write: with pool:")
        self.scopes = blocks.pop().end()
        if kind is None:
            warn(self.scopes)

    def __reduce__(self) -> Any:
        raise TypeError("a pool is the process's own: it can be neither copied nor pickled")

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return f"<{state}zerocopy.Pool {self.kind!r} on {len(self.devices)} devices: {self.settings}>"
