"""Statistics in time: since the pool was installed, and in each block that is open.

A device pool tells what there was since it was asked last. Each answer is added to all that
is open: so blocks may nest, and overlap in threads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zerocopy import forks
from zerocopy.pool.stats import Segment, Stats


class Span:
    """What there was of one device, from a moment on."""

    def __init__(self) -> None:
        self._sum = Segment(0)

    def add(self, segment: Segment) -> None:
        """Add what there was meanwhile."""
        self._sum = Segment(
            max(self._sum.peak_bytes, segment.peak_bytes),
            _plus(self._sum.total_bytes, segment.total_bytes),
            _plus(self._sum.total_count, segment.total_count),
        )

    def of(self, now: Stats) -> Stats:
        """Return the figures of now, with this span's peak and totals."""
        found = self._sum
        return replace(
            now,
            peak_bytes=max(found.peak_bytes, now.current_bytes),
            total_bytes=found.total_bytes,
            total_count=found.total_count,
        )


def _plus(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


class Timeline:
    """The spans of one device: the first since the beginning, and one for each open block."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._spans = [Span()]
        self._lock = forks.lock()

    def look(self) -> None:
        """Read what there was since the last look."""
        with self._lock:
            segment = self._pool.cut()
            for span in self._spans:
                span.add(segment)

    def begin(self) -> Span:
        """Open a span."""
        with self._lock:
            self.look()
            span = Span()
            self._spans.append(span)
            return span

    def end(self, span: Span) -> Stats:
        """Close a span, and return its figures."""
        with self._lock:
            self.look()
            self._spans.remove(span)
            return span.of(self._pool.stats())

    def stats(self) -> Stats:
        """Return the figures of the span that was opened last."""
        with self._lock:
            self.look()
            return self._spans[-1].of(self._pool.stats())
