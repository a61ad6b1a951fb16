"""One run of the pipeline, with the time of each stage; and runs of all contenders in turns."""

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
from benchmarks.pipeline.stages import WHOLE, Engines, Stage, begin, stages
from benchmarks.timing import freeze_modules

#: Tolerance of scores: the order of sums depends on the alignment of memory and on chunks.
CLOSE = 1e-4


@dataclass
class Outcome:
    """The results of a run.

    Attributes
    ----------
    values : dict
        The values of all stages, by name.
    spent : dict of str to int
        Nanoseconds by stage.
    copied : dict of str to int
        Copied bytes by border, if they were looked up.
    """

    values: dict[str, Any]
    spent: dict[str, int] = field(default_factory=dict)
    copied: dict[str, int] = field(default_factory=dict)


class Runner:
    """A contender on a CPU or GPU, with compiled code and imported modules."""

    def __init__(self, method: Method, engines: Engines) -> None:
        self.method, self.engines = method, engines
        self._steps: list[tuple[Stage, tuple[Hop, ...]]] = [
            (stage, method.hops(stage.border) if stage.border else ()) for stage in stages(engines)
        ]

    def run(self, files: Files, look: bool = False) -> Outcome:
        """Run it once.

        Parameters
        ----------
        files : Files
        look : bool
            Look up the copied bytes at each border, which makes the times meaningless.

        Notes
        -----
        All named values stay alive until the end, as in a script. Intermediate values of a chain are
        released immediately.
        """
        outcome = Outcome(begin(files))
        values = outcome.values
        began = perf_counter_ns()
        for stage, hops in self._steps:
            inputs = [values[name] for name in stage.takes]
            start = perf_counter_ns()
            if stage.work is not None:
                value = stage.work(*inputs)
            else:
                (value,) = inputs
                for hop in hops:
                    source, value = value, hop(value)
                    if look:
                        outcome.copied[stage.name] = outcome.copied.get(stage.name, 0) + copied(source, value)
                    del source
            if stage.waits:
                self.engines.settle(value)
            outcome.spent[stage.name] = perf_counter_ns() - start
            values[stage.gives] = value
        outcome.spent[WHOLE] = perf_counter_ns() - began
        return outcome


def differs(outcome: Outcome, expected: Outcome) -> str:
    """Return how the results of two runs differ, or nothing."""
    ours, theirs = (run.values["scores"]["score"] for run in (expected, outcome))
    if theirs.dtype != ours.dtype or theirs.shape != ours.shape:
        return f"gives {theirs.dtype}{list(theirs.shape)}, not {ours.dtype}{list(ours.shape)}"
    if not np.allclose(theirs, ours, rtol=0, atol=CLOSE):
        return f"gives scores that are off by {np.abs(theirs - ours).max():.2g}"
    if not np.array_equal(outcome.values["scores"]["late"], expected.values["scores"]["late"]):
        return "gives other labels"
    for name, value in expected.values["metrics"].items():
        if not abs(outcome.values["metrics"][name] - value) <= CLOSE:
            return f"gives another {name}: {outcome.values['metrics'][name]:.6g}, not {value:.6g}"
    if outcome.values["table"].schema.remove_metadata() != expected.values["table"].schema.remove_metadata():
        return "writes another schema"
    return ""


def race(runners: Sequence[Runner], files: Files, rounds: int) -> dict[str, list[dict[str, int]]]:
    """Run them in turns, in an order that changes with each round; return their times by label."""
    samples: dict[str, list[dict[str, int]]] = {runner.method.label: [] for runner in runners}
    order = list(runners)
    # A fixed seed, so that two runs differ only by the machine.
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
    """Disable garbage collection and warnings, and limit torch to one thread."""
    import torch

    threads = torch.get_num_threads()
    collecting = gc.isenabled()
    freeze_modules()
    gc.collect()
    gc.disable()
    # Its idle threads spin, on the cores of the next stage.
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)
        if collecting:
            gc.enable()
