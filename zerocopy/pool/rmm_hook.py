"""RMM's per-device resource: what cuDF and pylibcudf allocate from, and who else is on RMM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocopy.errors import Reason
from zerocopy.pool.advice import listed
from zerocopy.pool.hook import PoolHook

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


class RMMHook(PoolHook):
    """Sets RMM's resource of each device, and sets the former ones back."""

    name = "rmm"
    title = "RMM"
    module = "rmm.mr"
    rank = 10

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._ours: dict[int, Any] = {}

    def attach(self, pool: Pool) -> str:
        import rmm.mr as mr

        for device in pool.devices:
            resource = pool.device_pool(device).resource(mr)
            self._before.setdefault(device, mr.get_per_device_resource(device))
            self._ours[device] = resource  # before: half-way is set back too
            mr.set_per_device_resource(device, resource)
        return "the resource of each device, for all that allocate through RMM"

    def holds(self, pool: Pool) -> bool:
        import rmm.mr as mr

        return all(mr.get_per_device_resource(device) is ours for device, ours in self._ours.items())

    def detach(self, pool: Pool) -> Reason | None:
        import rmm.mr as mr

        held = pool.attachments.freeing_through(self.name)
        if held:
            who = listed(each.shown for each in held)
            return Reason(
                f"{who} frees into RMM's resource of the device, and so it stays", "end the process"
            )
        for device, before in self._before.items():
            if mr.get_per_device_resource(device) is self._ours.get(device):
                mr.set_per_device_resource(device, before)
        self._ours.clear()
        return None
