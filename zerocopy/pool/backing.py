"""``Backing``: what is behind a pool, as frameworks' hooks use it: memory by device, its cap, its notes."""

from __future__ import annotations

from typing import Any

from zerocopy.errors import DeviceError, PoolClosedError, PoolLimitError, Reason
from zerocopy.pool import exits, kinds
from zerocopy.pool.cards import Card
from zerocopy.pool.ledger import Leak, Ledger
from zerocopy.pool.limits import Limit
from zerocopy.pool.options import device_number
from zerocopy.pool.settings import Settings
from zerocopy.pool.sizes import show_size
from zerocopy.pool.timeline import Timeline
from zerocopy.protocols import cuda_driver


class Backing:
    """Base of :class:`~zerocopy.pool.pool.Pool`, which is what users have of it.

    Attributes
    ----------
    kind : str
    settings : Settings
    cards : dict of int to Card
    devices : tuple of int
    limits : dict of int to Limit
    closed : bool
    ledger : Ledger or None
        Who asked for what, under ``track=True``.
    """

    def __init__(
        self,
        settings: Settings,
        kind: str,
        cards: list[Card],
        missing: Reason | None,
        limits: dict[int, Limit],
    ) -> None:
        self.settings = settings
        self.kind = kind
        self.cards = {card.index: card for card in cards}
        self.devices = (
            tuple(self.cards) if kind != "custom" else (settings.devices or tuple(self.cards) or (0,))
        )
        self.limits = limits
        self.closed = False
        self.ledger = Ledger() if settings.track else None
        self._missing = missing
        self._pools: dict[int, Any] = {}
        self._timelines: dict[int, Timeline] = {}

    # -- memory -------------------------------------------------------------------

    def take(self, nbytes: int, stream: int, device: int, through: str) -> int:
        """Allocate on behalf of a framework, named for the report of leaks; 0 for 0 bytes."""
        self._open(f"allocate({nbytes})")
        if not nbytes:
            return 0
        try:
            ptr = int(self.device_pool(device).allocate(nbytes, stream))
        except MemoryError as error:
            refused = self.out_of_memory(nbytes, device, error)
            if refused is error:
                raise
            raise refused from error
        self.note(device, ptr, nbytes, through)
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

    # -- devices ------------------------------------------------------------------

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

    def memory_info(self, device: int) -> tuple[int, int]:
        """Return the free and the total bytes of a device; under a cap, what is left and the cap."""
        cap = self.limits.get(device)
        if cap is not None:
            return max(0, cap.nbytes - self.device_pool(device).in_use()), cap.nbytes
        return cuda_driver.memory_info(device)

    # -- what it is, and what it has noted -----------------------------------------

    @property
    def by_rmm(self) -> bool:
        """Whether it is made of RMM's resources."""
        return kinds.by_rmm(self.kind)

    @property
    def tracked(self) -> bool:
        """Whether allocations are noted."""
        return self.ledger is not None

    def note(self, device: int, ptr: int, nbytes: int, through: str) -> None:
        """Write down who asked for memory, under ``track=True``."""
        if self.ledger is not None:
            self.ledger.note(device, ptr, nbytes, through)

    def outstanding(self, device: int) -> list[Leak]:
        """Return what is out on a device: the sum, or each allocation under ``track=True``."""
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

    # -- what is asked, checked ------------------------------------------------------

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

    def _owner(self, ptr: int) -> int:
        """Return the device that memory is on."""
        found = cuda_driver.ordinal(ptr) if self.kind != "custom" else None
        if found is None:
            raise DeviceError(
                f"deallocate({ptr:#x})", "the pool is on several devices", "name the memory's: device="
            )
        return found
