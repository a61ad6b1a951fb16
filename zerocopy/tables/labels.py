"""Labels of columns: duplicates, positions, and the warning of targets whose names are strings.

All functions take time linear in the number of labels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import isnan
from typing import Any

from zerocopy.errors import Fix

#: The fix of columns that share a name.
RENAME = Fix(action="rename-columns")
_NAN = object()
#: At most this many labels are listed in a message.
_LISTED = 5


def key(label: Hashable) -> Hashable:
    """Return a value that is equal for equal labels: NaN is one label, as in data frames."""
    return _NAN if isinstance(label, float) and isnan(label) else label


def duplicates(labels: Iterable[Hashable]) -> list[Hashable]:
    """Return each label that occurs several times, once.

    Examples
    --------
    >>> duplicates(["a", "b", "a", 1, True])
    ['a', 1]
    """
    kept = list(labels)
    if {*map(type, kept)} == {str} and len({*kept}) == len(kept):
        return []  # in a fifth of the time
    places = positions(kept)
    return [kept[group[0]] for group in places.values() if len(group) > 1]


def positions(labels: Iterable[Hashable]) -> dict[Hashable, list[int]]:
    """Return the positions of each label, by its `key`."""
    places: dict[Hashable, list[int]] = {}
    for place, label in enumerate(labels):
        places.setdefault(key(label), []).append(place)
    return places


def listed(labels: Sequence[Any]) -> str:
    """Return labels for a message: the first ones, and how many more there are."""
    more = len(labels) - _LISTED
    return ", ".join(map(repr, labels[:_LISTED])) + (f" and {more:,} more" if more > 0 else "")


def text_warnings(name: str, labels: Sequence[Hashable]) -> tuple[str, ...]:
    """Return the warning of a target whose names are strings, if there are other labels."""
    others = [label for label in labels if not isinstance(label, str)]
    verb = "become strings" if len(others) > 1 else "becomes a string"
    return (f"{name}: names are strings, and {listed(others)} {verb}",) if others else ()
