"""Checks of a conversion that do not rely on its plan: shared memory, and types of the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zerocopy
from zerocopy import registry
from zerocopy._engine.memory import blocks
from zerocopy.errors import UnsupportedConversionError, ZeroCopyError
from zerocopy.tables.result import result_leaves


@dataclass(frozen=True, slots=True)
class Sharing:
    """How much of a result is in its source's memory."""

    some: bool  # at least one byte
    whole: bool  # at least one byte of each block; False without blocks
    same_start: bool  # both begin at the same address


def sharing(source: Any, result: Any) -> Sharing | None:
    """Compare the memory of two objects; return None for a query, which has none before it runs.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(4)
    >>> sharing(x, x[1:])
    Sharing(some=True, whole=True, same_start=False)
    """
    leaves = [leaf for _, leaf in result_leaves(source)]
    if list(map(id, leaves)) == [id(leaf) for _, leaf in result_leaves(result)]:
        itself = any(zerocopy.shares_memory(leaf, leaf) for leaf in leaves)
        return Sharing(itself, itself, True)
    try:
        ours, theirs = ([view for view in blocks(obj) if view.size] for obj in (source, result))
    except UnsupportedConversionError:
        return None
    hits = [any(zerocopy.shares_memory(a, b) for a in ours) for b in theirs]
    starts = [min((view.bounds[0] for view in views), default=0) for views in (ours, theirs)]
    return Sharing(any(hits), bool(hits) and all(hits), starts[0] == starts[1])


def block_bounds(obj: Any) -> list[tuple[int, int]] | None:
    """Return the bounds of an object's blocks of memory; None for a query."""
    try:
        return [view.bounds for view in blocks(obj) if view.size]
    except UnsupportedConversionError:
        return None


def foreign_types(result: Any, target: str) -> Iterator[str]:
    """Yield the types in a result that are not the target's."""
    expected = registry.by_name(target).name
    for _, leaf in result_leaves(result):
        owner = registry.by_type(type(leaf))
        if owner is None or owner.name != expected:
            yield type(leaf).__name__


def describe_exception(error: Exception) -> str:
    """Return one line about an exception that a conversion must not raise."""
    expected = "" if isinstance(error, ZeroCopyError) else " instead of a ZeroCopyError"
    return f"raises {type(error).__name__}{expected}: {first_line(str(error))}"


def first_line(text: str) -> str:
    """Return the first line of a message."""
    return (text.strip().splitlines() or ["no message"])[0]
