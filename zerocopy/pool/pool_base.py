"""`PoolBase`: the internal part of a pool: device memory, limits, tracking, attachments."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from zerocopy.errors import (
    DeviceError,
    PoolClosedError,
    PoolLimitError,
    PoolOptionError,
    PoolUnavailableError,
    Reason,
)
from zerocopy.formatting.units import format_bytes
from zerocopy.pool import shutdown
from zerocopy.pool.attachment import Status
from zerocopy.pool.attachments import Attachments
from zerocopy.pool.gpus import GPU
from zerocopy.pool.hook import PoolHook
from zerocopy.pool.limits import Limit, PoolInUseError
from zerocopy.pool.options import device_number, is_rmm_kind
from zerocopy.pool.settings import Settings
from zerocopy.pool.stats import StatsRecorder
from zerocopy.pool.tracker import AllocationTracker, Leak
from zerocopy.protocols import cuda_driver


class PoolBase:
    """What a :class:`~zerocopy.pool.pool.Pool` is made of, for hooks, scopes and the report."""

    def __init__(
        self,
        settings: Settings,
        kind: str,
        gpus: list[GPU],
        missing: Reason | None,
        limits: dict[int, Limit],
        hooks: list[PoolHook],
    ) -> None:
        self.settings = settings
        self.kind = kind
        self.gpus = {gpu.index: gpu for gpu in gpus}
        self.devices = tuple(self.gpus)
        if kind == "custom":
            self.devices = settings.devices or self.devices or (0,)
        self.limits = limits
        self.closed = False
        self.notes: list[str] = []  # for the report
        self.tracker = AllocationTracker() if settings.track else None
        self._missing = missing
        self.pools: dict[int, Any] = {}
        self._recorders: dict[int, StatsRecorder] = {}
        self.attachments = Attachments(self, hooks)
        # The hook of the resources that other frameworks allocate via.
        self._provider = next(hook.name for hook in hooks if hook.pool_kind)

    def allocate_for(self, requester: str, nbytes: int, stream: int, device: int) -> int:
        """Allocate for a framework, which the report of leaks names; 0 for 0 bytes."""
        self.check_open(f"allocate({nbytes})")
        if not nbytes:
            return 0
        try:
            ptr = int(self.device_pool(device).allocate(nbytes, stream))
        except MemoryError as error:
            refused = self.limit_error(nbytes, device, error)
            if refused is error:
                raise
            try:
                raise refused from error
            finally:
                del refused  # its traceback holds this frame
        self.record(device, ptr, nbytes, requester)
        return ptr

    def free(self, ptr: int, nbytes: int, stream: int, device: int) -> None:
        """Free memory; does nothing during interpreter shutdown."""
        if shutdown.in_progress():
            return
        if self.tracker is not None:
            self.tracker.remove(device, ptr)
        self.device_pool(device).deallocate(ptr, nbytes, stream)

    def limit_error(self, nbytes: int, device: int, error: MemoryError) -> MemoryError:
        """Return a `PoolLimitError` if the limit caused `error`, otherwise `error`."""
        limit = self.limits.get(device)
        if limit is None or isinstance(error, PoolLimitError):
            return error
        pool = self.device_pool(device)
        in_use = pool.in_use()
        if in_use + pool.charged_bytes(nbytes) > limit.nbytes:
            more = f"{format_bytes(nbytes)} on top of the {format_bytes(in_use)} in use"
            why = f"{more} would exceed the limit of {limit}"
        elif (
            "maximum pool size" in str(error).lower()
        ):  # RMM has no error type for a pool at its maximum size
            why = (
                f"{format_bytes(in_use)} of {limit} are in use, and no free block is as large (fragmentation)"
            )
        else:
            return error  # the device itself is out of memory
        return PoolLimitError(
            f"allocate({nbytes})",
            why,
            "free arrays, work in smaller pieces, or raise the limit",
            nbytes,
            in_use,
            limit.nbytes,
            limit.source,
        )

    def device_pool(self, device: int) -> Any:
        """Return the allocator of one device: a `DriverPool` or an `RMMPool`."""
        return self.pools[device]

    @property
    def active_devices(self) -> tuple[int, ...]:
        """The devices on which the pool allocates."""
        return tuple(self.pools)

    def add_device_pool(self, device: int, pool: Any) -> None:
        """Use `pool` for the memory of a device."""
        self.pools[device] = pool
        self._recorders[device] = StatsRecorder(pool)

    def recorder(self, device: int) -> StatsRecorder:
        """Return the statistics of a device."""
        return self._recorders[device]

    def missing_device(self) -> Reason | None:
        """Return why the pool has no device; None if it has one."""
        return self._missing if self.kind == "none" else None

    def memory_info(self, device: int) -> tuple[int, int]:
        """Return the free and the total bytes of a device; under a limit, of the limit."""
        limit = self.limits.get(device)
        if limit is not None:
            return max(0, limit.nbytes - self.device_pool(device).in_use()), limit.nbytes
        return cuda_driver.memory_info(device)

    @property
    def uses_rmm(self) -> bool:
        """Whether the pool is built from RMM's resources."""
        return is_rmm_kind(self.kind)

    @property
    def tracked(self) -> bool:
        """Whether the pool records each allocation."""
        return self.tracker is not None

    def record(self, device: int, ptr: int, nbytes: int, requester: str) -> None:
        """Record an allocation, under ``track=True``."""
        if self.tracker is not None:
            self.tracker.record(device, ptr, nbytes, requester)

    def frameworks_freeing_via(self, name: str) -> list[str]:
        """Return the attached frameworks that free through another hook's allocator."""
        return [hook.display_name for hook in self.attachments.freeing_via(name)]

    def leaks(self) -> list[Leak]:
        """Return the memory that was allocated and not freed; see `Pool.check_leaks`."""
        return [leak for device in self.pools for leak in self._outstanding(device)]

    def refresh(self) -> list[str]:
        """Attach frameworks again whose allocator was replaced; see `Pool.refresh`."""
        self.check_open("refresh()")
        for pool in self.pools.values():
            pool.restore_threshold()
        return self.attachments.repair()

    def trim(self) -> int:
        """Return unused memory to the devices; return the number of bytes; see `Pool.trim`."""
        if self.attachments.freeing_via(self._provider):
            return 0  # these frameworks must free into the resource from which they allocated
        free = {device: _free_bytes(device) for device, pool in self.pools.items() if pool.reserved_unknown}
        trimmed = 0
        for device, pool in self.pools.items():
            self.recorder(device).update()  # a new device pool counts from zero
            trimmed += pool.trim()
        if self.uses_rmm:
            # The device pool may be a new one; RMM holds the old one until then.
            self.attachments.attach_again(self._provider)
        return trimmed + sum(max(0, _free_bytes(device) - before) for device, before in free.items())

    def check_can_set_limit(self, device: int, asked: str) -> None:
        """Raise `PoolInUseError` or `PoolOptionError` if the limit of a device cannot be changed now."""
        pool = self.device_pool(device)
        reason = pool.limit_refusal()
        freeing = [] if pool.limit_is_live else self.frameworks_freeing_via(self._provider)
        if reason is None and freeing:
            names = " and ".join(freeing)
            reason = Reason(
                f"{names} must free into the resource from which it allocated",
                "leave it out with frameworks=",
                code="pool-fixed",
            )
        if reason is not None:
            error = PoolInUseError if reason.code == PoolInUseError.code else PoolOptionError
            raise error(f"{asked} on device {device}", reason.why, reason.remedy, code=reason.code)

    def set_limit(self, device: int, limit: Limit | None, asked: str) -> None:
        """Change the limit of a device; see `Pool.set_limit`."""
        pool = self.device_pool(device)
        is_live = pool.limit_is_live
        self.recorder(device).update()  # a new device pool counts from zero
        try:
            pool.set_limit(limit)
        except PoolUnavailableError as error:
            raise error.with_context(asked=asked) from error.__cause__
        kept = {number: each for number, each in self.limits.items() if number != device}
        self.limits = kept if limit is None else kept | {device: limit}
        if not is_live:
            self.attachments.attach_again(self._provider)

    def release(self) -> None:
        """Release the device pools unless a framework still frees into them."""
        if self.attachments.freeing_via(self._provider):
            return
        in_use = any(row.status is Status.INSTALLED for row in self.attachments.current())
        with ExitStack() as stack:
            for pool in self.pools.values():
                stack.callback(pool.release, in_use)

    def _outstanding(self, device: int) -> list[Leak]:
        pool, tracker = self.device_pool(device), self.tracker
        if tracker is None:
            current = pool.stats().current_bytes
            return [Leak(current, device)] if current > 0 else []
        if not pool.counts_all:
            return tracker.outstanding(device)
        # RMM lists all allocations; the tracker has Python stacks for the allocations of the pool.
        number = tracker.number
        leaks = pool.outstanding()
        tracker.prune(device, {leak.ptr for leak in leaks}, number)
        return [tracker.find(device, leak.ptr, leak.nbytes) or leak for leak in leaks]

    def check_open(self, asked: str) -> None:
        """Raise if the pool was closed."""
        if self.closed:
            remedy = "install another one: zerocopy.install_pool()"
            raise PoolClosedError(asked, "the pool was closed", remedy)

    def check_device(self, device: int | str | None) -> int:
        """Return a device on which the pool allocates; None is the first."""
        number = next(iter(self.pools), None) if device is None else device_number(device)
        if number is not None and number in self.pools:
            return number
        reason = self.missing_device() or Reason(
            f"the pool is on devices {', '.join(map(str, self.pools)) or 'none'}",
            "pass one of the pool's devices",
            code="other-device",
        )
        raise DeviceError(f"device={device!r}", reason.why, reason.remedy, code=reason.code)

    def owner(self, ptr: int) -> int:
        """Return the device of an address."""
        device = cuda_driver.ordinal(ptr) if self.kind != "custom" else None
        if device is None:
            raise DeviceError(
                f"deallocate({ptr:#x})",
                "the pool is on several devices",
                "pass the device of the memory: device=",
                code="device-required",
            )
        return device


def _free_bytes(device: int) -> int:
    return cuda_driver.memory_info(device)[0]
