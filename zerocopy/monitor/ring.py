"""``Ring``: the items of the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Ring(Generic[Item]):
    """Items with their times, at most `most`, of which those older than `keep` seconds are dropped."""

    def __init__(self, keep: float, most: int = 100_000) -> None:
        self.keep = keep
        self._items: deque[tuple[float, Item]] = deque(maxlen=most)

    def add(self, time: float, item: Item) -> None:
        """Append an item. After the clock was set back, later items are dropped."""
        while self._items and self._items[-1][0] > time:
            self._items.pop()
        self._items.append((time, item))
        while self._items[0][0] < time - self.keep:
            self._items.popleft()

    @property
    def newest(self) -> Item | None:
        """The last item; None if there are none."""
        return self._items[-1][1] if self._items else None

    def at(self, time: float) -> Item | None:
        """Return the last item that is not later than `time`, else the oldest; None if there are none."""
        earlier = (item for when, item in reversed(self._items) if when <= time)
        return next(earlier, self._items[0][1] if self._items else None)

    def __iter__(self) -> Iterator[Item]:
        """Iterate over a copy, oldest first: another thread may append."""
        return (item for _, item in list(self._items))

    def __len__(self) -> int:
        return len(self._items)
