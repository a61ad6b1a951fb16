"""The frameworks of one pool: who is told when, what became of it, and how it is undone."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from zerocopy.forks import LOADING
from zerocopy.pool import imports
from zerocopy.pool.hook import PoolHook
from zerocopy.pool.outcome import Outcome, Status

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


class Attachments:
    """Hooks in their order, and an outcome for each.

    Parameters
    ----------
    pool : Pool
    hooks : list of PoolHook
    """

    def __init__(self, pool: Pool, hooks: list[PoolHook]) -> None:
        self._pool = pool
        self._hooks = hooks
        self._outcomes: dict[str, Outcome] = {}
        self._variables: dict[str, dict[str, tuple[str | None, str]]] = {}
        self._waiting: list[Callable[[], None]] = []
        self._told: set[str] = set()
        self._closed = False

    def foresee(self) -> list[Outcome]:
        """Return, and remember, what `attach` would come to; nothing is changed."""
        self._outcomes = {each.name: self._foreseen(each) for each in self._hooks}
        return list(self._outcomes.values())

    def _foreseen(self, each: PoolHook) -> Outcome:
        if not self._pool.settings.wants(each.name):
            return Outcome(each.name, Status.UNSUPPORTED, "not in frameworks=")
        return each.foresee(self._pool, os.environ)

    def outcomes(self) -> list[Outcome]:
        """Return what has become of each by now."""
        if self._closed:
            return list(self._outcomes.values())
        return [each.now(self._pool, self._outcomes[each.name]) for each in self._hooks]

    def outcome(self, name: str) -> Outcome | None:
        """Return one of them as it was left."""
        return self._outcomes.get(name)

    def attach(self) -> None:
        """Put the pool under the frameworks: variables first, then RMM, torch, CuPy, Numba."""
        with LOADING:
            for each in self._hooks:
                self._set_variables(each)
            for each in self._hooks:
                status = self._outcomes[each.name].status
                if status is Status.INSTALLED:
                    self._tell(each)
                elif status in (Status.PENDING_IMPORT, Status.ENV_PENDING):
                    self._wait(each)

    def _set_variables(self, each: PoolHook) -> None:
        pool = self._pool
        if not (pool.settings.wants(each.name) and pool.no_device() is None and each.installed()):
            return
        wanted = {n: v for n, v in each.courtesies(pool).items() if n not in os.environ}
        if self._outcomes[each.name].status is Status.ENV_PENDING:
            wanted |= each.variables(pool, os.environ)
        for name, value in wanted.items():
            self._variables.setdefault(each.name, {})[name] = (os.environ.get(name), value)
            os.environ[name] = value

    def _take_back(self, each: PoolHook) -> None:
        """Put the environment back as it was, as far as nobody has changed it since."""
        for name, (before, ours) in self._variables.pop(each.name, {}).items():
            if os.environ.get(name) == ours:
                if before is None:
                    del os.environ[name]
                else:
                    os.environ[name] = before

    def _wait(self, each: PoolHook) -> None:
        def told() -> None:
            # Without the lock: this thread holds that of the import, which the thread that has
            # ours may be waiting for. So it looks afterwards whether the pool was closed meanwhile.
            # One whose variables are read later than its import is asked for in `now`.
            if not self._closed and each.has_read():
                self._tell(each)
                if self._closed:
                    each.detach(self._pool)

        self._waiting.append(told)
        imports.when_loaded(each.module or each.name, told)

    def _tell(self, each: PoolHook) -> None:
        """Tell a framework that is imported; what goes wrong is its outcome, and a warning."""
        reason = each.lacks_gpu()  # known for certain now
        if reason is not None:
            self._outcomes[each.name] = Outcome(each.name, Status.UNSUPPORTED, reason.why, reason.remedy)
            return
        self._told.add(each.name)  # before: half of it may be done when it fails
        try:
            what = each.attach(self._pool)
        except Exception as error:  # noqa: BLE001 - what other frameworks got stands, and this is said
            why = f"{type(error).__name__}: {error}"
            self._outcomes[each.name] = Outcome(each.name, Status.UNSUPPORTED, why)
            warnings.warn(f"zerocopy's pool is not under {each.name}: {why}", RuntimeWarning, stacklevel=2)
        else:
            what = what or self._outcomes[each.name].what.removesuffix(", when it starts")
            self._outcomes[each.name] = Outcome(each.name, Status.INSTALLED, what)

    def tell_again(self, name: str) -> None:
        """Tell a framework once more, if it was told: what it was told has changed."""
        with LOADING:
            for each in self._hooks:
                if each.name == name and self._outcomes[name].status is Status.INSTALLED:
                    self._tell(each)

    def put_right(self) -> list[str]:
        """Tell those again that somebody else has told otherwise; return their names."""
        with LOADING:
            lost = [o.framework for o in self.outcomes() if o.status is Status.REPLACED]
            for name in lost:
                self.tell_again(name)
            return lost

    def detach(self) -> None:
        """Give each its own allocator back, the last one first, where that can be."""
        with LOADING:
            self._closed = True
            for told in self._waiting:
                imports.forget(told)
            for each in reversed(self._hooks):
                before = each.now(self._pool, self._outcomes[each.name])
                read = self._outcomes[each.name].status is Status.ENV_PENDING
                if before.status is Status.INSTALLED and (read or each.name in self._told):
                    reason = each.detach(self._pool)
                    before = (
                        Outcome(each.name, Status.RESTORED)
                        if reason is None
                        else Outcome(each.name, Status.INSTALLED, reason.why, reason.remedy)
                    )
                elif before.status in (Status.PENDING_IMPORT, Status.ENV_PENDING):
                    before = Outcome(each.name, Status.RESTORED)
                self._take_back(each)
                self._outcomes[each.name] = before
