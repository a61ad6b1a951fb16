"""Pickle protocol 5 and ``share``, compared with `pickle`, ``multiprocessing.shared_memory`` and a memcpy."""

from __future__ import annotations

import pickle
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.processes.goals import goals
from benchmarks.processes.objects import ARRAYS, available, make, nbytes_of
from benchmarks.processes.row import Contender, memcpy, row, size
from benchmarks.suite import Case, Section, Settings, Task
from zerocopy import pickling

#: The question of the section's cases.
PICKLE = "pickle 5"
IN_BAND, IN_BAND_TODAY = "bytes in-band", "bytes in-band without zerocopy"


def pickle_tasks(settings: Settings) -> list[Task]:
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


RECYCLED, FRESH, SHARED = "share, recycled", "share, fresh", "share, already shared"
HANDED_ON = "share, opened by this process"
NEW, MAPPED = "open, new", "open, already mapped"
HANDLE = "bytes of the pickled handle"

#: Frameworks whose arrays alias memory of `shared_empty`, so that they can be shared in place.
_IN_PLACE = ("numpy", "torch")
_SHARED_MEMORY = "SharedMemory: create, copy, unlink"
_ATTACH = "SharedMemory: attach, close"


def share_tasks(settings: Settings) -> list[Task]:
    return [Task(f"share {name}", partial(_share, name, settings)) for name in available(settings)]


def open_tasks(settings: Settings) -> list[Task]:
    return [Task(f"open {name}", partial(_open, name, settings)) for name in available(settings)]


def _share(framework: str, settings: Settings) -> list[Case]:
    nbytes = nbytes_of(framework, settings, size(settings))
    x = make(framework, nbytes)
    # SharedMemory takes bytes only, so that a program first makes a NumPy array of an object.
    plain = np.ones(nbytes, np.uint8)
    today = Contender(_SHARED_MEMORY, "idiom", partial(_shared_memory, plain))
    recycled = Contender("zc.share(x)", "ours", lambda: _drop(zc.share(x)))
    zc.shared.set_limit(1 << 30)  # more than an object needs
    cases = [row(f"{RECYCLED}, {framework}", [today, recycled, memcpy(nbytes)], settings)]
    zc.shared.set_limit(0)
    try:
        fresh = Contender("zc.share(x)", "ours", lambda: _drop(zc.share(x)))
        cases.append(row(f"{FRESH}, {framework}", [today, fresh, memcpy(nbytes)], settings))
    finally:
        zc.shared.set_limit(None)
    if framework in _IN_PLACE:
        array = zc.shared_empty(nbytes // 4, "f4")
        array[:] = 1
        place = zc.convert(array, to=framework, copy=False)
        in_place = Contender("zc.share(x)", "ours", lambda: _drop(zc.share(place)))
        cases.append(row(f"{SHARED}, {framework}", [in_place], settings))
    opened = zc.convert(zc.share(x), to=framework)
    if framework in ARRAYS and zc.share(opened).copied_bytes == 0:
        handed_on = Contender("zc.share(x)", "ours", lambda: _drop(zc.share(opened)))
        cases.append(row(f"{HANDED_ON}, {framework}", [handed_on], settings))
    return cases


def _open(framework: str, settings: Settings) -> list[Case]:
    nbytes = nbytes_of(framework, settings, size(settings))
    shared = zc.share(make(framework, nbytes))
    data = pickle.dumps(shared)

    def opened() -> Any:
        return zc.convert(pickle.loads(data), to=framework)

    plain = SharedMemory(create=True, size=nbytes)
    try:
        today = Contender(_ATTACH, "idiom", lambda: SharedMemory(plain.name).close())
        ours = Contender(f"zc.convert(pickle.loads(data), to={framework!r})", "ours", lambda: _drop(opened()))
        figures = {HANDLE: len(data)}
        cases = [row(f"{NEW}, {framework}", [today, ours], settings, figures)]
    finally:
        plain.close()
        plain.unlink()
    keep = opened()
    cases.append(row(f"{MAPPED}, {framework}", [ours], settings))
    del keep
    return cases


def _shared_memory(source: Any) -> None:
    memory = SharedMemory(create=True, size=source.nbytes)
    target = np.ndarray(source.shape, source.dtype, memory.buf)
    np.copyto(target, source)
    del target
    memory.close()
    memory.unlink()


def _drop(result: Any) -> None:
    """Return None, so that all of the call counts; the result is dropped inside of the clock."""


SECTIONS = (
    Section(
        "pickle", "pickle protocol 5, buffers out of band: dumps and loads", pickle_tasks, "rivals", goals
    ),
    Section("share", "the cost of share(): by a copy, and in place", share_tasks, "rivals", goals),
    Section("open", "opening a handle: new, and mapped already", open_tasks, "rivals", goals),
)
