"""``forbid_copies``: a copy in a block of code is an error, a warning or a line in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, ContextDecorator
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Literal

from zerocopy import registry
from zerocopy._engine.recording import Guard, entries, guards, main_reason
from zerocopy.audit import recorder as audit_recorder, wrapper
from zerocopy.audit.check import ALIAS, AVOIDABLE, Verdict
from zerocopy.audit.recorder import FinishedCall
from zerocopy.errors import CopyRequiredError
from zerocopy.errors.invalid_option import invalid_value, unknown_option
from zerocopy.errors.tracebacks import public
from zerocopy.errors.warning import users_frame, warn
from zerocopy.framework import Framework
from zerocopy.monitor.recorder import Recorder
from zerocopy.plan import Plan
from zerocopy.pool.sizes import parse_size

_ACTIONS = ("raise", "warn", "log")


@public
def forbid_copies(
    over: int | str = 0,
    *,
    also: str | Iterable[str] = (),
    action: Literal["raise", "warn", "log"] = "raise",
) -> CopyGuard:
    """Raise an error for each conversion in a ``with`` block that copies, before it copies.

    Copies that the caller asks for, such as by ``copy=True``, `dtype` or `out`, count too. The bytes are
    those of the whole call: the sum over the columns of a table and the leaves of a container.

    Parameters
    ----------
    over : int or str, default 0
        Copies of at most this size are allowed: bytes, or a text such as ``"1 MiB"``.
    also : str or iterable of str, optional
        Names of frameworks whose own calls are checked too, and calls of others with such results: those
        that ``zerocopy audit`` knows, such as ``torch.tensor``. The error comes after such a call.
    action : {"raise", "warn", "log"}
        ``"warn"`` emits a `RuntimeWarning` at the line that copies, ``"log"`` a record of the logger
        ``zerocopy``.

    Returns
    -------
    context manager
        It guards the thread or the asyncio task that enters it, and tasks that are created in the block,
        until it ends; not threads. It can be entered again, or decorate functions. All nested guards apply.

    Raises
    ------
    OptionError, UnknownFrameworkError
        An option has an invalid value, or zerocopy knows no calls of a framework in `also`.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> x = np.arange(4.0)
    >>> with zc.forbid_copies():
    ...     zc.convert(x, "torch")
    ...     zc.convert(x[::-1], "torch")  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    zerocopy.errors.CopyRequiredError: convert(numpy.ndarray float64 (4,), to='torch'): it copies 32 bytes,
    and forbid_copies allows 0: torch does not support negative strides.
      To fix: import numpy; zc.convert(numpy.ascontiguousarray(x), "torch") makes it row-major once;
      or zc.forbid_copies(over=32) allows it
    """
    if action not in _ACTIONS:
        raise invalid_value("action", action, "action must be 'raise', 'warn' or 'log'", choices=_ACTIONS)
    frameworks = [registry.by_name(name, "also") for name in ([also] if isinstance(also, str) else also)]
    for framework in frameworks:
        if not framework.has_hook("audit"):
            known = ", ".join(each.name for each in registry.known() if each.has_hook("audit"))
            why = f"zerocopy knows no calls of {framework.name} that copy"
            raise invalid_value("also", framework.name, why, f"choose from {known}")
    return CopyGuard(parse_size(over, "over"), frameworks, action)


def guard_of_mark(max_bytes: int | str = 0, also: str | Iterable[str] = (), **unknown: Any) -> CopyGuard:
    """Return the guard of a test with the mark ``zero_copy`` of the plugin for pytest."""
    if unknown:
        raise TypeError(unknown_option("zero_copy", min(unknown), ["max_bytes", "also"]))
    guard = forbid_copies(parse_size(max_bytes, "max_bytes"), also=also)
    guard.allowance = "@pytest.mark.zero_copy(max_bytes={})"
    return guard


class CopyGuard(audit_recorder.Recorder, ContextDecorator, AbstractContextManager[None]):
    """A block in which copies are reported, and a listener of the wrappers; see `forbid_copies`."""

    raises = True
    allowance = "zc.forbid_copies(over={})"

    def __init__(self, over: int, also: list[Framework], action: str) -> None:
        super().__init__(over + 1)
        self.over = over
        self._action = action
        self._names = {framework.name for framework in also}
        self._roots = {root for each in also for root in each.root_modules or (each.name,)}
        self._recorder = Recorder(sites=False)  # while it is started, all conversions take the slow path
        self._entries: list[list[Guard]] = []

    def __repr__(self) -> str:
        return f"forbid_copies(over={self.over}, also={sorted(self._names)}, action={self._action!r})"

    def __call__(self, function: Any) -> Any:
        if isgeneratorfunction(function) or iscoroutinefunction(function) or isasyncgenfunction(function):
            raise TypeError("forbid_copies() decorates no generator or coroutine: write `with` in its body")
        return super().__call__(function)

    def __enter__(self) -> None:
        entry: list[Guard] = [self]
        with self._lock:
            if not self._entries:
                self._recorder.start()
                try:
                    if self._names:
                        wrapper.add(self)
                except BaseException:
                    self._recorder.stop()  # else conversions would stay slow
                    raise
            self._entries.append(entry)
        entries.set((*entries.get(), entry))

    def __exit__(self, *error: object) -> None:
        # Without a token: a generator can leave its block after an outer one, or in another context.
        with self._lock:
            entry = [*self._entries, *(each for each in entries.get() if self in each)][-1]
            entry.clear()
            entries.set(tuple(filter(None, entries.get())))
            self._entries.remove(entry)  # the only empty one
            if not self._entries:
                self._recorder.stop()
                wrapper.remove(self)

    def report(self, error: CopyRequiredError, nbytes: int, /) -> None:
        """Raise or emit the error for a call that copies."""
        allow = f"{self.allowance.format(nbytes)} allows it"
        remedy = f"{error.remedy}; or {allow}" if error.remedy else allow
        if self._action == "raise":
            raise error.with_context(remedy=remedy)
        text = str(error.with_context(remedy=remedy))
        if self._action == "warn":
            warn(text)
        else:
            import logging  # most guards raise

            frame = users_frame(sys._getframe())
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            logging.getLogger("zerocopy").warning("%s: %s", place, text)

    # -- calls of the frameworks -----------------------------------------------------

    def wants(self, key: tuple[int, ...]) -> bool:
        return self in guards()

    def check(self, finished: FinishedCall) -> None:
        owner = finished.call.owner
        module = getattr(owner, "__module__", owner.__name__)  # of a class, or a module itself
        if finished.call.to in self._names or module.partition(".")[0] in self._roots:
            super().check(finished)

    def add(self, finished: FinishedCall, verdict: Verdict | None) -> None:
        if verdict is None or verdict.kind == ALIAS:
            return
        text, argument, fix = finished.texts(verdict.options)
        why = "convert aliases"
        if verdict.kind != AVOIDABLE:
            why, plan = verdict.why, verdict.plan or Plan("", "")
            other = f"{fix} aliases, if its result can replace this one" * plan.zero_copy
            fix = (main_reason(plan, argument) or ("", other))[1]
        why = f"it copies {verdict.nbytes:,} bytes, and forbid_copies allows {self.over:,}: {why}"
        self.report(CopyRequiredError(text, why, fix, code="call-copies"), verdict.nbytes)
