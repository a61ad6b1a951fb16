"""Each framework to each other one: zerocopy, the documented call, and the fastest by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.contest import Contest
from benchmarks.conversion.contenders import Pair, check, contenders, pairs, statement
from benchmarks.conversion.subjects import SUBJECTS, aligned_values
from benchmarks.suite import Case, Goal, Section, Settings, Task, median
from benchmarks.timing import Pace

COUNT = 1000  # elements

MEAN_RATIO, RATIO, ADDED = 0.5, 0.8, 150.0


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each pair."""
    return [Task(_name(pair), partial(_contest, pair, settings.pace)) for pair in pairs(settings.wants)]


def _contest(pair: Pair, pace: Pace) -> list[Case]:
    """Check the contenders of a pair, then time those that pass."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    contest = Contest()
    case = contest.case(_name(pair))
    for each in contenders(pair):
        refused = check(each, pair, x, expected)
        contest.add(case, each.code, each.role, partial(statement, each, pair, x), refused, each.note)
    return contest.time(pace)


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare zerocopy with the documented call, and with the fastest by hand."""
    return [*_against_documented(cases), *_against_hand(cases)]


def _against_documented(cases: Sequence[Case]) -> Iterator[Goal]:
    ratios = []
    for case in cases:
        ours, documented = case.fastest("ours"), case.fastest("documented")
        if ours is None or documented is None:
            continue
        ratio = median(ours) / median(documented)
        ratios.append(ratio)
        if case.fastest("documented", "idiom") is documented:
            # If no code by hand is faster than the documented call, the goal is an absolute one:
            # the time that zerocopy adds.
            yield Goal(
                f"documented call, where it is the fastest by hand: zerocopy adds {ADDED:.0f} ns at most",
                case.name,
                median(ours) - median(documented),
                ADDED,
                "ns",
            )
        else:
            yield Goal(f"documented call: {RATIO}x at most", case.name, ratio, RATIO, "x")
    if ratios:
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        name = f"documented call, geometric mean over {len(ratios)} pairs: {MEAN_RATIO}x at most"
        yield Goal(name, "all pairs", mean, MEAN_RATIO, "x")


def _against_hand(cases: Sequence[Case]) -> Iterator[Goal]:
    for case in cases:
        ours, hand = case.fastest("ours"), case.fastest("documented", "idiom")
        if ours is not None and hand is not None:
            yield Goal(
                f"fastest by hand: zerocopy adds {ADDED:.0f} ns at most",
                case.name,
                median(ours) - median(hand),
                ADDED,
                "ns",
            )


def _name(pair: Pair) -> str:
    return " -> ".join(pair)


SECTION = Section(
    "pairs",
    f"{COUNT:,} elements of float32, default options",
    tasks,
    "contest",
    goals,
)
