"""Locks that are free in a forked child, and the order of the functions that a fork calls.

A forked child inherits locks that other threads hold, such as those of imports and of llvmlite.
No thread releases them in the child, which would deadlock. Code that takes such locks therefore
holds `LOADING` too, and a fork acquires `LOADING` first. An import of another package does not hold
`LOADING`, since that package may call zerocopy and wait for it; it is listed in `IMPORTING`.

On a free-threaded build each dict, set, deque and cache has a lock that a child can inherit. Functions that
run in the child at the fork therefore assign new objects, and use none of these that existed before.

logging and concurrent.futures acquire locks of their own before a fork, and functions that were registered
later run earlier. If a fork took their locks first, an import that needs one would wait for the fork, and the
fork for the import. Therefore this module imports them and registers the wait again, before anything else is
imported. Their functions are registered when their imports, which need the locks too, have finished.
"""

from __future__ import annotations

import os
from _thread import LockType, RLock, allocate_lock
from weakref import ref

from zerocopy.interpreter import (
    BEFORE_FORK,
    IMPORTING as IMPORTING,
    LOADING as LOADING,
    end_of_fork,
    installed_version as installed_version,
    is_imported as is_imported,
    is_installed as is_installed,
    is_lazy as is_lazy,
    safe_lock,
    spec_of as spec_of,
    start_of_fork,
    version_numbers as version_numbers,
    while_forks_wait as while_forks_wait,
)

TYPE_CHECKING = False  # importing typing takes longer than this file
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_free_in_children: set[ref[RLock | LockType]] = set()
_copy: set[ref[RLock | LockType]] = set()


def lock() -> RLock:
    """Return a re-entrant lock that is free in a forked child; for short critical sections."""
    result: Any = safe_lock(RLock())
    _free_in_children.add(ref(result, _discard))
    return result  # type: ignore[no-any-return]


def plain_lock() -> LockType:
    """Return a lock that is not re-entrant, and is free in a forked child."""
    result: Any = safe_lock(allocate_lock())
    _free_in_children.add(ref(result, _discard))
    return result  # type: ignore[no-any-return]


def _discard(reference: ref[RLock | LockType]) -> None:
    _free_in_children.discard(reference)


def _copy_references() -> None:
    global _copy
    _copy = _free_in_children.copy()


def _free() -> None:
    global _free_in_children
    # The copy, because a free-threaded build locks a set, and another thread of the parent may have done so.
    _free_in_children = copied = _copy
    for reference in copied.copy():
        each = reference()
        if each is not None:
            each._at_fork_reinit()  # type: ignore[union-attr]  # as logging and threading do


def _register_functions() -> None:
    """Let a fork wait for imports before it takes the locks of logging and concurrent.futures."""
    registered: list[dict[str, Callable[[], object]]] = []
    register, os.register_at_fork = os.register_at_fork, lambda **functions: registered.append(functions)
    try:
        import concurrent.futures.thread  # noqa: F401
        import logging  # noqa: F401
    finally:
        os.register_at_fork = register
        BEFORE_FORK.extend(each["before"] for each in registered if "before" in each)
        BEFORE_FORK.append(_copy_references)
        for functions in registered:
            os.register_at_fork(**functions)
        os.register_at_fork(before=_copy_references, after_in_child=_free)
        os.register_at_fork(before=start_of_fork, after_in_parent=end_of_fork, after_in_child=end_of_fork)


if hasattr(os, "register_at_fork"):  # not on Windows
    _register_functions()
