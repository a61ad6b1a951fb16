"""Frameworks in messages: whom a cap holds, who limits itself, as their hooks say it."""

from __future__ import annotations

from collections.abc import Iterable

from zerocopy.pool import hook
from zerocopy.pool.hook import PoolHook


def listed(names: Iterable[str]) -> str:
    """Return names as a sentence has them.

    Examples
    --------
    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *most, last = [*names] or [""]
    return f"{', '.join(most)} and {last}" if most else last


def own_caps(hooks: Iterable[PoolHook]) -> list[str]:
    """Return how frameworks limit themselves, those that can, a sentence each."""
    return [f"{each.own_cap} limits {each.shown}" for each in hooks if each.own_cap]


def under_a_cap() -> str:
    """Return the frameworks that a cap holds: it is of RMM's kinds alone."""
    return listed(each.shown for each in hook.of_frameworks() if not each.by_driver)
