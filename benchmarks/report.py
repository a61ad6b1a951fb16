"""The tables that are printed at the end of a run, and the comparison of two runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.formats import format_duration, format_quantity
from benchmarks.goals import BY_HAND, OURS, fastest
from benchmarks.pages.shared import added, ratio, reasons, time
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, Goal, Section, median
from benchmarks.timing import Timing

# A greater load before a run affects its times; one process is the run itself.
_BUSY = 1.0

# Cases that are named after a remark.
_NAMED = 4


def show(console: Console, results: Results, sections: Iterable[tuple[str, Section]]) -> None:
    """Print the tables of the sections that have cases, then the goals, then the machine."""
    load = results.facts.get("load_before") or 0
    if load > _BUSY:
        text = f"load {load} before the run: other programs are running; trust ratios more than times"
        console.print(text, style="yellow", highlight=False)
    for suite, section in sections:
        cases = results.cases.get(f"{suite}/{section.name}")
        if cases:
            title = f"{suite}/{section.name}: {section.about}"
            console.print(f"\n{title}", style="bold", markup=False, highlight=False)
            console.print(_LOOKS.get(section.look, _entries)(cases))
            for remark in _remarks(cases):
                console.print(remark, style="dim", highlight=False, soft_wrap=True, markup=False)
    if results.goals:
        console.print("\ngoals", style="bold")
        console.print(_goals(results.goals))
    console.print(_facts(results), style="dim", highlight=False, markup=False)


def show_changes(
    console: Console, changes: Sequence[Change], threshold: float, old: Results, new: Results
) -> None:
    """Print how the two runs differ in kind, then what got slower."""
    console.print()
    for line in _unlike(old, new):
        console.print(line, style="yellow", highlight=False, markup=False)
    if not changes:
        console.print("nothing to compare: the two runs have no case of zerocopy in common")
        return
    slower = [change for change in changes if change.slower(threshold)]
    version = f"zerocopy {old.facts['versions'].get('zerocopy', '?')}{', quick' * old.quick}"
    against = f"{old.facts['started'][:10]}, {old.facts['machine']['cpu']}, {version}"
    if not slower:
        console.print(f"nothing got slower by more than {threshold:g}x (against {against})")
        return
    console.print(f"slower by more than {threshold:g}x (against {against})", style="bold", highlight=False)
    rows = [
        [c.where, f"{c.ratio:.2f}x", f"{c.drift:.2f}x", format_duration(c.after), format_duration(c.before)]
        for c in slower
    ]
    console.print(_table(["contender", "ratio", "machine", "now", "then"], rows))


def _unlike(old: Results, new: Results) -> list[str]:
    """Return reasons why two runs are not directly comparable."""
    texts = []
    if old.quick != new.quick:
        which = "these results are" if new.quick else "the earlier results are"
        texts.append(
            f"only {which} from a run with --quick, which has fewer blocks and other sizes under the same "
            "names; the comparison is a hint"
        )
    elif old.quick:
        texts.append("both runs are quick: with so few blocks, noise alone can exceed the threshold")
    if old.compiled != new.compiled or "" != old.isa != new.isa:
        texts.append(f"the earlier results were measured {old.build}, the new ones {new.build}")
    texts += [
        f"the {name} results are not complete: interrupted, or a task failed"
        for name, results in (("earlier", old), ("new", new))
        if not results.complete
    ]
    return texts


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table without lines between columns, whose cells are folded on a narrow terminal."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(Text(head), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # as Text, because rich reads brackets as markup
    return table


def _contest(cases: Sequence[Case]) -> Table:
    """Compare zerocopy with the documented call, the fastest by hand, and others: ratios, then times."""
    rows = []
    for case in cases:
        ours, call, hand = OURS(case), fastest("documented")(case), BY_HAND(case)
        named = "the documented call" if hand and hand is call else _named(hand)
        others = [
            _named(entry) for role in ("narrow", "library", "reference") if (entry := case.fastest(role))
        ]
        others += [f"{name}: {_figure(case, name)}" for name in case.figures]
        row = [case.name, ratio(ours, call), added(ours, hand), _spread(ours), _spread(call), named]
        rows.append([*row, "\n".join(others)])
    heads = ["case", "to documented", "to fastest", "zerocopy", "documented", "fastest by hand", "others"]
    return _table(heads, rows)


def _references(cases: Sequence[Case]) -> Table:
    """Return zerocopy's time, and its ratio to code by hand, the documented call and each reference."""
    notes = list(dict.fromkeys(entry.note for case in cases for entry in case.timed("reference")))
    rows = []
    for case in cases:
        ours = case.fastest("ours")
        rivals = [BY_HAND(case), case.fastest("documented")]
        rivals += [next((e for e in case.timed("reference") if e.note == note), None) for note in notes]
        rows.append([case.name, _spread(ours), *(ratio(ours, rival) for rival in rivals)])
    heads = ["fastest by hand", "documented", *notes]
    return _table(["case", "zerocopy", *(f"to {head}" for head in heads)], rows)


