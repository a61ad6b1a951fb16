"""multiprocessing.Pipe and Queue: one object to a child process, which reads one element and answers."""

from __future__ import annotations

import multiprocessing as mp
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

import zerocopy.integrations.multiprocessing as zmp

FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas", "polars")
ARRAYS = FRAMEWORKS[:4]
#: 64 MiB of float32, or 80 MB: 10 columns of a million float64.
ELEMENTS, ROWS, COLUMNS = 1 << 24, 1_000_000, 10


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


def _measure(channel: Callable[[Any], Any], frameworks: Sequence[str], rounds: int) -> list[Row]:
    rows = []
    for framework in frameworks:
        with closing(_Child(channel, framework)) as child:
            rows += _compare(child, framework, rounds)
    return rows


def _compare(child: _Child, framework: str, rounds: int) -> list[Row]:
    """Measure both sides and the copy in turns, so that each meets the same state of the machine."""
    source = _make(framework)
    nbytes = ELEMENTS * 4 if framework in ARRAYS else ROWS * COLUMNS * 8
    one, other = np.ones(nbytes, np.uint8), np.ones(nbytes, np.uint8)
    times: dict[str, list[float]] = {"memcpy": [], "today": [], "zerocopy": []}
    for _ in range(rounds + 2):
        times["memcpy"].append(_timed(lambda: np.copyto(other, one)))
        obj = _fresh(source, framework)
        times["today"].append(_timed(lambda obj=obj: child.ask(obj)))
        zmp.install()
        obj = _fresh(source, framework)
        times["zerocopy"].append(_timed(lambda obj=obj: child.ask(obj)))
        zmp.uninstall()
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
    _make(framework, 1)  # imports it
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


def _make(framework: str, share: int = 0) -> Any:
    """Return the object of a framework, or a small one if `share` is not 0."""
    if framework in ARRAYS:
        array = np.arange(10 if share else ELEMENTS, dtype="f4")
        if framework == "numpy":
            return array
        if framework == "torch":
            import_module("torch.multiprocessing")  # registers torch's reducers
            return import_module("torch").from_numpy(array).clone()
        if framework == "jax":
            return import_module("jax.numpy").asarray(array)
        return import_module("tensorflow").constant(array)
    rows = 10 if share else ROWS
    columns = {f"c{i}": np.random.default_rng(i).random(rows) for i in range(COLUMNS)}
    module = import_module(framework)
    return module.table(columns) if framework == "pyarrow" else module.DataFrame(columns)
