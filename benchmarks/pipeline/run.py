"""One run of the pipeline, stamped at the end of each stage; and the contest of runs."""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np

from benchmarks.pipeline.contenders.method import Hop, Method
from benchmarks.pipeline.copied import copied
from benchmarks.pipeline.data import Files
from benchmarks.pipeline.stages import WHOLE, Place, Stage, begin, stages
from benchmarks.timing import set_modules_apart

#: How far scores may lie apart. Sums are taken in another order where memory begins elsewhere
#: or a column comes in more chunks than one.
CLOSE = 1e-4


@dataclass
class Outcome:
    """What a run gave.

    Attributes
    ----------
    values : dict
        All that the stages made, by their names.
    spent : dict of str to int
        Nanoseconds by stage.
    copied : dict of str to int
        Bytes by border, if they were looked up.
    """

    values: dict[str, Any]
    spent: dict[str, int] = field(default_factory=dict)
    copied: dict[str, int] = field(default_factory=dict)


class Runner:
    """A contender at a place, with its code compiled and its modules imported."""

    def __init__(self, method: Method, place: Place) -> None:
        self.method, self.place = method, place
        self._steps: list[tuple[Stage, tuple[Hop, ...]]] = [
            (stage, method.hops(stage.border) if stage.border else ()) for stage in stages(place)
        ]

    def run(self, files: Files, look: bool = False) -> Outcome:
        """Run it once.

        Parameters
        ----------
        files : Files
        look : bool
            Look up what is copied at each border; then the times are worth nothing.

        Notes
        -----
        All values live to the end, as those of a script do that gives each a name. What a chain
        makes on its method is dropped at once.
        """
        found = Outcome(begin(files))
        values = found.values
        began = perf_counter_ns()
        for stage, hops in self._steps:
            given = [values[name] for name in stage.takes]
            start = perf_counter_ns()
            if stage.work is not None:
                made = stage.work(*given)
            else:
                (made,) = given
                for hop in hops:
                    source, made = made, hop(made)
                    if look:
                        found.copied[stage.name] = found.copied.get(stage.name, 0) + copied(source, made)
                    del source
            if stage.waits:
                self.place.settle(made)
            found.spent[stage.name] = perf_counter_ns() - start
            values[stage.gives] = made
        found.spent[WHOLE] = perf_counter_ns() - began
        return found


def differs(found: Outcome, expected: Outcome) -> str:
    """Return how the results of two runs differ; nothing if they do not."""
    ours, theirs = (outcome.values["scores"]["score"] for outcome in (expected, found))
    if theirs.dtype != ours.dtype or theirs.shape != ours.shape:
        return f"gives {theirs.dtype}{list(theirs.shape)}, not {ours.dtype}{list(ours.shape)}"
    if not np.allclose(theirs, ours, rtol=0, atol=CLOSE):
        return f"gives scores that are off by {np.abs(theirs - ours).max():.2g}"
    if not np.array_equal(found.values["scores"]["late"], expected.values["scores"]["late"]):
        return "gives other labels"
    for name, value in expected.values["metrics"].items():
        if not abs(found.values["metrics"][name] - value) <= CLOSE:
            return f"gives another {name}: {found.values['metrics'][name]:.6g}, not {value:.6g}"
    if found.values["table"].schema.remove_metadata() != expected.values["table"].schema.remove_metadata():
        return "writes another schema"
    return ""


def race(runners: Sequence[Runner], files: Files, rounds: int) -> dict[str, list[dict[str, int]]]:
    """Run them in turns, in an order that changes from round to round; return what each spent, by label."""
    samples: dict[str, list[dict[str, int]]] = {runner.method.label: [] for runner in runners}
    order = list(runners)
    # Fixed, so that two runs differ by the machine alone.
    shuffle = random.Random(0).shuffle
    with quiet():
        for _ in range(rounds):
            shuffle(order)
            for runner in order:
                gc.collect()
                samples[runner.method.label].append(runner.run(files).spent)
    return samples


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection, no warnings, and one thread for torch meanwhile."""
    import torch

    threads = torch.get_num_threads()
    collecting = gc.isenabled()
    set_modules_apart()
    gc.collect()
    gc.disable()
    # Its threads go on spinning when they are done, on the cores of the stage that follows.
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()
