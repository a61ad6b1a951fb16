"""All hooks: RMM's and those of the registered frameworks."""

from __future__ import annotations

from collections.abc import Iterable

from zerocopy.pool.hook import PoolHook, join_names
from zerocopy.pool.rmm_hook import RMMHook


def all_hooks() -> list[PoolHook]:
    """Return new hooks of RMM and of each framework that has one, in order of attachment."""
    return sorted([RMMHook(), *framework_hooks()], key=lambda hook: hook.rank)


def framework_hooks() -> list[PoolHook]:
    """Return a new hook of each framework that has one, in the same order."""
    from zerocopy import registry  # imports NumPy, which parsing options does not need

    return sorted(registry.pool_hooks(), key=lambda hook: int(hook.rank))


def names() -> list[str]:
    """Return the names of the frameworks that can use a pool."""
    return [hook.name for hook in all_hooks()]


def own_limits(hooks: Iterable[PoolHook]) -> list[str]:
    """Return one clause for each framework that can limit itself."""
    return [f"{hook.own_limit} limits {hook.display_name}" for hook in hooks if hook.own_limit]


def limited_frameworks() -> str:
    """Return the frameworks that a limit of the pool applies to: those that can use RMM."""
    return join_names(hook.display_name for hook in framework_hooks() if not hook.shares_driver_pool)
