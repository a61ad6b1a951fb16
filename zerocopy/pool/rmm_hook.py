"""RMM's per-device resource, from which cuDF, pylibcudf and others allocate."""

from __future__ import annotations

from typing import Any

from zerocopy.errors import Reason
from zerocopy.pool.hook import PoolHook, join_names
from zerocopy.pool.protocol import PoolInterface


class RMMHook(PoolHook):
    """Sets RMM's resource of each device, and restores the previous ones."""

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
