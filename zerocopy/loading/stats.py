"""``LoaderStats``: what a loader has read and delivered, and what it waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from zerocopy.loading.dataset import Group
from zerocopy.loading.errors import ReadError


class Skipped(NamedTuple):
    """A group that could not be read, with ``on_error="skip"``."""

    file: str
    row_group: int
    rows: int
    error: str


@dataclass
class Counters:
    """Counts of one loader; the reader's thread writes some of them, the consumer others."""

    read_seconds: float = 0.0
    groups: int = 0
    skipped: list[Skipped] = field(default_factory=list)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count one read and its time."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.read_seconds += time.perf_counter() - began
            self.groups += 1

    def skip(self, group: Group, error: ReadError) -> None:
        """Count a group that could not be read."""
        self.skipped.append(Skipped(group.file, group.number, group.rows, str(error)))
