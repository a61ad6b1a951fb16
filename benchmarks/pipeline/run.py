"""One run of the pipeline, with the time of each stage and the bytes that its borders copy; runs in turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.pipeline.contenders import Hop, Method
from benchmarks.pipeline.data import Files
from benchmarks.pipeline.stages import WHOLE, Engines, Stage, begin, stages
from benchmarks.timing import Pace, take_turns, undisturbed

#: Tolerance of scores: the order of sums depends on the alignment of memory and on chunks.
CLOSE = 1e-4


@dataclass
class Outcome:
    """The values by name, nanoseconds by stage, and copied bytes by border if they were looked up."""

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
        """Run it once; with `look`, look up the copied bytes at each border: the times are meaningless.

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
    """Run them in turns; return the times of the stages in each round, by label."""

    def sample(runner: Runner, calls: int, before: list[Any]) -> dict[str, int]:
        gc.collect()
        return runner.run(files).spent

    contenders = {runner.method.label: runner for runner in runners}
    with quiet():
        # They have been run for the check, which is the warm-up.
        samples, _, raised = take_turns(contenders, Pace(rounds, 0, 1), lambda runner: (1, 0), sample)
    for label, failure in raised.items():
        raise RuntimeError(f"{label} {failure.why}")
    return samples


@contextmanager
def quiet() -> Iterator[None]:
    """Disable garbage collection and warnings, and limit torch to one thread."""
    import torch

    threads = torch.get_num_threads()
    # Its idle threads spin, on the cores of the next stage.
    torch.set_num_threads(1)
    try:
        with undisturbed():
            yield
    finally:
        torch.set_num_threads(threads)


#: Functions that return the bytes of columns without ``nbytes``.
_SIZES: dict[str, Callable[[Any], int]] = {
    "polars": lambda column: _in_arrow(column).nbytes,
    "pandas": lambda column: column.memory_usage(index=False, deep=True),
    "cudf": lambda column: column.memory_usage(index=False, deep=True),
}


def copied(source: Any, result: Any) -> int:
    """Return the bytes of the columns of `result` that share no memory with the same column of `source`.

    Both are tables, structured arrays or dicts of arrays.
    """
    before = columns(source)
    return sum(
        size(column) for name, column in columns(result).items() if not _aliases(column, before.get(name))
    )


def columns(table: Any) -> dict[str, Any]:
    """Return the columns of a table, the fields of records, or the arrays of a dict."""
    return {str(name): table[name] for name in _names(table)}


def size(column: Any) -> int:
    """Return the bytes of one column."""
    root = type(column).__module__.partition(".")[0]
    return int(_SIZES[root](column) if root in _SIZES else column.nbytes)


def _in_arrow(series: Any) -> Any:
    """Return a polars column as Arrow, because `estimated_size` ignores the views of text."""
    import polars as pl

    return series.to_arrow(compat_level=pl.CompatLevel.newest())


def _names(table: Any) -> Iterable[Any]:
    if isinstance(table, Mapping):
        return table
    if hasattr(table, "column_names"):  # pyarrow, whose `columns` are not names
        return list(table.column_names)
    return list(table.columns) if hasattr(table, "columns") else list(table.dtype.names)


def _aliases(column: Any, source: Any) -> bool:
    """Whether they share memory; columns of Python objects do not."""
    if source is None:
        return False
    try:
        return zc.shares_memory(source, column)
    except zc.UnsupportedConversionError:
        return False
