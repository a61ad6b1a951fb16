"""Contenders that are processes, which take turns block by block."""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from benchmarks.children import environment
from benchmarks.suite import Case, Entry
from benchmarks.timing import Pace, Timing

#: The mode of the process without a pool.
WITHOUT = "off"


class Side:
    """A process in which a mode is installed.

    Parameters
    ----------
    mode : str
        The value of ``host=``.
    argument : str, optional
        The argument of the process; the mode by default.

    Attributes
    ----------
    mode : str
        The mode, which is unique in its case.
    program : str
        The module that the process runs.
    """

    program = "benchmarks.pool.child"

    def __init__(self, mode: str, argument: str | None = None) -> None:
        self.mode = mode
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.program, mode if argument is None else argument],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def label(self) -> str:
        """Its label in tables."""
        return label(self.mode)

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a function in the child, and return the result.

        Raises
        ------
        RuntimeError
            The child has ended.
        """
        self.start(name, *arguments)
        return self.result()

    def start(self, name: str, *arguments: Any) -> None:
        """Call a function in the child; `result` waits for it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the child has ended: `result` raises
            self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
            self._process.stdin.flush()

    def result(self) -> Any:
        """Return the result of the call that was started; raises as `ask` does."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process with {self.label} ended ({self._process.wait()})")
        return json.loads(answer)

    def close(self) -> None:
        """End the child."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@contextmanager
def sides(*modes: str) -> Iterator[list[Side]]:
    """Start a process for each mode; they end at the end of the block."""
    with ExitStack() as stack:
        started = []
        for mode in modes:
            side = Side(mode)
            stack.callback(side.close)
            started.append(side)
        yield started


def label(mode: str) -> str:
    """Return the label of a mode in tables."""
    return "without" if mode == WITHOUT else f"host={mode!r}"


Samples = dict[str, list[float]]


def turns(code: str, contenders: Sequence[Side], pace: Pace) -> Samples:
    """Time the same line in each process, in turns.

    Parameters
    ----------
    code : str
        A statement with names that the children have created.
    contenders : sequence of Side
    pace : Pace
        The duration of the measurement, as in :func:`benchmarks.timing.measure`.

    Returns
    -------
    dict of str to list of float
        By mode: nanoseconds per call, one for each block.
    """
    calls = {side.mode: side.ask("calls", code, pace.block) for side in contenders}
    spent = {side.mode: side.ask("block", code, calls[side.mode]) for side in contenders}
    part = {mode: pace.turns(block) for mode, block in spent.items()}
    samples: Samples = {side.mode: [] for side in contenders}
    order = list(contenders)
    shuffle = random.Random(0).shuffle
    gc.collect()
    for number in range(pace.rounds):
        shuffle(order)
        for side in order:
            if (number * part[side.mode]) % pace.rounds < part[side.mode]:
                nanoseconds = side.ask("block", code, calls[side.mode])
                samples[side.mode].append(nanoseconds / calls[side.mode])
    return samples


def contest(name: str, several: Sequence[Samples]) -> Case:
    """Return a case with the samples of several sets of processes."""
    entries = []
    for mode in several[0]:
        pooled = [sample for samples in several for sample in samples[mode]]
        role = "idiom" if mode == WITHOUT else "ours"
        entries.append(Entry(label(mode), role, Timing.of(pooled)))
    return Case(name, entries)
