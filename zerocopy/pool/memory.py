"""`DeviceMemory`: the part of a pool that lies on devices, and that the hooks of frameworks use."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NoReturn

from zerocopy.device import LEGACY_DEFAULT_STREAM, parse_stream
from zerocopy.errors import (
    DeviceError,
    OptionError,
    PoolClosedError,
    PoolLimitError,
    Reason,
)
from zerocopy.forks import LOADING
from zerocopy.formatting import format_bytes
from zerocopy.interpreter import shutdown
from zerocopy.pool.attachments import Attachments, RMMHook, other_limits
from zerocopy.pool.gpus import GPU
from zerocopy.pool.hook import PoolHook, Status
from zerocopy.pool.limits import Limit, changed_limit
from zerocopy.pool.settings import NO_LIMIT, Settings, device_number
from zerocopy.pool.stats import AllocationTracker, Leak, StatsRecorder
from zerocopy.protocols import cuda_driver


class DeviceMemory:
    """The allocator of each device with its limit and statistics, and the frameworks that are attached.

    Hooks see the pool as a `PoolInterface`.
    """

    def __init__(
        self,
        settings: Settings,
        kind: str,
        gpus: list[GPU],
        missing: Reason | None,
        limits: dict[int, Limit],
        pool_hooks: list[PoolHook],
    ) -> None:
        self.settings = settings
        self.kind = kind
        self.limits: dict[int, Limit] = limits
        self.closed: bool = False
        self.gpus: dict[int, GPU] = {gpu.index: gpu for gpu in gpus}
        self.devices: tuple[int, ...] = tuple(self.gpus)
        if kind == "custom":
            self.devices = settings.devices or self.devices or (0,)
        self.notes: list[str] = []  # for the report
        self.tracker: AllocationTracker | None = AllocationTracker() if settings.track else None
        self.pools: dict[int, Any] = {}  # `DriverPool` or `RMMPool`, by device
        self.recorders: dict[int, StatsRecorder] = {}
        self.attachments: Attachments = Attachments(self, pool_hooks)
        self.missing_device: Reason | None = missing if kind == "none" else None
        self.uses_rmm: bool = kind not in ("driver", "none")
        self.tracked: bool = settings.track

    def allocate_for(self, requester: str, nbytes: int, stream: int, device: int) -> int:
        """Allocate for a framework, which the report of leaks names; 0 for 0 bytes."""
        self.check_open(f"allocate({nbytes})")
        if not nbytes:
            return 0
        try:
            ptr = int(self.pools[device].allocate(nbytes, stream))
        except MemoryError as error:
            self.refuse(nbytes, device, error)
        self.record(device, ptr, nbytes, requester)
        return ptr

    def free(self, ptr: int, nbytes: int, stream: int, device: int) -> None:
        """Free memory; does nothing during interpreter shutdown."""
        if shutdown.in_progress():
            return
        if self.tracker is not None:
            self.tracker.remove(device, ptr)
        self.pools[device].deallocate(ptr, nbytes, stream)

    def record(self, device: int, ptr: int, nbytes: int, requester: str) -> None:
        """Record an allocation, under ``track=True``."""
        if self.tracker is not None:
            self.tracker.record(device, ptr, nbytes, requester)

    def refuse(self, nbytes: int, device: int, error: MemoryError) -> NoReturn:
        """Raise a `PoolLimitError` if the limit caused `error`, otherwise `error`."""
        refused = self._limit_error(nbytes, device, error)
        try:
            if refused is error:
                raise error
            raise refused from error
        finally:
            del refused, error  # their tracebacks hold this frame

    def _limit_error(self, nbytes: int, device: int, error: MemoryError) -> MemoryError:
        limit = self.limits.get(device)
        if limit is None or isinstance(error, PoolLimitError):
            return error
        pool = self.pools[device]
        in_use = pool.in_use()
        if in_use + pool.charged_bytes(nbytes) > limit.nbytes:
            more = f"{format_bytes(nbytes)} on top of the {format_bytes(in_use)} in use"
            why = f"{more} would exceed the limit of {limit}"
        elif "maximum pool size" in str(error).lower():
            # RMM has no error type for a pool at its maximum size.
            used = f"{format_bytes(in_use)} of {limit} are in use"
            why = f"{used}, and no free block is as large (fragmentation)"
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

    def memory_info(self, device: int) -> tuple[int, int]:
        """Return the free and the total bytes of a device; under a limit, of the limit."""
        limit = self.limits.get(device)
        if limit is not None:
            return max(0, limit.nbytes - self.pools[device].in_use()), limit.nbytes
        return cuda_driver.memory_info(device)

    def frameworks_freeing_via(self, name: str) -> list[str]:
        """Return the attached frameworks that free through another hook's allocator."""
        return [hook.display_name for hook in self.attachments.freeing_via(name)]

    def leaks(self) -> list[Leak]:
        """Return the memory that was allocated and not freed; see `Pool.check_leaks`."""
        return [leak for device in self.pools for leak in self._outstanding(device)]

    def _outstanding(self, device: int) -> list[Leak]:
        pool, tracker = self.pools[device], self.tracker
        if tracker is None:
            current = pool.stats().current_bytes
            return [Leak(current, device)] if current > 0 else []
        if not self.uses_rmm:
            return tracker.outstanding(device)
        # RMM lists all allocations; the tracker has Python stacks for the allocations of the pool.
        number = tracker.number
        leaks: list[Leak] = pool.outstanding()
        tracker.prune(device, {leak.ptr for leak in leaks}, number)
        return [tracker.find(leak) or leak for leak in leaks]

    def refresh(self) -> list[str]:
        """Attach frameworks again whose allocator was replaced; see `Pool.refresh`."""
        self.check_open("refresh()")
        if not self.uses_rmm:
            for pool in self.pools.values():
                pool.restore_threshold()
        return self.attachments.repair()

    def trim(self) -> int:
        """Return unused memory to the devices; return the number of bytes; see `Pool.trim`."""
        if self.attachments.freeing_via(RMMHook.name):
            return 0  # these frameworks must free into the resource from which they allocated
        # RMM's Python API does not report the reserved bytes of this kind.
        free = {device: _free_bytes(device) for device in self.pools} if self.kind == "rmm:async" else {}
        trimmed = 0
        for pool in self.pools.values():
            trimmed += pool.trim()
        if self.uses_rmm:
            # The device pool may be a new one; RMM holds the old one until then.
            self.attachments.attach_again(RMMHook.name)
        return trimmed + sum(max(0, _free_bytes(device) - before) for device, before in free.items())

    def change_limit(self, fraction: float | None, nbytes: int | None, device: Any, asked: str) -> None:
        """Change the limit of one device, or of all; see `Pool.set_limit`."""
        if nbytes == 0:
            raise OptionError(asked, "no allocation would be possible", "pass None for no limit")
        devices = list(self.pools) if self.pools and device is None else [self.check_device(device)]
        if not self.uses_rmm:
            remedy = other_limits("install_pool('rmm', limit=...) has one, for")
            raise OptionError(asked, NO_LIMIT, remedy, code="no-limit")
        changed = {
            number: changed_limit(self.settings, self.kind, self.gpus.get(number), fraction, nbytes, asked)
            for number in devices
        }
        with LOADING:
            freeing = self.frameworks_freeing_via(RMMHook.name)
            for number in devices:
                self.pools[number].check_limit_can_change(asked, freeing)
            for number, limit in changed.items():
                is_replaced = self.pools[number].set_limit(limit, asked)
                kept = {other: each for other, each in self.limits.items() if other != number}
                self.limits = kept if limit is None else kept | {number: limit}
                if is_replaced:
                    self.attachments.attach_again(RMMHook.name)

    def release(self) -> None:
        """Release the device pools unless a framework still frees into them."""
        if self.attachments.freeing_via(RMMHook.name):
            return
        in_use = any(row.status is Status.INSTALLED for row in self.attachments.current())
        with ExitStack() as stack:
            for pool in self.pools.values():
                stack.callback(pool.release, in_use)

    def check_open(self, asked: str) -> None:
        """Raise if the pool was closed."""
        if self.closed:
            remedy = "install another one: zc.install_pool()"
            raise PoolClosedError(asked, "the pool was closed", remedy)

    def check_device(self, device: int | str | None) -> int:
        """Return a device on which the pool allocates; None is the first."""
        number = next(iter(self.pools), None) if device is None else device_number(device)
        if number is not None and number in self.pools:
            return number
        reason = self.missing_device or Reason(
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


def read_stream(stream: Any) -> int:
    """Return a stream's driver handle: 1 for the legacy default stream, which 0 and None mean too."""
    if stream is None:
        return LEGACY_DEFAULT_STREAM
    if not hasattr(stream, "__index__"):
        return parse_stream(stream) or LEGACY_DEFAULT_STREAM
    number = int(stream)
    if not 0 <= number < 2**64:
        raise OptionError(f"stream={stream!r}", "it is not a stream handle", "leave it out, or pass a handle")
    return number or LEGACY_DEFAULT_STREAM
