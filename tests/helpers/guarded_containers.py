"""Containers that record each use during the package's functions for forked children.

On a free-threaded build each dict, set, deque and cache has a lock, which another thread of the parent may
have got before the fork. A function that uses one in the child can then wait forever.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

#: Methods that create a container, or that read nothing of it.
_FREE = {"__new__", "__init__", "__getattribute__", "__hash__", "__class_getitem__", "__doc__", "__del__"}
_CACHE = type(functools.lru_cache(len))
_WEAK = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)

#: The running function for forked children; empty between them.
running = ""
#: Names of a function and of the method that it called.
used: list[tuple[str, str]] = []
#: The functions that were registered, by the place of the registration.
registered: dict[tuple[str, int], str] = {}


def _note(method: str) -> None:
    if running:
        used.append((running, method))


def _guarded(kind: type) -> type:
    def recorded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **keywords: Any) -> Any:
            _note(f"{kind.__name__}.{name}")
            return method(self, *args, **keywords)

        return call

    names = {name: recorded(name, each) for name, each in vars(kind).items() if callable(each)}
    return type(f"Guarded{kind.__name__}", (kind,), {k: v for k, v in names.items() if k not in _FREE})


class _GuardedCache:
    """A function with a cache, in place of that of functools, which is not a base type."""

    def __init__(self, cached: Any) -> None:
        self._cached = cached

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        _note("cache.__call__")
        return self._cached(*args, **keywords)

    def __getattr__(self, name: str) -> Any:
        _note(f"cache.{name}")
        return getattr(self._cached, name)


_GUARDS = {kind: _guarded(kind) for kind in (dict, set, deque)}


def watch_registrations() -> None:
    """Wrap the functions that zerocopy registers for forked children from now on."""
    register = os.register_at_fork

    def wrapped(*, after_in_child: Callable[[], object] | None = None, **others: Any) -> None:
        caller = sys._getframe(1)
        if after_in_child is not None and caller.f_globals["__name__"].startswith("zerocopy"):
            name = f"{caller.f_globals['__name__']}:{getattr(after_in_child, '__qualname__', after_in_child)}"
            registered[caller.f_code.co_filename, caller.f_lineno] = name
            after_in_child = functools.partial(_run, name, after_in_child)
        if after_in_child is not None:
            others["after_in_child"] = after_in_child
        register(**others)

    os.register_at_fork = wrapped


def _run(name: str, function: Callable[[], object]) -> None:
    global running
    running = name
    sys.setprofile(_profile)  # calls of methods that were bound earlier
    try:
        function()
    finally:
        sys.setprofile(None)
        running = ""


def _profile(frame: Any, event: str, function: Any) -> None:
    if event == "c_call" and isinstance(getattr(function, "__self__", None), _CACHE):
        _note(f"cache.{function.__name__}")


def guard_all() -> int:
    """Replace the containers that zerocopy's modules and their objects hold; return how many."""
    guards: dict[int, Any] = {}
    seen: set[int] = set()
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "zerocopy" and type(module) is type(sys):
            _guard_attributes(module, guards, seen)
    return len(guards)


def _guard_attributes(owner: Any, guards: dict[int, Any], seen: set[int]) -> None:
    if id(owner) in seen:
        return
    seen.add(id(owner))
    for name, value in list(_attributes(owner)):
        if name.startswith("__"):
            continue
        kind = type(value)
        if (kind in _GUARDS or kind is _CACHE) and not isinstance(owner, type):
            if id(value) not in guards:
                guard = _GuardedCache(value) if kind is _CACHE else _GUARDS[kind](value)
                guards[id(value)] = guard, value  # which keeps the identity of the value
            with contextlib.suppress(AttributeError, TypeError):  # it is read-only
                object.__setattr__(owner, name, guards[id(value)][0])
        elif kind in _WEAK or kind.__module__.partition(".")[0] == "zerocopy":
            _guard_attributes(value, guards, seen)


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(owner, "__dict__", {}).items()
    for cls in type(owner).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            hidden = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") else name
            if hasattr(owner, hidden):
                yield hidden, getattr(owner, hidden)
