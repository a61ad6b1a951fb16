"""``Wrapper``: a callable in the place of a framework's function, which reports calls to the audits."""

from __future__ import annotations

import functools
import pkgutil
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType, MethodType
from typing import Any, Protocol

from zerocopy.audit.hook import CopyCall


class Listener(Protocol):
    """An audit that is running."""

    def wants(self, key: tuple[int, ...]) -> bool:
        """Count a call of one place, and return whether to check it."""

    def check(
        self, key: tuple[int, ...], call: CopyCall, frame: FrameType, source: Any, result: Any, details: Any
    ) -> None:
        """Compare the result of a call with the one of ``convert``."""


#: The audits that run, of all threads. Replaced, never changed.
LISTENERS: tuple[Listener, ...] = ()
#: Functions that return whether a compiler traces the program; the wrapper then only calls the original.
TRACING: tuple[Callable[[], bool], ...] = ()
#: Top-level modules whose own calls do not count.
INTERNAL: frozenset[str] = frozenset()


class _Busy(threading.local):
    #: Whether this thread is in a wrapped call, or checks one.
    now = False


_BUSY = _Busy()


def add_tracing(functions: Iterable[Callable[[], bool]]) -> None:
    """Add functions to `TRACING`."""
    global TRACING
    TRACING = tuple(dict.fromkeys((*TRACING, *functions)))


def set_internal(roots: set[str]) -> None:
    """Replace the top-level modules whose own calls do not count; zerocopy is one of them."""
    global INTERNAL
    INTERNAL = frozenset({"zerocopy", *roots})


def set_listeners(listeners: tuple[Listener, ...]) -> None:
    """Replace the audits that wrapped calls report to."""
    global LISTENERS
    LISTENERS = listeners


class Wrapper:
    """A call that is equal to the original and has its name, signature and attributes.

    It is equal, with the same hash, because Numba and ``torch.compile`` look functions up in dictionaries.
    A copy that outlives the audit, such as one of ``from torch import tensor``, only calls the original.
    """

    def __init__(self, original: Any, call: CopyCall) -> None:
        functools.update_wrapper(self, original)
        self._call = call

    def __call__(self, /, *args: Any, **options: Any) -> Any:
        original = self.__wrapped__  # type: ignore[attr-defined]
        for is_tracing in TRACING:
            if is_tracing():
                return original(*args, **options)
        listeners = LISTENERS
        if not listeners or _BUSY.now:
            return original(*args, **options)
        frame = sys._getframe(1)
        if _is_internal(frame):
            return original(*args, **options)
        key = (id(frame.f_code), frame.f_lasti, id(self))
        listeners = tuple(listener for listener in listeners if listener.wants(key))
        _BUSY.now = True
        try:
            if not listeners:
                return original(*args, **options)
            start = time.perf_counter()
            result = original(*args, **options)
            seconds = time.perf_counter() - start
            source = self._call.source(args, options)
            produced = args[0] if self._call.form == "constructor" else result
            for listener in listeners:
                listener.check(key, self._call, frame, source, produced, (options, seconds))
            return result
        finally:
            _BUSY.now = False

    def __get__(self, obj: Any, cls: type | None = None) -> Any:
        if obj is None or not hasattr(type(self.__wrapped__), "__get__"):  # type: ignore[attr-defined]
            return self  # a built-in function is not bound to objects
        return MethodType(self, obj)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["__wrapped__"], name)

    def __eq__(self, other: object) -> bool:
        original = self.__wrapped__  # type: ignore[attr-defined]
        return bool(original == (other.__wrapped__ if isinstance(other, Wrapper) else other))

    def __hash__(self) -> int:
        return hash(self.__wrapped__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self.__wrapped__)  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        return _by_name, (_path(self._call),)


def _is_internal(frame: FrameType) -> bool:
    """Whether a frame runs code of a framework or of zerocopy."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in INTERNAL


def _path(call: CopyCall) -> str:
    owner = call.owner
    if isinstance(owner, type):
        return f"{owner.__module__}:{owner.__qualname__}.{call.attribute}"
    return f"{owner.__name__}:{call.attribute}"


def _by_name(path: str) -> Any:
    """Return the function of that path in the process that reads the pickle: wrapped or not."""
    return pkgutil.resolve_name(path)
