"""``Feed``: the samples that all open pages show, read once for all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from zerocopy.monitor.conversion import summarized
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.web.parts import Moment


class Feed:
    """The moments of the last `keep` seconds, oldest first; only the newest has call sites."""

    def __init__(self, source: Observer, every: float, keep: float = 300.0) -> None:
        self._source = source
        self.most = max(2, round(keep / every))
        self._moments: deque[Moment] = deque(maxlen=self.most)
        self._number = 0

    def read(self) -> None:
        """Read one sample. One thread at a time may call it."""
        sample = self._source.read()
        self._number += 1
        self._moments.append(Moment(sample, self._source.rates(), self._number))
        if self._number > 1:
            last = self._moments[-2]
            processes = [summarized(record) for record in last.sample["processes"]]
            self._moments[-2] = last._replace(sample={**last.sample, "processes": processes})

    @property
    def newest(self) -> Moment | None:
        """The latest moment; None before the first read."""
        return self._moments[-1] if self._moments else None

    def since(self, number: int) -> Iterator[Moment]:
        """Yield the moments after the one with this number."""
        for moment in self._moments.copy():  # another thread appends
            if moment.number > number:
                yield moment
