"""Replaces the frameworks' calls by wrappers while an audit runs, and restores them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from zerocopy import forks, registry
from zerocopy.audit import wrapper
from zerocopy.audit.hook import AuditHook, CopyCall, hook_of
from zerocopy.audit.wrapper import Listener, Wrapper
from zerocopy.framework import Framework
from zerocopy.interpreter import imports

_lock = forks.lock()
_MISSING: Any = object()


class _Patches:
    """The replaced attributes, and callbacks for the frameworks that are not imported yet."""

    def __init__(self) -> None:
        self.replaced: list[tuple[CopyCall, Any, Any]] = []
        self.waiting: dict[str, Callable[[], None]] = {}
        #: Originals and their wrappers, by owner, attribute and original, which they keep alive.
        self._wrappers: dict[tuple[int, str, int], tuple[Any, Any]] = {}

    def install(self) -> None:
        """Patch the frameworks that are imported; the others at the end of their import."""
        frameworks = registry.known()
        wrapper.set_internal({root for each in frameworks for root in each.root_modules or (each.name,)})
        for framework in frameworks:
            name = framework.name
            if framework.audit_hook:
                self.waiting[name] = partial(self._patch_imported, framework)
                imports.when_imported(name, self.waiting[name])

    def _patch_imported(self, framework: Framework) -> None:
        """Patch a framework at the end of its import: ``from torch import tensor`` imports the wrapper."""
        with _lock:
            if self.waiting.pop(framework.name, None) is not None:
                self.patch(framework)

    def patch(self, framework: Framework) -> None:
        """Replace the calls of an imported framework."""
        hook = hook_of(framework)
        wrapper.add_tracing(hook.tracing())
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


def add(listener: Listener) -> None:
    """Report calls to a listener; the first one installs the wrappers."""
    registry.known()  # outside the lock: it imports the modules of plugins
    with _lock:
        others = wrapper.LISTENERS
        wrapper.set_listeners((*others, listener))
        if not others:
            try:
                _patches.install()
            except BaseException:
                remove(listener)
                raise


def remove(listener: Listener) -> None:
    """Stop reporting to a listener; the last one restores the frameworks."""
    with _lock:
        others = tuple(each for each in wrapper.LISTENERS if each is not listener)
        wrapper.set_listeners(others)
        if not others:
            _patches.restore()
