"""The goals of the suite: each with its case, its figure and its limit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from benchmarks.goals import Measure, Promise as _Promise, figure, judge
from benchmarks.loader.turns import TIMES
from benchmarks.suite import Case

OURS = "zc.loader"
#: Start of the names of figures of memory: the most bytes at once, by the rows of the file.
PEAK = "peak, "
ELSEWHERE = "bytes outside of the decoded columns and the buffers"
PER_VALUE = "writes of a byte after decoding, at most"


@dataclass(frozen=True)
class Promise(_Promise):
    """A promise of the loader; pages show it as ``"writes"``, or as ``"speedup"`` over others.

    `others` is the start of the labels whose ratios are shown for comparison; empty for all.
    """

    shown: str = ""
    others: str = ""


def times(label: str = OURS) -> Measure:
    """Return the ratio of a contender to the bound."""
    return figure(TIMES + label)


def over(label: str) -> Measure:
    """Return the loader's ratio to the bound, divided by that of another contender."""

    def measure(case: Case) -> float | None:
        own, other = times()(case), times(label)(case)
        return own / other if own is not None and other else None

    return measure


def growth(case: Case) -> float | None:
    """Return the peak of the longer file over that of the shorter one."""
    peaks = [case.figures[name] for name in case.figures if name.startswith(PEAK)]
    return peaks[-1] / peaks[0] if len(peaks) > 1 and peaks[0] else None


#: End of the names of cases with slow contenders, and with files of fewer rows for all contenders.
FEWER = ", fewer rows"
HF_TORCH = 'datasets, with_format("torch")'
IN_MEMORY = "DataLoader of a TensorDataset in memory"
BY_HAND = "pyarrow's columns, indexed by torch"
#: Cases of a recommender's table.
INTERACTIONS = ("lists with text and nulls, in order", "lists with text and nulls, shuffled")
MODES = ("columns, in order", "matrix, in order", "matrix, shuffled", "columns, shuffled")

PROMISES = (
    Promise("columns, in order", times(), 1.1, cases=("columns, in order",)),
    Promise("matrix, in order", times(), 1.1, cases=("matrix, in order",)),
    Promise("matrix, shuffled", times(), 1.5, cases=("matrix, shuffled",)),
    Promise(
        "columns, in order: against Hugging Face's torch format",
        over(HF_TORCH),
        1 / 10,
        cases=(f"columns, in order{FEWER}",),
        shown="speedup",
        others=HF_TORCH,
    ),
    Promise(
        "matrix, shuffled: against DataLoader and TensorDataset in memory",
        over(IN_MEMORY),
        1 / 20,
        cases=(f"matrix, shuffled{FEWER}",),
        shown="speedup",
        others=IN_MEMORY,
    ),
    Promise("lists with text and nulls: against code by hand", over(BY_HAND), 1.2, cases=INTERACTIONS),
    Promise("bytes copied, in order, columns", figure(PER_VALUE), 0, "", MODES[:1], shown="writes"),
    Promise("bytes copied, matrix", figure(PER_VALUE), 1, "", MODES[1:3], shown="writes"),
    Promise("bytes copied by other code", figure(ELSEWHERE), 0, "bytes", MODES),
    Promise("memory: file of 8 windows over file of 4", growth, 1.1, cases=MODES),
)

goals = partial(judge, PROMISES)
