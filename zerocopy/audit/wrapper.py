"""Replaces the frameworks' calls by wrappers while an audit runs, which report them; and restores them."""

from __future__ import annotations

import functools
import pkgutil
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType, MethodType
from typing import Any

from zerocopy import forks, registry
from zerocopy.audit.hook import AuditHook, CopyCall
from zerocopy.audit.recorder import FinishedCall, Recorder
from zerocopy.errors import ZeroCopyError
from zerocopy.errors.tracebacks import shorten
from zerocopy.framework import Framework, hook_of
from zerocopy.interpreter import imports

#: The audits that run, of all threads. Replaced, never changed.
LISTENERS: tuple[Recorder, ...] = ()
#: Functions that return whether a compiler traces the program; the wrapper then only calls the original.
TRACING: tuple[Callable[[], bool], ...] = ()
#: Top-level modules whose own calls do not count.
INTERNAL: frozenset[str] = frozenset()


_lock = forks.lock()
_MISSING: Any = object()


class _Busy(threading.local):
    #: Whether this thread is in a wrapped call, or checks one.
    now = False


_BUSY = _Busy()


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
            finished = FinishedCall(key, self._call, frame, source, produced, options, seconds)
            try:
                for listener in listeners:
                    listener.check(finished)
            except ZeroCopyError as error:  # of a guard: its traceback ends at the caller's line
                shorten(error)
                raise
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


# -- replacing and restoring ---------------------------------------------------------------


class _Patches:
    """The replaced attributes, and callbacks for the frameworks that are not imported yet."""

    def __init__(self) -> None:
        self.replaced: list[tuple[CopyCall, Any, Any]] = []
        self.waiting: dict[str, Callable[[], None]] = {}
        #: Originals and their wrappers, by owner, attribute and original, which they keep alive.
        self._wrappers: dict[tuple[int, str, int], tuple[Any, Any]] = {}

    def install(self) -> None:
        """Patch the frameworks that are imported; the others at the end of their import."""
        global INTERNAL
        frameworks = registry.known()
        roots = {root for each in frameworks for root in each.root_modules or (each.name,)}
        INTERNAL = frozenset({"zerocopy", *roots})
        for framework in frameworks:
            name = framework.name
            if framework.has_hook("audit"):
                self.waiting[name] = partial(self._patch_imported, framework)
                imports.when_imported(name, self.waiting[name])

    def _patch_imported(self, framework: Framework) -> None:
        """Patch a framework at the end of its import: ``from torch import tensor`` imports the wrapper."""
        with _lock:
            if self.waiting.pop(framework.name, None) is not None:
                self.patch(framework)

    def patch(self, framework: Framework) -> None:
        """Replace the calls of an imported framework."""
        global TRACING
        hook = hook_of(framework, AuditHook)
        TRACING = tuple(dict.fromkeys((*TRACING, *hook.tracing())))
        for call in hook.calls():
            old = vars(call.owner).get(call.attribute, _MISSING)
            original = getattr(call.owner, call.attribute, None) if old is _MISSING else old
            if original is None or isinstance(original, Wrapper):
                continue
            new = self._replacement(original, call, hook)
            setattr(call.owner, call.attribute, new)
            self.replaced.append((call, old, new))

    def restore(self) -> None:
        """Set all attributes back, except those that the program has replaced itself."""
        for callback in self.waiting.values():
            imports.cancel(callback)
        self.waiting.clear()
        for call, old, new in reversed(self.replaced):
            if vars(call.owner).get(call.attribute) is not new:
                continue
            if old is _MISSING:
                delattr(call.owner, call.attribute)
            else:
                setattr(call.owner, call.attribute, old)
        self.replaced.clear()

    def _replacement(self, original: Any, call: CopyCall, hook: AuditHook) -> Any:
        """Return the wrapper of an attribute; the same object in each audit."""
        key = (id(call.owner), call.attribute, id(original))
        if key in self._wrappers:
            return self._wrappers[key][1]
        replacement: Any
        if isinstance(original, property):
            getter = Wrapper(original.fget, call)
            replacement = property(getter, original.fset, original.fdel, original.__doc__)
        else:
            replacement = Wrapper(original, call)
            hook.adopt(original, replacement)
        self._wrappers[key] = original, replacement
        return replacement


_patches = _Patches()


def add(listener: Recorder) -> None:
    """Report calls to a listener; the first one installs the wrappers."""
    global LISTENERS
    registry.known()  # outside the lock: it imports the modules of plugins
    with _lock:
        others = LISTENERS
        LISTENERS = tuple(sorted((listener, *others), key=lambda each: each.raises))
        if not others:
            try:
                _patches.install()
            except BaseException:
                remove(listener)
                raise


def remove(listener: Recorder) -> None:
    """Stop reporting to a listener; the last one restores the frameworks."""
    global LISTENERS
    with _lock:
        LISTENERS = others = tuple(each for each in LISTENERS if each is not listener)
        if not others:
            _patches.restore()
