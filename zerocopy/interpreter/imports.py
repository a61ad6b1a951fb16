"""Callbacks after a module is imported, without importing it: for frameworks that are imported later.

A finder at the head of ``sys.meta_path`` lets the other finders find the module and wraps its
loader's ``exec_module`` (`importlib.abc.MetaPathFinder`). The module's own loader is restored
before the module runs, and the finder is removed once no callback waits. The finder does not see modules
whose import was already under way, or that were put into ``sys.modules``: `catch_up` finds those.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from zerocopy import forks
from zerocopy.errors.warning import warn
from zerocopy.forks import is_imported as is_imported, is_lazy, spec_of
from zerocopy.formatting import printable

_waiting: dict[str, list[Callable[[], None]]] = {}

# Not forks.LOADING: a thread at the end of an import holds that import's lock, for which a
# thread that holds LOADING may wait. No thread waits for another lock while it holds this one.
_CHANGING = forks.lock()


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call `callback` once a module is imported: now if it is, otherwise at the end of its import.

    If `callback` raises, the import still succeeds, and a warning shows the error.
    """
    with _CHANGING:
        waits = not is_imported(name)
        if waits:
            _waiting.setdefault(name, []).append(callback)
            _add_finder()
    if not waits:
        callback()
    elif is_lazy(module := sys.modules.get(name)):
        _wrap_loader(spec_of(module))  # no finder is called again for it


def cancel(callback: Callable[[], None]) -> None:
    """Remove a callback that has not been called."""
    with _CHANGING:
        for name in list(_waiting):
            _waiting[name] = [other for other in _waiting[name] if other != callback]
            if not _waiting[name]:
                del _waiting[name]
        _remove_finder()


def missed() -> list[str]:
    """Return the modules that are imported although callbacks still wait for them."""
    return [name for name in list(_waiting) if is_imported(name)]


def catch_up() -> list[str]:
    """Call the callbacks of `missed` modules, and return the modules' names."""
    names = missed()
    for name in names:
        _call_back(name)
    with _CHANGING:
        if _waiting:
            _add_finder()  # another package may have removed it
    return names


def _add_finder() -> None:
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _remove_finder() -> None:
    if not _waiting and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def _call_back(name: str) -> None:
    with _CHANGING:
        callbacks = _waiting.pop(name, [])
        _remove_finder()
    for callback in callbacks:
        try:
            callback()
        except Exception as error:  # noqa: BLE001 - the caller's import must not fail
            text = f"zerocopy could not be set up for {name}: {error}"
            if isinstance(error, Warning):  # filters turned a warning of the callback into this error
                print(f"zerocopy: {printable(text)}", file=sys.stderr)
            else:
                warn(text, raises=False)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._active = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        active: set[str] = self._active.__dict__.setdefault("names", set())
        # A finder that calls all other finders calls this one again, which then finds nothing.
        if fullname not in _waiting or fullname in active:
            return None
        active.add(fullname)
        try:
            finders: list[Any] = list(sys.meta_path)
            # Python has called the finders before this one already.
            for finder in finders[finders.index(self) + 1 :] if self in finders else finders:
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
                if spec is not None:
                    _wrap_loader(spec)
                    return spec
        finally:
            active.discard(fullname)
        return None


_FINDER = _Finder()


def _wrap_loader(spec: Any) -> None:
    """Arrange that the callbacks are called once the module of a spec has run."""
    loader = getattr(spec, "loader", None)
    if hasattr(loader, "exec_module") and not isinstance(loader, _Loader):
        spec.loader = _Loader(spec, loader)


class _Loader:
    """Wrapper of a loader that removes itself before the module runs.

    The loader itself is not changed, because it may be a class, have slots, or load several
    modules. The wrapper is removed early, because resources, source lines and pickles use the
    module's own loader.
    """

    def __init__(self, spec: Any, loader: Any) -> None:
        self._spec = spec
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # of a copy that is not initialised yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        spec, loader = self._spec, self._loader
        if spec.loader is self:
            spec.loader = loader
        was_lazy = is_lazy(module)  # from Python 3.12 on it is lazy until it has run
        if object.__getattribute__(module, "__dict__").get("__loader__") is self:
            module.__loader__ = loader
        loader.exec_module(module)
        if is_lazy(module) and not was_lazy:
            _wrap_loader(spec)  # LazyLoader postponed it
        else:
            _call_back(spec.name)