def _entries(cases: Sequence[Case]) -> Table:
    """Return a row for each contender, with its time and the ratio to zerocopy, and for each figure."""
    rows = []
    for case in cases:
        ours = case.fastest("ours")
        several = [
            [_label(entry), _spread(entry), "" if entry.role == "ours" or not ours else ratio(entry, ours)]
            for entry in case.entries
        ]
        several += [[name, _figure(case, name), ""] for name in case.figures]
        rows += [["" if i else case.name, *row] for i, row in enumerate(several)]
    return _table(["case", "contender or figure", "value", "to zerocopy"], rows)


_LOOKS = {"contest": _contest, "references": _references}


def _goals(goals: Sequence[Goal]) -> Table:
    """Return a row for each goal: on how many cases it was met, and the worst case."""
    rows = []
    for name in dict.fromkeys(goal.name for goal in goals):
        same = [goal for goal in goals if goal.name == name]
        missed = [f"{g.case} ({format_quantity(g.value, g.unit)})" for g in same if not g.met]
        worst = max(same, key=lambda goal: goal.value - goal.limit)
        ends = [format_quantity(value, worst.unit) for value in (worst.value, worst.limit)]
        rows.append([name, f"{len(same) - len(missed)} of {len(same)}", *ends, _some(missed)])
    return _table(["goal", "met", "worst", "limit", "missed on"], rows)


def _facts(results: Results) -> str:
    facts = results.facts
    computer = facts["machine"]
    state = "" if results.complete else "INCOMPLETE: interrupted, or a task failed\n"
    if facts["settings"]["quick"]:
        state += "a quick run: few blocks, small data; for figures to keep, run it without --quick\n"
    if facts.get("left_out_summary"):
        state += f"{facts['left_out_summary']}\n"
    known = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"\n{state}{computer['cpu']}, {computer['cores']} cores"
        f"{', virtual' if computer['virtual'] else ''}; {computer['system']}; {computer['python']}\n"
        f"{known}\n{results.build}\n"
        f"{facts['started']}; load {facts['load_before']} before, {facts.get('load_after')} after; "
        f"medians (interquartile range) of {facts['settings']['pace']['rounds']} interleaved blocks"
    )


def _remarks(cases: Sequence[Case]) -> list[str]:
    """Return each remark once, with the cases that it concerns."""
    about: dict[str, list[str]] = {}
    for case in cases:
        for remark in [*case.remarks, *[f"FAILED: {case.failed}"] * bool(case.failed)]:
            about.setdefault(remark, []).append(case.name)
    about |= {f"left out {label}: {why}": names for (label, why), names in reasons(cases).items()}
    return [f"  {remark} ({_some(names)})" for remark, names in about.items()]


def _some(names: Sequence[str]) -> str:
    """Return some names, and the number of the others."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _label(entry: Entry) -> str:
    return f"{entry.label} ({entry.note})" if entry.note else entry.label


def _named(entry: Entry | None) -> str:
    return "-" if entry is None else f"{time(entry)}  {_label(entry)}"


def _spread(entry: Entry | None) -> str:
    if entry is None or not isinstance(entry.timing, Timing):
        return "-"
    return f"{format_duration(median(entry))} ({format_duration(entry.timing.spread)})"


def _figure(case: Case, name: str) -> str:
    return format_quantity(case.figures[name], "bytes" if "bytes" in name else "")


@dataclass(frozen=True)
class Change:
    """One contender of zerocopy, compared with an earlier run.

    `where` has section, case and contender; times are medians in nanoseconds. `drift` is how much slower the
    other contenders got: the effect of the machine.
    """

    where: str
    before: float
    after: float
    drift: float

    @property
    def ratio(self) -> float:
        """New time over old time."""
        return self.after / self.before

    def slower(self, threshold: float) -> bool:
        """Whether it got slower by more than `threshold`, also relative to the machine."""
        return self.ratio > threshold and self.ratio / self.drift > threshold


def compare(old: Results, new: Results) -> list[Change]:
    """Return the changes of zerocopy's contenders between two runs, the worst first.

    The drift of a case is the median of its other contenders, or of all others in the run if it has
    none: a slower machine does not mean a slower program.
    """
    before = {where: entry for where, _, entry in _timed(old)}
    drifts: dict[str, list[float]] = {}
    ours: list[tuple[str, str, float, float]] = []
    for where, case, entry in _timed(new):
        was = before.get(where)
        if was is None:
            continue
        if entry.role == "ours":
            ours.append((where, case, median(was), median(entry)))
        else:
            drifts.setdefault(case, []).append(median(entry) / median(was))
    overall = statistics.median([d for several in drifts.values() for d in several] or [1.0])
    changes = [
        Change(where, was, now, statistics.median(drifts.get(case) or [overall]))
        for where, case, was, now in ours
    ]
    return sorted(changes, key=lambda change: -change.ratio / change.drift)


def _timed(results: Results) -> Iterator[tuple[str, str, Entry]]:
    for section, cases in results.cases.items():
        for case in cases:
            for entry in case.timed():
                yield f"{section}: {case.name}: {entry.label}", f"{section}: {case.name}", entry
