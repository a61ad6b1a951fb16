"""What a fork waits for: imports and compilations that are under way in other threads.

A child of a fork inherits the locks that other threads hold, those of imports and llvmlite's
among them, and nobody there lets go of them: it would wait for ever. So what takes such locks
holds ours too, and a fork takes that one first.
"""

from __future__ import annotations

import os
from _thread import LockType, RLock, allocate_lock  # threading's own, without importing threading
from weakref import WeakSet

_free_in_children: WeakSet[RLock | LockType] = WeakSet()


def lock() -> RLock:
    """Return a lock that is free in a child of a fork, whoever held it: for short work on figures."""
    made = RLock()
    _free_in_children.add(made)
    return made


def plain_lock() -> LockType:
    """Return the same, but one that the thread that holds it is refused too."""
    made = allocate_lock()
    _free_in_children.add(made)
    return made


def _free() -> None:
    for each in _free_in_children:
        each._at_fork_reinit()  # type: ignore[union-attr]  # as logging and threading do


#: Held while modules are imported and kernels loaded. The thread that holds it may fork.
LOADING = RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release
    )
    os.register_at_fork(after_in_child=_free)
