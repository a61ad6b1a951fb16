"""Pickle protocol 5 with out-of-band buffers, with and without `zerocopy.pickling`."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

from benchmarks.processes.goals import goals
from benchmarks.processes.objects import available, make, nbytes_of
from benchmarks.processes.row import Contender, memcpy, row, size
from benchmarks.suite import Case, Section, Settings, Task
from zerocopy import pickling

#: The question of the section's cases.
PICKLE = "pickle 5"
IN_BAND, IN_BAND_TODAY = "bytes in-band", "bytes in-band without zerocopy"


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each framework."""
    return [Task(name, partial(_case, name, settings)) for name in available(settings)]


def _case(framework: str, settings: Settings) -> list[Case]:
    nbytes = nbytes_of(framework, settings, size(settings))
    x = make(framework, nbytes)

    def ours() -> bytes:
        buffers: list[Any] = []
        data = pickling.dumps(x, buffer_callback=buffers.append)
        pickling.loads(data, buffers=buffers)
        return data

    def today() -> bytes:
        buffers: list[Any] = []
        data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
        pickle.loads(data, buffers=buffers)
        return data

    contenders = [
        Contender("pickle.dumps(protocol=5) and loads", "idiom", lambda: _discard(today())),
        Contender("pickling.dumps and loads", "ours", lambda: _discard(ours())),
        memcpy(nbytes),
    ]
    figures = {IN_BAND: len(ours()), IN_BAND_TODAY: len(today())}
    return [row(f"{PICKLE}, {framework}", contenders, settings, figures)]


def _discard(data: bytes) -> None:
    """Return None, so that all of the call counts."""


SECTIONS = (
    Section("pickle", "pickle protocol 5, buffers out of band: dumps and loads", tasks, "rivals", goals),
)
