"""All hooks, those of the registered frameworks and RMM's, and what they add to messages about limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zerocopy.errors import Reason
from zerocopy.pool.hook import PoolHook, PoolInterface, join_names


class RMMHook(PoolHook):
    """Sets RMM's resource of each device, from which cuDF, pylibcudf and others allocate."""

    name = "rmm"
    title = "RMM"
    module = "rmm.mr"
    rank = 10
    pool_kind = "rmm"

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._resources: dict[int, Any] = {}

    def attach(self, pool: PoolInterface) -> str:
        import rmm.mr as mr

        for device in pool.devices:
            resource = pool.device_pool(device).resource(mr)
            self._before.setdefault(device, mr.get_per_device_resource(device))
            self._resources[device] = resource  # first, so that `detach` undoes half an attachment
            mr.set_per_device_resource(device, resource)
        return "the resource of each device, for all frameworks that allocate via RMM"

    def is_attached(self, pool: PoolInterface) -> bool:
        import rmm.mr as mr

        return all(mr.get_per_device_resource(device) is own for device, own in self._resources.items())

    def detach(self, pool: PoolInterface) -> Reason | None:
        import rmm.mr as mr

        users = pool.frameworks_freeing_via(self.name)
        if users:
            return Reason(
                f"{join_names(users)} frees into RMM's resource of the device, which therefore stays",
                "end the process",
                code="allocator-in-use",
            )
        for device, before in self._before.items():
            if mr.get_per_device_resource(device) is self._resources.get(device):
                mr.set_per_device_resource(device, before)
        self._resources.clear()
        return None


def all_hooks() -> list[PoolHook]:
    """Return new hooks of RMM and of each framework that has one, in order of attachment."""
    return sorted([RMMHook(), *framework_hooks()], key=lambda hook: hook.rank)


def framework_hooks() -> list[PoolHook]:
    """Return a new hook of each framework that has one, in the same order."""
    from zerocopy import registry  # imports NumPy, which parsing options does not need
    from zerocopy.framework import hook_class

    frameworks = [each for each in registry.known() if each.has_hook("pool")]
    return sorted((hook_class(type(each), PoolHook)() for each in frameworks), key=lambda hook: hook.rank)


def names() -> list[str]:
    """Return the names of the frameworks that can use a pool."""
    return [hook.name for hook in all_hooks()]


def own_limits(hooks: Iterable[PoolHook]) -> list[str]:
    """Return one clause for each framework that can limit itself."""
    return [f"{hook.own_limit} limits {hook.display_name}" for hook in hooks if hook.own_limit]


def other_limits(pool_limit: str) -> str:
    """Return all limits of GPU memory as clauses; `pool_limit` is the one that the pool can have."""
    sharing = framework_hooks()
    limited = join_names(hook.display_name for hook in sharing if not hook.shares_driver_pool)
    return "; ".join([f"{pool_limit} {limited}", *own_limits(sharing), "MPS and MIG limit whole processes"])
