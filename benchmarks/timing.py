"""The clock: contenders take turns in one process, block by block.

Two programs that run one after the other also measure how the machine changed in between.
Here each round times a block of calls of every contender, in an order that changes from round
to round, so that drift (clock speed, neighbours, caches) affects all of them.
"""

from __future__ import annotations

import atexit
import gc
import random
import statistics
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from time import perf_counter_ns
from typing import Any, TypeVar

from benchmarks import interrupt

_LOOP = """
def loop(calls, clock):
    start = clock()
    for _ in calls:
        {code}
    return clock() - start
"""

_LONG = 1_000_000_000  # ns

T = TypeVar("T")
Loop = Callable[[Iterable[None], Callable[[], int]], int]
Begin = Callable[[T], tuple[int, int]]
Sample = Callable[[T, int, list[Any]], Any]


@dataclass(frozen=True)
class Pace:
    """The duration of a measurement: rounds, and nanoseconds of a block and of all blocks of a contender.

    A contender whose single call takes longer than `block` gets blocks of one call. One that would take
    longer than `patience` skips some of the rounds, but has the `least`.
    """

    rounds: int
    block: int
    patience: int
    least: int = 3

    def turns(self, spent: int) -> int:
        """Return in how many rounds a contender takes part if its block takes `spent` nanoseconds."""
        return max(min(self.rounds, self.least), min(self.rounds, self.patience // max(spent, 1)))


FULL = Pace(rounds=60, block=1_000_000, patience=12_000_000_000)
QUICK = Pace(rounds=15, block=300_000, patience=100_000_000)


@dataclass(frozen=True)
class Timing:
    """Time of one call in nanoseconds: the median of the blocks, the quartiles and the minimum.

    `rounds` and `calls` are the number of blocks, and of calls in each.
    """

    median: float
    q1: float
    q3: float
    best: float
    rounds: int
    calls: int

    @property
    def spread(self) -> float:
        """The interquartile range, in nanoseconds."""
        return self.q3 - self.q1

    @classmethod
    def of(cls, samples: Sequence[float], calls: int = 1) -> Timing:
        """Summarize samples, each in nanoseconds per call.

        Examples
        --------
        >>> Timing.of([3.0, 1.0, 2.0]).median
        2.0
        """
        q1, middle, q3 = (
            statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
        )
        return cls(middle, q1, q3, min(samples), len(samples), calls)


@dataclass(frozen=True)
class Raised:
    """The result of a contender that raised, in place of a timing: ``"raises ValueError: ..."``."""

    why: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Describe an error in one line.

        Examples
        --------
        >>> Raised.of(ValueError("no"))
        Raised(why='raises ValueError: no')
        """
        try:
            text = str(error)
        except Exception as second:  # noqa: BLE001 - the text of an error can raise too
            text = f"its text raises {type(second).__name__}"
        return cls(f"raises {type(error).__name__}: {text.partition(chr(10))[0][:160]}".rstrip(": "))


@dataclass(frozen=True)
class Statement:
    """One line of code as a user writes it, with the names that it uses."""

    code: str
    names: Mapping[str, Any]

    def loop(self) -> Loop:
        """Compile the line into the loop that all contenders share, without a function call in between."""
        names = dict(self.names)
        exec(compile(_LOOP.format(code=self.code), f"<{self.code}>", "exec"), names)
        loop: Loop = names["loop"]
        return loop

    def value(self) -> Any:
        """Evaluate it once as an expression."""
        return eval(self.code, dict(self.names))


def measure(statements: Mapping[str, Statement], pace: Pace) -> dict[str, Any]:
    """Time statements in turns; return a Timing or Raised by label, which can be an entry's ``timing``.

    Garbage is collected between rounds, never inside a block.
    """

    def begin(loop: LazyLoop) -> tuple[int, int]:
        return _block(loop(), pace.block)

    def sample(loop: LazyLoop, calls: int, before: list[Any]) -> float:
        return loop()(repeat(None, calls), perf_counter_ns) / calls

    return timed(loops(statements), pace, begin, sample)


#: Compiles a statement at the first call, because a statement that cannot be compiled is left out.
LazyLoop = Callable[[], Loop]


def loops(statements: Mapping[str, Statement]) -> dict[str, LazyLoop]:
    """Return the loop of each statement."""
    return {label: cache(statement.loop) for label, statement in statements.items()}


def timed(contenders: Mapping[str, T], pace: Pace, begin: Begin[T], sample: Sample[T]) -> dict[str, Any]:
    """Take turns with samples that are nanoseconds of a call; return a Timing or Raised by label."""
    samples, calls, raised = take_turns(contenders, pace, begin, sample)
    return {
        label: raised[label] if label in raised else Timing.of(samples[label], calls[label])
        for label in contenders
    }


def take_turns(
    contenders: Mapping[str, T], pace: Pace, begin: Begin[T], sample: Sample[T]
) -> tuple[dict[str, list[Any]], dict[str, int], dict[str, Raised]]:
    """Run blocks of each contender in turns, with any clock.

    ``begin(contender)`` warms up, and returns how many calls fill a block, and the block's duration.
    ``sample(contender, calls, before)`` runs a block and returns a sample; `before` has the earlier samples.
    Returns the samples, the calls of a block, and the errors of contenders that raised; by label.
    """
    raised: dict[str, Raised] = {}
    samples: dict[str, list[Any]] = {label: [] for label in contenders}
    order = list(contenders)
    # A fixed seed, so that two runs differ only by the machine.
    shuffle = random.Random(0).shuffle
    blocks: dict[str, tuple[int, int]] = {}
    with undisturbed():
        for label, contender in contenders.items():
            try:
                blocks[label] = begin(contender)
            except Exception as error:  # noqa: BLE001 - any error is its result
                interrupt.check()
                raised[label] = Raised.of(error)
        turns = {label: pace.turns(spent) for label, (_, spent) in blocks.items()}
        for number in range(pace.rounds):
            shuffle(order)
            gc.collect()
            for label in order:
                if label in raised or (number * turns[label]) % pace.rounds >= turns[label]:
                    continue  # skips this round; its turns are spread evenly
                try:
                    taken = sample(contenders[label], blocks[label][0], samples[label])
                except Exception as error:  # noqa: BLE001 - as above
                    interrupt.check()
                    raised[label] = Raised.of(error)
                else:
                    samples[label].append(taken)
    return samples, {label: count for label, (count, _) in blocks.items()}, raised


@contextmanager
def undisturbed() -> Iterator[None]:
    """Disable garbage collection and warnings."""
    collecting = gc.isenabled()
    freeze_modules()
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collecting:
            gc.enable()


_modules = 0


def freeze_modules() -> None:
    """Exclude the objects of imported modules from later garbage collections.

    With several frameworks imported, each collection would take a quarter of a second. Objects
    created afterwards are collected as usual.
    """
    global _modules
    if len(sys.modules) != _modules:
        if not _modules:
            # nanobind prints all objects that are alive when Python exits.
            atexit.register(gc.unfreeze)
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)


def _block(loop: Loop, block: int) -> tuple[int, int]:
    """Return how many calls fill a block, and the block's duration; this is the warm-up too."""
    first = loop(repeat(None, 1), perf_counter_ns)  # first-time costs: caches, lazy imports
    if first >= _LONG:
        return 1, first  # first-time costs are a negligible part of it
    count = 1
    while True:
        spent = loop(repeat(None, count), perf_counter_ns)
        if spent >= block // 2:
            # Again, because another process may have interrupted it: too small a block measures cold caches.
            spent = min(spent, loop(repeat(None, count), perf_counter_ns))
            if spent >= block // 2:
                break
        count *= 2
    if count == 1 and spent >= block:
        return 1, spent
    spent = min(spent, loop(repeat(None, count), perf_counter_ns))
    calls = max(1, round(count * block / max(spent, 1)))
    return calls, spent * calls // count
