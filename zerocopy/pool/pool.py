"""``Pool``: one allocator under several frameworks, and the truth about which."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from zerocopy.errors import DeviceError, PoolClosedError, PoolLimitError, PoolOptionError, Reason
from zerocopy.forks import LOADING
from zerocopy.pool import exits
from zerocopy.pool.arguments import handle, number_of_bytes
from zerocopy.pool.attachments import Attachments
from zerocopy.pool.cards import Card
from zerocopy.pool.hook import PoolHook
from zerocopy.pool.ledger import Leak, Ledger
from zerocopy.pool.limits import Limit
from zerocopy.pool.outcome import Status
from zerocopy.pool.report import Report
from zerocopy.pool.scope import OpenScope, Scope, warn
from zerocopy.pool.settings import Settings, device_number
from zerocopy.pool.sizes import show_size
from zerocopy.pool.stats import Stats
from zerocopy.pool.timeline import Timeline
from zerocopy.protocols import cuda_driver


class Pool:
    """What :func:`zerocopy.install_pool` returns; it is not made in another way.

    It speaks the external allocator interface, ``allocate(nbytes, stream)`` and
    ``deallocate(ptr, nbytes, stream)``, so other code can take memory from it.

    Attributes
    ----------
    kind : str
        ``"driver"``, ``"rmm"``, ``"rmm:arena"``, ..., ``"managed"``, ``"custom"``; ``"none"`` where
        there is no device, and host memory alone may be pooled.
    settings : Settings
        What was asked.
    devices : tuple of int
    limits : dict of int to Limit
        The cap of each device that has one, and where it comes from.
    scopes : dict of int to Scope
        Of the last ``with`` block, by device.

    Examples
    --------
    >>> import zerocopy as zc
    >>> with zc.install_pool(host="off") as pool:
    ...     print(type(pool.report()).__name__)
    Report
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
        self.settings = settings
        self.kind = kind
        self.cards = {card.index: card for card in cards}
        self.devices = (
            tuple(self.cards) if kind != "custom" else (settings.devices or tuple(self.cards) or (0,))
        )
        self.limits = limits
        self.scopes: dict[int, Scope] = {}
        self.notes: list[str] = []
        self.closed = False
        self._missing = missing
        self.host = host
        self.attachments = Attachments(self, hooks)
        self._pools: dict[int, Any] = {}
        # Each thread leaves the blocks that it has entered.
        self._blocks = threading.local()
        self._timelines: dict[int, Timeline] = {}
        self.ledger = Ledger() if settings.track else None

    # -- the external allocator interface -----------------------------------------

    def allocate(self, nbytes: int, stream: Any = None, device: int | None = None) -> int:
        """Allocate memory.

        Parameters
        ----------
        nbytes : int
        stream : int or object, optional
            The stream on whose work the memory is going to be used: a handle, or an object with
            ``__cuda_stream__``; the legacy default stream if it is left out.
        device : int, optional
            The first of the pool's by default.

        Returns
        -------
        int
            The address; to be freed with `deallocate`. 0 for 0 bytes.

        Raises
        ------
        PoolLimitError
            It would pass the limit. The pool works on.
        MemoryError
            The device has no more.
        PoolClosedError, DeviceError
        """
        size, number, on = number_of_bytes(nbytes), handle(stream), self._device(device)
        self._open(f"allocate({size})")
        return self.take(size, number, on, "allocate()") if size else 0

    def deallocate(self, ptr: int, nbytes: int, stream: Any = None, device: int | None = None) -> None:
        """Free what `allocate` returned, after what the stream has been given so far.

        Works on a pool that is closed too. Like any ``free`` it takes the caller's word for address
        and size; under ``track=True`` they are looked up, and refused if they are wrong. `device` is
        that of the memory; where the driver knows it, it may be left out.
        """
        if not ptr:
            return  # what allocate(0) returned
        if device is None and len(self._pools) > 1:
            device = self._owner(ptr)
        if self.ledger is not None:
            self.ledger.check(self._device(device), ptr, nbytes)
        self.give(ptr, number_of_bytes(nbytes), handle(stream), self._device(device))

    def _owner(self, ptr: int) -> int:
        """Return the device that memory is on."""
        found = cuda_driver.ordinal(ptr) if self.kind != "custom" else None
        if found is None:
            raise DeviceError(
                f"deallocate({ptr:#x})", "the pool is on several devices", "name the memory's: device="
            )
        return found

    def take(self, nbytes: int, stream: int, device: int, through: str) -> int:
        """Allocate on behalf of a framework, named for the report of leaks."""
        if self.closed:
            raise PoolClosedError(
                f"allocate({nbytes})", "the pool was closed", "install another one: zerocopy.install_pool()"
            )
        try:
            ptr = int(self.device_pool(device).allocate(nbytes, stream))
        except MemoryError as error:
            refused = self.out_of_memory(nbytes, device, error)
            if refused is error:
                raise
            raise refused from error
        if self.ledger is not None:
            self.ledger.note(device, ptr, nbytes, through)
        return ptr

    def give(self, ptr: int, nbytes: int, stream: int, device: int) -> None:
        """Free on behalf of a framework; nothing is freed one by one when the interpreter ends."""
        if exits.ended():
            return
        if self.ledger is not None:
            self.ledger.strike(device, ptr)
        self.device_pool(device).deallocate(ptr, nbytes, stream)

    def out_of_memory(self, nbytes: int, device: int, error: MemoryError) -> MemoryError:
        """Return what to raise for a refused allocation: the limit's error, or the one that came."""
        cap = self.limits.get(device)
        if cap is None or isinstance(error, PoolLimitError):
            return error
        in_use = self.device_pool(device).in_use()
        if in_use + self.device_pool(device).counted(nbytes) > cap.nbytes:
            why = f"{show_size(nbytes)} beside the {show_size(in_use)} in use would pass the limit of {cap}"
        elif "maximum pool size" in str(error).lower():  # so RMM's pool says that it may not grow
            why = (
                f"{show_size(in_use)} of {cap} are in use, and no free block is as large: they are in pieces"
            )
        else:
            return error  # the device has no more, whatever the limit
        return PoolLimitError(
            f"allocate({nbytes})",
            why,
            "free arrays, work in smaller pieces, or raise the limit",
            nbytes,
            in_use,
            cap.nbytes,
            cap.source,
        )

    # -- what is behind it ----------------------------------------------------------

    def device_pool(self, device: int) -> Any:
        """Return what allocates on one device."""
        return self._pools[device]

    @property
    def served(self) -> tuple[int, ...]:
        """The devices that it allocates on."""
        return tuple(self._pools)

    def serve(self, device: int, pool: Any) -> None:
        """Have a device's memory come from what is given."""
        self._pools[device] = pool
        self._timelines[device] = Timeline(pool)

    def timeline(self, device: int) -> Timeline:
        """Return a device's statistics in time."""
        return self._timelines[device]

    def no_device(self) -> Reason | None:
        """Return why there is nothing to pool on any device; None if there is."""
        return self._missing if self.kind == "none" else None

    @property
    def by_rmm(self) -> bool:
        """Whether it is made of RMM's resources."""
        return self.kind in ("managed", "custom") or self.kind.startswith("rmm")

    @property
    def tracked(self) -> bool:
        """Whether allocations are noted."""
        return self.ledger is not None

    def note(self, device: int, ptr: int, nbytes: int, through: str) -> None:
        """Write down who asked for memory that RMM tracks itself."""
        if self.ledger is not None:
            self.ledger.note(device, ptr, nbytes, through)

    def frees_into_rmm(self) -> bool:
        """Whether torch allocates through RMM's resource of the device."""
        outcome = self.attachments.outcome("torch")
        return self.by_rmm and outcome is not None and outcome.status is Status.INSTALLED

    def memory_info(self, device: int) -> tuple[int, int]:
        """Return the free and the total bytes of a device; under a cap, what is left and the cap."""
        cap = self.limits.get(device)
        if cap is not None:
            return max(0, cap.nbytes - self.device_pool(device).in_use()), cap.nbytes
        return cuda_driver.memory_info(device)

    def pinned(self, shape: Any, dtype: Any = "float64") -> Any:
        """Return an uninitialised NumPy array in page-locked memory, for fast transfers.

        The memory goes back to the pool with the last array over it.

        Raises
        ------
        PoolOptionError
            The pool was not installed with ``host="pinned"``.
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
        """Return what took effect, framework by framework, as it is now; ``print`` shows it."""
        return Report.of(self, self.attachments.outcomes(), self.host)

    def stats(self, device: int | None = None) -> Stats:
        """Return the figures of a device (the first one by default), in bytes.

        In a ``with`` block its peak and totals are those since the block began.
        """
        return self.timeline(self._device(device)).stats()

    def check_leaks(self) -> list[Leak]:
        """Return what is outstanding, with stacks where the pool was installed with ``track=True``.

        Without it each device gives one entry, with the sum. What is in use on purpose is in
        it too: call it where nothing should be.
        """
        return [leak for device in self._pools for leak in self._outstanding(device)]

    def _outstanding(self, device: int) -> list[Leak]:
        pool, ledger = self.device_pool(device), self.ledger
        if ledger is None:
            stats = pool.stats()
            return [Leak(stats.current_bytes, device)] if stats.current_bytes > 0 else []
        if not pool.follows:
            return ledger.outstanding(device)
        # RMM has them all; the ledger knows the lines of Python of those that came through us.
        number = ledger.number
        found = pool.outstanding()
        ledger.keep(device, {leak.ptr for leak in found}, number)
        return [ledger.find(device, leak.ptr, leak.nbytes) or leak for leak in found]

    def trim(self) -> int:
        """Give memory that nobody uses back to the devices and the system.

        Returns
        -------
        int
            How many bytes. RMM's own pools can give back only what nobody uses any of.
        """
        given: int = sum(mode.trim() for mode in self.host)
        if self.closed or self.frees_into_rmm():
            return given  # what torch frees must find the resource that it came from
        for device, pool in self._pools.items():
            self.timeline(device).look()  # another pool counts from nothing
            given += pool.trim()
        if self.by_rmm:
            self.attachments.tell_again("rmm")  # of another pool now, perhaps
        return given

    # -- frameworks, and the end ------------------------------------------------------

    def refresh(self) -> list[str]:
        """Put back what others have replaced since; return the names of the frameworks.

        ``import cudf`` gives CuPy and Numba RMM's plain allocators: that is noticed by itself.
        The release threshold, which torch and XLA write too, is written again.
        """
        self._open("refresh()")
        for pool in self._pools.values():
            pool.settle()
        return self.attachments.put_right()

    def close(self) -> None:
        """Stop serving new requests, and give frameworks their own allocators back.

        Memory that a framework still holds stays valid, and is freed as before. What cannot be
        given back is in the report. A second call does nothing.
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
        if self.frees_into_rmm():
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

    # -- arguments --------------------------------------------------------------------

    def _open(self, asked: str) -> None:
        if self.closed:
            raise PoolClosedError(
                asked, "the pool was closed", "install another one: zerocopy.install_pool()"
            )

    def _device(self, device: int | None) -> int:
        number = next(iter(self._pools), None) if device is None else device_number(device)
        if number is not None and number in self._pools:
            return number
        reason = self.no_device()
        why = reason.why if reason else f"the pool is on devices {', '.join(map(str, self._pools)) or 'none'}"
        raise DeviceError(
            f"device={device!r}", why, "name one of the pool's devices" if not reason else reason.remedy
        )

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return f"<{state}zerocopy.Pool {self.kind!r} on {len(self.devices)} devices: {self.settings}>"
