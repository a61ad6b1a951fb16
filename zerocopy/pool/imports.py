"""Told when a module is imported, without importing it: for frameworks that come later.

A finder at the head of ``sys.meta_path`` lets the others find the module, and puts a loader
around its loader that calls back once it has run (`importlib.abc.MetaPathFinder`). No object of
others is patched, the module gets its own loader before it runs, and the finder goes when nobody
waits any more. What gets past all that is found by :func:`catch_up`.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from zerocopy import forks

_waiting: dict[str, list[Callable[[], None]]] = {}

# Not forks.LOADING: a thread at the end of an import holds that import's lock, which a thread
# that has LOADING may be waiting for. Nobody waits for anything while holding this one.
_CHANGING = forks.lock()

_LAZY: Any = getattr(importlib.util, "_LazyModule", ())


def loaded(name: str) -> bool:
    """Whether a module has been imported, to its end: a lazy one (`importlib.util.LazyLoader`) has run."""
    module = sys.modules.get(name)
    return not (module is None or _lazy(module) or getattr(_spec(module), "_initializing", False))


def _lazy(module: Any) -> bool:
    # By its type alone: to ask a lazy module for any attribute is to load it.
    return isinstance(module, _LAZY)


def _spec(module: Any) -> Any:
    """Return a module's spec, past a ``__getattribute__`` or ``__getattr__`` of its own."""
    try:
        return object.__getattribute__(module, "__spec__")
    except AttributeError:
        return None


def when_loaded(name: str, told: Callable[[], None]) -> None:
    """Call `told` when a module has been imported: at once if it is, otherwise in the import.

    A `told` that raises spoils no import: what it raises is warned about.
    """
    with _CHANGING:
        waits = not loaded(name)
        if waits:
            _waiting.setdefault(name, []).append(told)
            _enter()
    if not waits:
        told()
    elif sys.modules.get(name) is not None:
        _join(sys.modules.get(name), name)


def _join(module: Any, name: str) -> None:
    """Be told of an import that is under way, or was put off, and that no finder will be asked for again."""
    spec = _spec(module)
    if _lazy(module):
        _call_after(spec)
    elif type(spec) is ModuleSpec and getattr(spec, "_initializing", False):
        spec.__class__ = _UnderWay
        if not vars(spec).get("_initializing"):  # it has ended between the two lines
            spec.__class__ = ModuleSpec
    if loaded(name):
        _tell(name)


def forget(told: Callable[[], None]) -> None:
    """Wait no more."""
    with _CHANGING:
        for name in list(_waiting):
            _waiting[name] = [other for other in _waiting[name] if other != told]
            if not _waiting[name]:
                del _waiting[name]
        _leave()


def missed() -> list[str]:
    """Return the names that somebody waits for though they are loaded: their imports went past us.

    Such as a module that was put into ``sys.modules`` by hand, or a finder that was taken away.
    """
    return [name for name in list(_waiting) if loaded(name)]


def catch_up() -> list[str]:
    """Tell those who wait for what is loaded, and return its names."""
    names = missed()
    for name in names:
        _tell(name)
    with _CHANGING:
        if _waiting:
            _enter()  # somebody may have taken it away
    return names


def warn(message: str) -> None:
    """Warn in somebody else's import: where warnings are errors it is shown all the same, and not raised."""
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning as warning:
        _show(warning)


def _show(warning: Warning) -> None:
    warnings.showwarning(warning, type(warning), __file__, 0, line="")


def _enter() -> None:
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def _leave() -> None:
    if not _waiting and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def _tell(name: str) -> None:
    with _CHANGING:
        told = _waiting.pop(name, [])
        _leave()
    for call in told:
        try:
            call()
        except Warning as warning:  # python -W error
            _show(warning)
        except Exception as error:  # noqa: BLE001 - an import of somebody else's must not fail for it
            warn(f"zerocopy's pool could not be put under {name}: {error}")


class _UnderWay(ModuleSpec):
    """The spec of a module that is being imported: the import system sets this attribute last.

    `importlib._bootstrap._load_unlocked` has it so in CPython 3.11 to 3.14, after a module that
    failed has been taken out of ``sys.modules``. A spec has this class until then.
    """

    @property
    def _initializing(self) -> bool:
        return bool(vars(self).get("_initializing"))

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        vars(self)["_initializing"] = value
        if not value:
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            if self.name in sys.modules:
                _ended(sys.modules[self.name], self, self.name)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._asking = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        asking: set[str] = self._asking.__dict__.setdefault("names", set())
        if fullname in asking:
            return None  # another finder that asks all but itself: one of us has to be the last
        asking.add(fullname)
        try:
            spec = self._find(fullname, path, target)
        finally:
            asking.discard(fullname)
        if spec is not None:
            _call_after(spec)
        return spec

    def _find(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        finders: list[Any] = list(sys.meta_path)
        # Those before us have been asked.
        for finder in finders[finders.index(self) + 1 :] if self in finders else finders:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None


_FINDER = _Finder()


def _call_after(spec: Any) -> None:
    """Have it told when the module of a spec has run."""
    loader = getattr(spec, "loader", None)
    if isinstance(loader, _Telling):
        return
    if hasattr(loader, "exec_module"):
        spec.loader = _Executing(spec, loader)
    elif hasattr(loader, "load_module"):
        spec.loader = _Loading(spec, loader)


def _ended(module: Any, spec: Any, name: str) -> None:
    if _lazy(module):
        _call_after(spec)  # it has been put off, and not run
    else:
        _tell(name)


class _Telling:
    """A loader around another, until the module runs: then the module and its spec have theirs back.

    Not a method put on the loader: classes are loaders too (`BuiltinImporter`), one may load many
    modules (`zipimporter`), and those with slots take none. And back before the module runs: resources,
    source lines and pickles ask a module's loader for more than importing.
    """

    def __init__(self, spec: Any, loader: Any) -> None:
        self._spec = spec
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # of a copy that has none yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def _stand_aside(self) -> None:
        if self._spec.loader is self:
            self._spec.loader = self._loader


class _Executing(_Telling):
    def exec_module(self, module: ModuleType) -> None:
        self._stand_aside()
        put_off = _lazy(module)  # from 3.12 on it is lazy until it has run
        if object.__getattribute__(module, "__dict__").get("__loader__") is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        if put_off:
            _tell(self._spec.name)
        else:
            _ended(module, self._spec, self._spec.name)


class _Loading(_Telling):
    """For loaders of before Python 3.4, which Python takes as long as it does."""

    def load_module(self, name: str) -> Any:
        self._stand_aside()
        module = self._loader.load_module(name)
        _ended(sys.modules.get(name, module), self._spec, name)
        return module
