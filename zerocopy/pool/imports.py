"""Told when a module is imported, without importing it: for frameworks that come later.

A finder at the head of ``sys.meta_path`` lets the others find the module, and has its
loader call back once it has run (the import system's own way: `importlib.abc.MetaPathFinder`).
Nothing is patched, and the finder goes when nobody waits any more.
"""

from __future__ import annotations

import importlib.abc
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from zerocopy.forks import LOADING

_waiting: dict[str, list[Callable[[], None]]] = {}


def loaded(name: str) -> bool:
    """Whether a module has been imported, to its end."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)


def when_loaded(name: str, told: Callable[[], None]) -> None:
    """Call `told` when a module has been imported: at once if it is, otherwise in the import.

    A `told` that raises spoils no import: what it raises is warned about.
    """
    with LOADING:
        if not loaded(name):
            _waiting.setdefault(name, []).append(told)
            if _FINDER not in sys.meta_path:
                sys.meta_path.insert(0, _FINDER)
            return
    told()


def forget(told: Callable[[], None]) -> None:
    """Wait no more."""
    with LOADING:
        for name in list(_waiting):
            _waiting[name] = [other for other in _waiting[name] if other != told]
            if not _waiting[name]:
                del _waiting[name]
        _leave()


def _leave() -> None:
    if not _waiting and _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)


def _tell(name: str) -> None:
    with LOADING:
        told = _waiting.pop(name, [])
        _leave()
    for call in told:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - an import of somebody else's must not fail for it
            warnings.warn(
                f"zerocopy's pool could not be put under {name}: {error}", RuntimeWarning, stacklevel=2
            )


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        for finder in list(sys.meta_path):
            find: Any = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _call_after(spec.loader, fullname)
                return spec
        return None


_FINDER = _Finder()


def _call_after(loader: Any, name: str) -> None:
    """Have a loader call back after it has run a module; for that once.

    On the loader itself and not on one around it: resources, source lines and pickles of
    functions ask a module's loader for more than importing.
    """
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        if vars(loader).get("exec_module") is exec_module:
            del loader.exec_module
        run(module)
        if module.__name__ == name:
            _tell(name)

    loader.exec_module = exec_module
