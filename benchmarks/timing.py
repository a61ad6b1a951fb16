"""The clock: contenders take turns in one process, block by block.

Two programs that run one after the other are compared with whatever else the
machine did in between. Here each round times a block of calls of every
contender, in an order that changes from round to round, so that what drifts
(clock speed, neighbours, caches) drifts for all of them.
"""

from __future__ import annotations

import atexit
import gc
import random
import statistics
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from benchmarks import interrupt

_LOOP = """
def loop(calls, clock):
    start = clock()
    for _ in calls:
        {code}
    return clock() - start
"""

_LONG = 1_000_000_000  # ns

Loop = Callable[[Iterable[None], Callable[[], int]], int]


@dataclass(frozen=True)
class Pace:
    """How long to measure.

    Attributes
    ----------
    rounds : int
        Blocks of each contender.
    block : int
        About how long one block takes, in nanoseconds. A contender that needs
        longer for one call gets blocks of one call.
    patience : int
        About how long all blocks of one contender take, in nanoseconds. One whose
        calls take so long that they would take more sits out some of the rounds.
    """

    rounds: int
    block: int
    patience: int

    def turns(self, spent: int) -> int:
        """Return in how many rounds a contender takes part whose block takes so long."""
        return max(min(self.rounds, 3), min(self.rounds, self.patience // max(spent, 1)))


FULL = Pace(rounds=60, block=1_000_000, patience=12_000_000_000)
QUICK = Pace(rounds=15, block=300_000, patience=100_000_000)


@dataclass(frozen=True)
class Timing:
    """Time of one call in nanoseconds: the median of the blocks, and their spread.

    Attributes
    ----------
    median, q1, q3, best : float
        The median, the quartiles and the least of the blocks' means.
    rounds, calls : int
        Blocks, and calls in each.
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
        """Sum up samples, each in nanoseconds a call.

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
    """What stands in place of a timing where a contender raised: the others keep their times.

    Attributes
    ----------
    why : str
        ``"raises ValueError: ..."``.
    """

    why: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Say what was raised, in a line.

        Examples
        --------
        >>> Raised.of(ValueError("no"))
        Raised(why='raises ValueError: no')
        """
        try:
            text = str(error)
        except Exception as second:  # noqa: BLE001 - an error whose text raises is one all the same
            text = f"its text raises {type(second).__name__}"
        return cls(f"raises {type(error).__name__}: {text.partition(chr(10))[0][:160]}".rstrip(": "))


@dataclass(frozen=True)
class Statement:
    """One line of code as a user writes it, and the names that it uses."""

    code: str
    names: Mapping[str, Any]

    def loop(self) -> Loop:
        """Compile a loop around it: the same one for each contender, with no call in between."""
        names = dict(self.names)
        exec(compile(_LOOP.format(code=self.code), f"<{self.code}>", "exec"), names)
        made: Loop = names["loop"]
        return made

    def value(self) -> Any:
        """Run it once, as an expression, and return what it gives."""
        return eval(self.code, dict(self.names))


def measure(statements: Mapping[str, Statement], pace: Pace) -> dict[str, Any]:
    """Time statements against each other.

    Parameters
    ----------
    statements : dict of str to Statement
        The contenders, by label.
    pace : Pace
        How long.

    Returns
    -------
    dict of str to Timing or Raised
        By the same labels. Either can be an entry's ``timing``: of one that raised it becomes
        why it was left out.

    Notes
    -----
    Garbage is collected between rounds and never inside a block.
    """

    def begin(loop: Loop) -> tuple[int, int]:
        return _block(loop, pace.block)

    def sample(loop: Loop, calls: int, before: list[Any]) -> float:
        return loop(repeat(None, calls), perf_counter_ns) / calls

    samples, calls, raised = take_turns(statements, pace, begin, sample)
    return {
        label: raised[label] if label in raised else Timing.of(samples[label], calls[label])
        for label in statements
    }


def take_turns(
    statements: Mapping[str, Statement],
    pace: Pace,
    begin: Callable[[Loop], tuple[int, int]],
    sample: Callable[[Loop, int, list[Any]], Any],
) -> tuple[dict[str, list[Any]], dict[str, int], dict[str, Raised]]:
    """Run blocks of each statement in turns, whatever the clock is.

    Parameters
    ----------
    statements : dict of str to Statement
    pace : Pace
    begin : callable
        ``begin(loop)`` warms up, and returns how many calls fill a block, and how long it takes.
    sample : callable
        ``sample(loop, calls, before)`` runs a block and returns what is kept of it; `before` is what
        was kept of the earlier ones.

    Returns
    -------
    tuple of dict
        What was kept, the calls of a block, and what the others raised; by label.
    """
    set_modules_apart()
    raised: dict[str, Raised] = {}
    samples: dict[str, list[Any]] = {label: [] for label in statements}
    order = list(statements)
    # Fixed, so that two runs differ by the machine alone.
    shuffle = random.Random(0).shuffle
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings():
            # Who times a call that warns wants its cost and not a screen of warnings.
            warnings.simplefilter("ignore")
            loops: dict[str, Loop] = {}
            blocks: dict[str, tuple[int, int]] = {}
            for label, statement in statements.items():
                try:
                    loops[label] = statement.loop()
                    blocks[label] = begin(loops[label])
                except Exception as error:  # noqa: BLE001 - whatever it raises is its result
                    interrupt.check()
                    raised[label] = Raised.of(error)
            turns = {label: pace.turns(spent) for label, (_, spent) in blocks.items()}
            for number in range(pace.rounds):
                shuffle(order)
                gc.collect()
                for label in order:
                    if label in raised or (number * turns[label]) % pace.rounds >= turns[label]:
                        continue  # sits out: those that take part are spread evenly
                    try:
                        kept = sample(loops[label], blocks[label][0], samples[label])
                    except Exception as error:  # noqa: BLE001 - as above
                        interrupt.check()
                        raised[label] = Raised.of(error)
                    else:
                        samples[label].append(kept)
    finally:
        if collecting:
            gc.enable()
    return samples, {label: count for label, (count, _) in blocks.items()}, raised


_modules = 0


def set_modules_apart() -> None:
    """Freeze out of all later collections what modules hold, when there are new ones.

    With several frameworks imported each collection would take a quarter of a second. What is
    made afterwards is collected as ever.
    """
    global _modules
    if len(sys.modules) != _modules:
        if not _modules:
            # Bindings made with nanobind print a page of what is still alive when Python ends.
            atexit.register(gc.unfreeze)
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)


def _block(loop: Loop, block: int) -> tuple[int, int]:
    """Return how many calls fill a block, and how long it takes; what is run to find out is the warm-up."""
    first = loop(repeat(None, 1), perf_counter_ns)  # first-time costs: caches, lazy imports
    if first >= _LONG:
        return 1, first  # of which first-time costs are no part to speak of
    count = 1
    while True:
        spent = loop(repeat(None, count), perf_counter_ns)
        if spent >= block // 2:
            break
        count *= 2
    if count == 1 and spent >= block:
        return 1, spent
    spent = loop(repeat(None, count), perf_counter_ns)
    calls = max(1, round(count * block / max(spent, 1)))
    return calls, spent * calls // count
