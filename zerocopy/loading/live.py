"""The loaders of this process, for the monitor."""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakValueDictionary

#: By `id`, in the order of creation; the references are weak.
_live: WeakValueDictionary[int, Any] = WeakValueDictionary()

# A forked child adds the loaders that it iterates over.
os.register_at_fork(after_in_child=_live.clear)


def add(loader: Any) -> None:
    """Add a loader that was created, or that a forked child begins to use."""
    _live[id(loader)] = loader


def live_loaders() -> list[Any]:
    """Return the loaders that exist now."""
    return [loader for loader in (reference() for reference in _live.valuerefs()) if loader is not None]
