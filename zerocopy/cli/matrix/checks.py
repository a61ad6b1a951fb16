"""What shows that a conversion did what its plan says: whose memory it is, whose object came.

For the matrix, which believes no plan: of arrays, tables, and dicts of columns alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zerocopy
from zerocopy import registry
from zerocopy._engine.memory import blocks
from zerocopy.errors import UnsupportedConversionError
from zerocopy.strided_view import StridedView
from zerocopy.tables.result import parts


@dataclass(frozen=True, slots=True)
class Sharing:
    """How much of a result lies in its source's memory.

    Attributes
    ----------
    some : bool
        At least one byte.
    whole : bool
        A part of each of its blocks, and there is one: nothing that counts was made anew.
    same_start : bool
        Both begin at the same address.
    """

    some: bool
    whole: bool
    same_start: bool


def sharing(source: Any, result: Any) -> Sharing | None:
    """Look at the memory of both; None of a query, which has none before it has run.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(4)
    >>> sharing(x, x[1:])
    Sharing(some=True, whole=True, same_start=False)
    """
    same = list(zip(parts(source), parts(result), strict=False))
    if len(parts(source)) == len(parts(result)) == len(same) and all(a[1] is b[1] for a, b in same):
        itself = any(zerocopy.shares_memory(leaf, leaf) for (_, leaf), _ in same)
        return Sharing(itself, itself, True)
    try:
        ours, theirs = _used(source), _used(result)
    except UnsupportedConversionError:
        return None
    hits = [any(zerocopy.shares_memory(a, b) for a in ours) for b in theirs]
    lows = [min((view.bounds[0] for view in some), default=0) for some in (ours, theirs)]
    return Sharing(any(hits), bool(hits) and all(hits), lows[0] == lows[1])


def blocks_of(obj: Any) -> list[tuple[int, int]] | None:
    """Return the addresses of an object's blocks; None of a query."""
    try:
        return [view.bounds for view in _used(obj)]
    except UnsupportedConversionError:
        return None


def _used(obj: Any) -> list[StridedView]:
    return [view for view in blocks(obj) if view.size]


def strangers(result: Any, target: str) -> Iterator[str]:
    """Yield the types in a result that are not the target's."""
    wanted = registry.by_name(target).name
    for _, leaf in parts(result):
        owner = registry.by_type(type(leaf))
        if owner is None or owner.name != wanted:
            yield type(leaf).__name__


def foreign(error: Exception) -> str:
    """Say that an exception of another vocabulary than ours was raised."""
    return f"raised {type(error).__name__}, no ZeroCopyError: {first_line(str(error))}"


def first_line(text: str) -> str:
    """Return the first line of a message."""
    return (text.strip().splitlines() or ["no message"])[0]
