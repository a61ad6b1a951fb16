"""How frameworks are attached to a pool: the hooks, RMM's own, their order, and how each is undone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from zerocopy.errors import Reason
from zerocopy.errors.warning import warn
from zerocopy.forks import LOADING
from zerocopy.interpreter import imports
from zerocopy.pool.hook import Attachment, PoolHook, PoolInterface, Status, join_names


class Attachments:
    """Hooks in their order, with an `Attachment` for each."""

    def __init__(self, pool: PoolInterface, hooks: list[PoolHook]) -> None:
        self._pool = pool
        self.hooks = hooks
        self._rows: dict[str, Attachment] = {}
        self._variables: dict[str, dict[str, tuple[str | None, str]]] = {}
        self._callbacks: list[Callable[[], None]] = []
        self._started: set[str] = set()
        self._closed = False
        self._attached = False

    def predict(self) -> list[Attachment]:
        """Return, and keep, the effects of `attach`; nothing is changed."""
        self._rows = {hook.name: self._predict(hook) for hook in self.hooks}
        return list(self._rows.values())

    def _predict(self, hook: PoolHook) -> Attachment:
        if not self._is_wanted(hook):
            return Attachment(hook.name, Status.UNSUPPORTED, "not in frameworks=")
        return hook.predict(self._pool, os.environ)

    def _is_wanted(self, hook: PoolHook) -> bool:
        """Whether the pool is for a framework, or for another one that allocates via that framework."""
        wants = self._pool.settings.wants
        return wants(hook.name) or any(
            wants(other.name) and other.allocates_via(self._pool) == hook.name for other in self.hooks
        )

    def current(self) -> list[Attachment]:
        """Return the present state of each attachment."""
        if self._closed or not self._attached:  # a preview attaches nothing that could have been replaced
            return list(self._rows.values())
        imports.catch_up()
        return [self._current(hook) for hook in self.hooks]

    def _current(self, hook: PoolHook) -> Attachment:
        try:
            return hook.current(self._pool, self._rows[hook.name])
        except Exception as error:  # noqa: BLE001 - a broken framework is a row, the report goes on
            return Attachment(hook.name, Status.UNSUPPORTED, f"{type(error).__name__}: {error}")

    def _is_installed(self, hook: PoolHook) -> bool:
        return self._rows[hook.name].status is Status.INSTALLED

    def freeing_via(self, name: str) -> list[PoolHook]:
        """Return the attached frameworks that need another hook's allocator when they free."""
        return [h for h in self.hooks if self._is_installed(h) and h.frees_via(self._pool) == name]

    def attach(self) -> None:
        """Attach all frameworks: variables first, then RMM, then the frameworks that need a call."""
        with LOADING:
            self._attached = True
            for hook in self.hooks:
                self._set_variables(hook)
            for hook in self.hooks:
                status = self._rows[hook.name].status
                if status is Status.INSTALLED:
                    self._attach(hook)
                elif status in (Status.PENDING_IMPORT, Status.ENV_PENDING):
                    self._attach_later(hook)

    def _set_variables(self, hook: PoolHook) -> None:
        pool = self._pool
        if not (self._is_wanted(hook) and pool.missing_device is None and hook.installed()):
            return
        variables = {n: v for n, v in hook.prealloc_env(pool).items() if n not in os.environ}
        if self._rows[hook.name].status is Status.ENV_PENDING:
            variables |= hook.allocator_env(pool, os.environ)
        for name, value in variables.items():
            self._variables.setdefault(hook.name, {})[name] = (os.environ.get(name), value)
            os.environ[name] = value

    def _restore_variables(self, hook: PoolHook) -> None:
        """Restore the variables that still have the values that the pool set."""
        for name, (before, value) in self._variables.pop(hook.name, {}).items():
            if os.environ.get(name) == value:
                if before is None:
                    del os.environ[name]
                else:
                    os.environ[name] = before

    def _attach_later(self, hook: PoolHook) -> None:
        def callback() -> None:
            # Without LOADING: this thread holds the import's lock, for which the thread that holds
            # LOADING may wait. So it checks afterwards whether the pool was closed meanwhile.
            if not self._closed and hook.has_read_env():
                self._attach(hook)
                if self._closed:
                    hook.detach(self._pool)  # type: ignore[unreachable]  # another thread closes it

        self._callbacks.append(callback)
        imports.when_imported(hook.module or hook.name, callback)

    def _attach(self, hook: PoolHook) -> None:
        """Attach an imported framework; a failure becomes its row, and a warning."""
        reason = hook.lacks_gpu()  # exact now that it is imported
        if reason is not None:
            self._rows[hook.name] = Attachment(hook.name, Status.UNSUPPORTED, reason.why, reason.remedy)
            return
        self._started.add(hook.name)  # before attach(), which may fail after it changed something
        try:
            detail = hook.attach(self._pool)
        except Exception as error:  # noqa: BLE001 - the other frameworks keep the pool
            why = f"{type(error).__name__}: {error}"
            self._rows[hook.name] = Attachment(hook.name, Status.UNSUPPORTED, why)
            warn(f"zerocopy's pool is not attached to {hook.name}: {why}")
        else:
            detail = detail or self._rows[hook.name].detail
            self._rows[hook.name] = Attachment(hook.name, Status.INSTALLED, detail)

    def attach_again(self, name: str) -> None:
        """Attach an attached framework once more, because its device pool has changed."""
        with LOADING:
            for hook in self.hooks:
                if hook.name == name and self._is_installed(hook):
                    self._attach(hook)

    def repair(self) -> list[str]:
        """Attach frameworks again whose allocator was replaced; return their names."""
        with LOADING:
            replaced = [row.framework for row in self.current() if row.status is Status.REPLACED]
            for name in replaced:
                self.attach_again(name)
            return [name for name in replaced if self._rows[name].status is Status.INSTALLED]

    def detach(self) -> None:
        """Restore the frameworks' own allocators where possible, in reverse order."""
        with LOADING, ExitStack() as stack:
            self._closed = True
            for callback in self._callbacks:
                imports.cancel(callback)
            for hook in self.hooks:  # the stack calls all of them, even if one raises
                stack.callback(self._detach, hook)

    def _detach(self, hook: PoolHook) -> None:
        now, before = self._current(hook), self._rows[hook.name].status
        self._restore_variables(hook)
        # Also after a failed attachment: a hook restores only what it has changed itself.
        if hook.name in self._started or (before is Status.ENV_PENDING and now.status is Status.INSTALLED):
            try:
                reason = hook.detach(self._pool)
            except Exception as error:  # noqa: BLE001 - the other frameworks are still detached
                reason = Reason(f"{type(error).__name__}: {error}", code="framework-error")
            if reason is not None and before is not Status.UNSUPPORTED:
                now = Attachment(hook.name, Status.INSTALLED, reason.why, reason.remedy)
            elif now.status in (Status.INSTALLED, Status.REPLACED):
                now = Attachment(hook.name, Status.RESTORED)
        elif now.status in (Status.INSTALLED, Status.PENDING_IMPORT, Status.ENV_PENDING):
            now = Attachment(hook.name, Status.RESTORED)
        self._rows[hook.name] = now


class RMMHook(PoolHook):
    """Sets RMM's resource of each device, from which cuDF, pylibcudf and others allocate."""

    name = "rmm"
    title = "RMM"
    module = "rmm.mr"
    rank = 10

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._resources: dict[int, Any] = {}

    def attach(self, pool: PoolInterface) -> str:
        import rmm.mr as mr

        for device in pool.devices:
            resource = pool.pools[device].resource(mr)
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

    classes = [hook_class(type(each), PoolHook) for each in registry.known()]
    return sorted((cls() for cls in classes if cls is not PoolHook), key=lambda hook: hook.rank)


def framework_names() -> list[str]:
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
