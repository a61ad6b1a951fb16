"""The frameworks of one pool: who is told when, what became of it, and how it is undone."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from zerocopy.errors import Reason
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
        In the order in which they are told.
    """

    def __init__(self, pool: Pool, hooks: list[PoolHook]) -> None:
        self._pool = pool
        self.hooks = hooks
        self._outcomes: dict[str, Outcome] = {}
        self._variables: dict[str, dict[str, tuple[str | None, str]]] = {}
        self._waiting: list[Callable[[], None]] = []
        self._told: set[str] = set()
        self._closed = False
        self._attached = False

    def foresee(self) -> list[Outcome]:
        """Return, and remember, what `attach` would come to; nothing is changed."""
        self._outcomes = {each.name: self._foreseen(each) for each in self.hooks}
        return list(self._outcomes.values())

    def _foreseen(self, each: PoolHook) -> Outcome:
        if not self._wanted(each):
            return Outcome(each.name, Status.UNSUPPORTED, "not in frameworks=")
        return each.foresee(self._pool, os.environ)

    def _wanted(self, each: PoolHook) -> bool:
        """Whether it is asked for, or one that is asked for allocates through it."""
        wants = self._pool.settings.wants
        return wants(each.name) or any(
            wants(other.name) and other.through(self._pool) == each.name for other in self.hooks
        )

    def outcomes(self) -> list[Outcome]:
        """Return what has become of each by now."""
        if self._closed:
            return list(self._outcomes.values())
        if self._attached:
            imports.catch_up()  # with those whose import went past us
        return [self._now(each) for each in self.hooks]

    def _now(self, each: PoolHook) -> Outcome:
        try:
            return each.now(self._pool, self._outcomes[each.name])
        except Exception as error:  # noqa: BLE001 - one that is broken is a row, and no end to the report
            return Outcome(each.name, Status.UNSUPPORTED, f"{type(error).__name__}: {error}")

    def freeing_through(self, name: str) -> list[PoolHook]:
        """Return those who are on the pool and must find a hook's doing as it is when they free."""
        installed = [each for each in self.hooks if self._outcomes[each.name].status is Status.INSTALLED]
        return [each for each in installed if each.frees_through(self._pool) == name]

    def attach(self) -> None:
        """Put the pool under the frameworks: variables first, then RMM, then those who are told by a call."""
        with LOADING:
            self._attached = True
            for each in self.hooks:
                self._set_variables(each)
            for each in self.hooks:
                status = self._outcomes[each.name].status
                if status is Status.INSTALLED:
                    self._tell(each)
                elif status in (Status.PENDING_IMPORT, Status.ENV_PENDING):
                    self._wait(each)

    def _set_variables(self, each: PoolHook) -> None:
        pool = self._pool
        if not (self._wanted(each) and pool.no_device() is None and each.installed()):
            return
        wanted = {n: v for n, v in each.courtesies(pool).items() if n not in os.environ}
        if self._outcomes[each.name].status is Status.ENV_PENDING:
            wanted |= each.variables(pool, os.environ)
        for name, value in wanted.items():
            self._variables.setdefault(each.name, {})[name] = (os.environ.get(name), value)
            os.environ[name] = value

    def _take_back(self, each: PoolHook) -> None:
        """Put the environment back as it was, as far as nobody has changed it since."""
        for name, (before, ours) in self._variables.get(each.name, {}).items():
            if os.environ.get(name) == ours:
                if before is None:
                    del os.environ[name]
                else:
                    os.environ[name] = before
        self._variables.pop(each.name, None)

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
            for each in self.hooks:
                if each.name == name and self._outcomes[name].status is Status.INSTALLED:
                    self._tell(each)

    def put_right(self) -> list[str]:
        """Tell those again that somebody else has told otherwise; return their names."""
        with LOADING:
            lost = [o.framework for o in self.outcomes() if o.status is Status.REPLACED]
            for name in lost:
                self.tell_again(name)
            return [name for name in lost if self._outcomes[name].status is Status.INSTALLED]

    def detach(self) -> None:
        """Give each its own allocator back, the last one first, where that can be."""
        with LOADING, ExitStack() as stack:
            self._closed = True
            for told in self._waiting:
                imports.forget(told)
            for each in self.hooks:  # undone in the reverse order, all of them, whatever one does
                stack.callback(self._undo, each)

    def _undo(self, each: PoolHook) -> None:
        now, was = self._now(each), self._outcomes[each.name].status
        self._take_back(each)
        # Whoever was told, whatever it came to: a hook sets back what is its own and nothing else.
        if each.name in self._told or (was is Status.ENV_PENDING and now.status is Status.INSTALLED):
            try:
                reason = each.detach(self._pool)
            except Exception as error:  # noqa: BLE001 - the others are given theirs, and this is its row
                reason = Reason(f"{type(error).__name__}: {error}", "")
            if reason is not None and was is not Status.UNSUPPORTED:
                now = Outcome(each.name, Status.INSTALLED, reason.why, reason.remedy)
            elif now.status in (Status.INSTALLED, Status.REPLACED):
                now = Outcome(each.name, Status.RESTORED)
        elif now.status in (Status.INSTALLED, Status.PENDING_IMPORT, Status.ENV_PENDING):
            now = Outcome(each.name, Status.RESTORED)
        self._outcomes[each.name] = now
