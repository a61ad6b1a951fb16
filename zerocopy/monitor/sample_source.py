"""``SampleSource``: the interface through which readers get samples and rates."""

from __future__ import annotations

from typing import Protocol

from zerocopy.monitor.rates import Rates
from zerocopy.monitor.sample import Sample


class SampleSource(Protocol):
    """Interface of `zerocopy.monitor.observer.Observer`."""

    def read(self) -> Sample:
        """Return the present sample."""

    def rates(self) -> Rates | None:
        """Return the rates over the last seconds; None before the second sample."""
