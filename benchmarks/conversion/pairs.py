"""Each framework to each other one: zerocopy, the documented call, and the fastest by hand."""

from __future__ import annotations

from functools import partial

from benchmarks.contest import Contest
from benchmarks.conversion.contenders import Pair, aliases, contenders, pairs
from benchmarks.conversion.question import Question, methods
from benchmarks.conversion.subjects import SUBJECTS, aligned_values
from benchmarks.goals import BY_HAND, Measure, Promise, added, fastest, judge, ratio
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.timing import Pace

COUNT = 1000  # elements

MEAN_RATIO, RATIO, ADDED = 0.5, 0.8, 150.0


def tasks(settings: Settings) -> list[Task]:
    return [Task(" -> ".join(pair), partial(_contest, pair, settings.pace)) for pair in pairs(settings.wants)]


def _contest(pair: Pair, pace: Pace) -> list[Case]:
    """Check the contenders of a pair, then time those that pass."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    contest = Contest()
    timed = methods(contenders(pair), {"x": x})
    Question(" -> ".join(pair), timed, partial(aliases, pair, x, expected)).add_to(contest)
    return contest.time(pace)


_DOCUMENTED = fastest("documented")


def _where(measure: Measure, documented_is_fastest: bool) -> Measure:
    """Return a figure where the documented call is the fastest by hand, or where it is not."""

    def measured(case: Case) -> float | None:
        documented = _DOCUMENTED(case)
        is_fastest = documented is not None and BY_HAND(case) is documented
        return measure(case) if is_fastest == documented_is_fastest else None

    return measured


PROMISES = (
    # If no code by hand is faster than the documented call, the goal is the time that zerocopy adds.
    Promise(
        f"documented call, where it is the fastest by hand: zerocopy adds {ADDED:.0f} ns at most",
        _where(added(_DOCUMENTED), True),
        ADDED,
        "ns",
    ),
    Promise(f"documented call: {RATIO}x at most", _where(ratio(_DOCUMENTED), False), RATIO),
    Promise(
        f"documented call, geometric mean: {MEAN_RATIO}x at most",
        ratio(_DOCUMENTED),
        MEAN_RATIO,
        mean="pairs",
    ),
    Promise(f"fastest by hand: zerocopy adds {ADDED:.0f} ns at most", added(BY_HAND), ADDED, "ns"),
)

SECTION = Section(
    "pairs", f"{COUNT:,} elements of float32, default options", tasks, "contest", partial(judge, PROMISES)
)
