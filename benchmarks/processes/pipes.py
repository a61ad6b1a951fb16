"""multiprocessing.Pipe and Queue: one object to a child process, which reads one element and answers."""

from __future__ import annotations

import multiprocessing as mp
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import zerocopy.integrations.multiprocessing as zmp
from benchmarks.processes.objects import ARRAYS, COLUMNS, ROWS, TABLES, available, make, nbytes_of
from benchmarks.processes.row import NBYTES, Contender, memcpy, row, size
from benchmarks.suite import Case, Settings

FRAMEWORKS = (*ARRAYS, *TABLES)


class Row(NamedTuple):
    """The median time of one side for one framework, and that of copying the same bytes in the same run."""

    framework: str
    side: str
    seconds: float
    memcpy_seconds: float


def measure_pipe(frameworks: Sequence[str] = FRAMEWORKS, rounds: int = 7) -> list[Row]:
    """Return rows of the sides "today" and "zerocopy" for ``multiprocessing.Pipe``."""
    return _measure(_pipe, frameworks, rounds)


def measure_queue(frameworks: Sequence[str] = FRAMEWORKS, rounds: int = 7) -> list[Row]:
    """Return rows of the sides "today" and "zerocopy" for ``multiprocessing.Queue``."""
    return _measure(_queue, frameworks, rounds)


def rows(settings: Settings) -> Iterable[Case]:
    """Return the cases of the suite: "Pipe, torch" and "Queue, torch" for each framework."""
    for framework in available(settings):
        nbytes = nbytes_of(framework, settings, size(settings))
        source = _make(framework, nbytes)
        for name, channel in (("Pipe", _pipe), ("Queue", _queue)):
            with closing(_Child(channel, framework)) as child:
                contenders = [
                    Contender("zerocopy", "ours", partial(_ask, child, source, framework, True)),
                    Contender("multiprocessing", "idiom", partial(_ask, child, source, framework, False)),
                    memcpy(nbytes),
                ]
                yield row(f"{name}, {framework}", contenders, settings)


def _ask(child: _Child, source: Any, framework: str, by_handle: bool) -> float:
    """Return the nanoseconds for one object and the answer."""
    obj = _fresh(source, framework)
    if by_handle:
        zmp.install()
    seconds = _timed(lambda: child.ask(obj))
    zmp.uninstall()
    return seconds * 1e9


def _measure(channel: Callable[[Any], Any], frameworks: Sequence[str], rounds: int) -> list[Row]:
    result = []
    for framework in frameworks:
        with closing(_Child(channel, framework)) as child:
            result += _compare(child, framework, rounds)
    return result


def _compare(child: _Child, framework: str, rounds: int) -> list[Row]:
    """Measure both sides and the copy in turns, so that each meets the same state of the machine."""
    nbytes = NBYTES if framework in ARRAYS else ROWS * COLUMNS * 8
    source = _make(framework, nbytes)
    one, other = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    times: dict[str, list[float]] = {"memcpy": [], "today": [], "zerocopy": []}
    for _ in range(rounds + 2):
        times["memcpy"].append(_timed(lambda: np.copyto(other, one)))
        times["today"].append(_ask(child, source, framework, False) / 1e9)
        times["zerocopy"].append(_ask(child, source, framework, True) / 1e9)
    # The first two rounds allocate and load.
    median = {side: statistics.median(values[2:]) for side, values in times.items()}
    return [Row(framework, side, median[side], median["memcpy"]) for side in ("today", "zerocopy")]


def _fresh(obj: Any, framework: str) -> Any:
    """Return another tensor for torch, whose own reducer moves a tensor to shared memory for good."""
    return obj.clone() if framework == "torch" else obj


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class _Child:
    """A process that answers each object with one element of it."""

    def __init__(self, channel: Callable[[Any], Any], framework: str) -> None:
        context = mp.get_context("spawn")
        self._put, get = channel(context)
        self._answers, answers = context.Pipe(duplex=False)
        self._process = context.Process(target=_answer, args=(get, answers, framework), daemon=True)
        self._process.start()
        self._answers.recv()

    def ask(self, obj: Any) -> Any:
        """Send an object, and return the answer."""
        self._put(obj)
        return self._answers.recv()

    def close(self) -> None:
        """End the process."""
        self._put(None)
        self._process.join(30)
        self._process.kill()


def _pipe(context: Any) -> tuple[Callable[[Any], None], Any]:
    receiver, sender = context.Pipe(duplex=False)
    return sender.send, receiver


def _queue(context: Any) -> tuple[Callable[[Any], None], Any]:
    queue = context.Queue()
    return queue.put, queue


def _answer(source: Any, answers: Any, framework: str) -> None:
    _make(framework, 800)  # imports it
    answers.send(None)
    get = getattr(source, "recv", None) or source.get
    while (obj := get()) is not None:
        answers.send(_element(obj))
        del obj


def _element(obj: Any) -> float:
    if hasattr(obj, "iloc"):
        return float(obj.iloc[5, 1])
    if hasattr(obj, "columns"):
        return float(obj["c1"][5].as_py() if hasattr(obj["c1"][5], "as_py") else obj["c1"][5])
    return float(obj[5])


def _make(framework: str, nbytes: int) -> Any:
    if framework == "torch":
        import_module("torch.multiprocessing")  # registers torch's reducers
    return make(framework, nbytes)
