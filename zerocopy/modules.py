"""Modules of other packages: whether they are installed, and whether their import has finished."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

_LAZY: Any = getattr(importlib.util, "_LazyModule", ())


def is_installed(name: str) -> bool:
    """Whether a top-level module can be imported; imports nothing."""
    if name in sys.modules:
        return sys.modules[name] is not None
    # A plain folder of that name is a namespace package, whose spec has no origin.
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def is_imported(name: str) -> bool:
    """Whether the import of a module has finished; a lazy module (`LazyLoader`) must have run.

    While a thread imports a module, ``sys.modules`` has it already, without most of its names.
    """
    module = sys.modules.get(name)
    return not (module is None or is_lazy(module) or getattr(spec_of(module), "_initializing", False))


def is_lazy(module: Any) -> bool:
    """Whether an attribute of a module would load it; reads no attribute."""
    return isinstance(module, _LAZY)


def spec_of(module: Any) -> Any:
    """Return a module's spec without its own ``__getattribute__`` or ``__getattr__``."""
    try:
        return object.__getattribute__(module, "__spec__")
    except AttributeError:
        return None
