"""Replaces the frameworks' calls by wrappers while an audit runs, and restores them."""

from __future__ import annotations

import importlib.util
import sys
from _thread import get_ident
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from zerocopy import forks, registry
from zerocopy.audit import wrapper
from zerocopy.audit.hook import AuditHook, CopyCall, hook_of
from zerocopy.audit.wrapper import Listener, Wrapper
from zerocopy.framework import Framework

_lock = forks.lock()
_MISSING: Any = object()


class _Patches:
    """The replaced attributes, and the frameworks to patch when they are imported."""

    def __init__(self) -> None:
        self.replaced: list[tuple[CopyCall, Any, Any]] = []
        self.finder = _Finder(self)
        #: Originals and their wrappers, by owner, attribute and original, which they keep alive.
        self._wrappers: dict[tuple[int, str, int], tuple[Any, Any]] = {}

    def install(self) -> None:
        """Patch the frameworks that are imported; the others at the end of their import."""
        frameworks = registry.known()
        wrapper.set_internal({root for each in frameworks for root in each.root_modules or (each.name,)})
        for framework in frameworks:
            name = framework.name
            if framework.audit_hook:
                if forks.is_imported(name):
                    self.patch(framework)
                else:
                    self.finder.waiting[name] = framework
        sys.meta_path.insert(0, self.finder)

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
        if self.finder in sys.meta_path:
            sys.meta_path.remove(self.finder)
        self.finder.waiting.clear()
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


class _Finder:
    """Finder on ``sys.meta_path`` that patches a framework when its module has run.

    ``from torch import tensor`` then imports the wrapper. The module's loader stays the same object.
    """

    def __init__(self, patches: _Patches) -> None:
        self.waiting: dict[str, Framework] = {}
        self._patches = patches
        #: Names that threads search for with the other finders.
        self._searching: set[tuple[str, int]] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        framework = self.waiting.get(name)
        key = (name, get_ident())
        if framework is None or key in self._searching:
            return None
        self._searching.add(key)
        try:
            spec = importlib.util.find_spec(name)  # of the other finders
        finally:
            self._searching.discard(key)
        run = getattr(spec and spec.loader, "exec_module", None)
        if spec is not None and run is not None:
            spec.loader.exec_module = self._patched(spec.loader, run, framework)  # type: ignore
        return spec

    def _patched(self, loader: Any, run: Callable[[Any], None], framework: Framework) -> Any:
        def exec_module(module: Any) -> None:
            del loader.exec_module
            run(module)
            with _lock:
                if self.waiting.pop(framework.name, None) is not None:
                    self._patches.patch(framework)

        return exec_module


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
