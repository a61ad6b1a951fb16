"""The tables that are printed at the end of a run: ratios first, then times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.comparison import Change
from benchmarks.formats import format_duration, format_quantity
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, Goal, Section, median
from benchmarks.timing import Timing

#: Narrower terminals have no spreads, then no other contenders either.
WIDE, VERY_WIDE = 120, 150

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
            console.print()
            console.print(
                f"{suite}/{section.name}: {section.about}", style="bold", markup=False, highlight=False
            )
            for table in _LOOKS[section.look](cases, console.width):
                console.print(table)
            for remark in _remarks(cases):
                console.print(remark, style="dim", highlight=False, soft_wrap=True, markup=False)
    if results.goals:
        console.print()
        console.print("goals", style="bold")
        console.print(_goals(results.goals, console.width))
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
    against = f"{old.facts['started'][:10]}, {old.facts['machine']['cpu']}, {_own(old)}{_kind(old)}"
    if not slower:
        console.print(f"nothing got slower by more than {threshold:g}x (against {against})")
        return
    console.print(f"slower by more than {threshold:g}x (against {against})", style="bold", highlight=False)
    table = _table()
    table.add_column("contender", overflow="fold")
    for name in ("ratio", "machine", "now", "then"):
        table.add_column(name, justify="right")
    for change in slower:
        table.add_row(
            change.where,
            f"{change.ratio:.2f}x",
            f"{change.drift:.2f}x",
            format_duration(change.after),
            format_duration(change.before),
        )
    console.print(table)


def _unlike(old: Results, new: Results) -> list[str]:
    """Return reasons why two runs are not directly comparable."""
    reasons = []
    if old.quick != new.quick:
        which = "these results are" if new.quick else "the earlier results are"
        reasons.append(
            f"only {which} from a run with --quick, which has fewer blocks and other sizes under the same "
            "names; the comparison is a hint"
        )
    elif old.quick:
        reasons.append("both runs are quick: with so few blocks, noise alone can exceed the threshold")
    if old.compiled != new.compiled:
        reasons.append(f"the earlier results were measured {old.build}, the new ones {new.build}")
    reasons += [
        f"the {name} results are not complete: interrupted, or a task failed"
        for name, results in (("earlier", old), ("new", new))
        if not results.complete
    ]
    return reasons


def _kind(results: Results) -> str:
    return ", quick" if results.quick else ""


def _table() -> Table:
    """Return a table without lines between columns, which would use a tenth of a narrow terminal."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))


def _add_names(table: Table, cases: Sequence[Case], width: int) -> None:
    """Add the column of the cases' names, folded at a third of the width."""
    longest = max(len(case.name) for case in cases)
    table.add_column("case", overflow="fold", no_wrap=longest <= width // 3, max_width=width // 3)


def _contest(cases: Sequence[Case], width: int) -> list[Table]:
    """Compare zerocopy with the documented call, the fastest by hand, and others: ratios, then times."""
    wide = width >= WIDE
    documented = any(case.timed("documented") for case in cases)
    others = width >= VERY_WIDE and any(case.timed(*_OTHERS) for case in cases)
    figures = list(dict.fromkeys(name for case in cases for name in case.figures)) if wide else []
    table = _table()
    _add_names(table, cases, width)
    times = ["zerocopy", *["documented"] * (documented and wide)]
    for name in [*["to documented"] * documented, "to fastest", *times]:
        table.add_column(name, justify="right", no_wrap=wide)
    table.add_column("fastest by hand", overflow="fold")
    if others:
        table.add_column("others", overflow="fold")
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for case in cases:
        ours, call = case.fastest("ours"), case.fastest("documented")
        hand = case.fastest("documented", "idiom")
        row = [case.name]
        if documented:
            row.append(format_quantity(median(ours) / median(call), "x") if ours and call else "-")
        row.append(_against(ours, hand) if wide else _times(ours, hand))
        row.append(_time(ours, wide))
        if documented and wide:
            row.append(_time(call))
        row.append("the documented call" if hand and hand is call else _named(hand))
        if others:
            named = [_brief(entry) for role in _OTHERS if (entry := case.fastest(role))]
            row.append("\n".join(named))
        row += [format_quantity(case.figures[name], "") if name in case.figures else "" for name in figures]
        table.add_row(*map(Text, row))
    return [table]


_OTHERS = ("narrow", "library", "reference")


def _against(ours: Entry | None, other: Entry | None) -> str:
    if ours is None or other is None:
        return "-"
    added = median(ours) - median(other)
    sign = "+" if added >= 0 else "-"
    return f"{_times(ours, other)} {sign}{format_duration(abs(added))}"


def _times(ours: Entry | None, other: Entry | None) -> str:
    return "-" if ours is None or other is None else format_quantity(median(ours) / median(other), "x")


def _series(cases: Sequence[Case], width: int) -> list[Table]:
    """Return a column for each label, in several tables if they do not fit."""
    bare = [case for case in cases if not case.entries]
    cases = [case for case in cases if case.entries]
    labels = list(dict.fromkeys(entry.label for case in cases for entry in case.entries))
    cells: dict[str, list[str]] = {}
    for label in labels:
        entries = [next((e for e in case.entries if e.label == label), None) for case in cases]
        cells[label] = [
            _ratio(case, entry) + _cell(entry, width >= WIDE)
            for case, entry in zip(cases, entries, strict=True)
        ]
    names = min(max((len(case.name) for case in cases), default=0), width // 3)
    groups: list[list[str]] = []
    left = 0
    for label in labels:
        needed = max(len(label), *map(len, cells[label])) + 2
        if not groups or needed > left:
            groups.append([])
            left = width - names
        groups[-1].append(label)
        left -= needed
    tables = []
    for group in groups:
        table = _table()
        _add_names(table, cases, width)
        for label in group:
            table.add_column(Text(label), justify="right")
        for i, case in enumerate(cases):
            table.add_row(Text(case.name), *(cells[label][i] for label in group))
        tables.append(table)
    return tables + (_figures(bare, width) if any(case.figures for case in bare) else [])


def _ratio(case: Case, entry: Entry | None) -> str:
    """Return the time of another contender over that of zerocopy, if a series has both."""
    ours = case.fastest("ours")
    if entry is None or ours is None or entry.role == "ours" or not isinstance(entry.timing, Timing):
        return ""
    return f"{_times(entry, ours)} "


def _figures(cases: Sequence[Case], width: int) -> list[Table]:
    """Return a row for each time; without times, a row for each case with its figures."""
    table = _table()
    _add_names(table, cases, width)
    if not any(case.entries for case in cases):
        names = list(dict.fromkeys(name for case in cases for name in case.figures))
        for name in names:
            table.add_column(Text(name), justify="right", overflow="fold")
        for case in cases:
            table.add_row(Text(case.name), *(_figure(case, name) for name in names))
        return [table]
    table.add_column("figure", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    for case in cases:
        rows = [(entry.label, _cell(entry)) for entry in case.entries]
        rows += [(name, _figure(case, name)) for name in case.figures]
        for i, (label, value) in enumerate(rows):
            table.add_row("" if i else Text(case.name), Text(label), value)
    return [table]


def _figure(case: Case, name: str) -> str:
    if name not in case.figures:
        return ""
    return format_quantity(case.figures[name], "bytes" if "bytes" in name else "")


def _rivals(cases: Sequence[Case], width: int) -> list[Table]:
    """Return a row for each contender, the fastest first: its time, and the ratio to zerocopy."""
    table = _table()
    _add_names(table, cases, width)
    for name in ("to zerocopy", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("contender", overflow="fold")
    for case in cases:
        ours = case.fastest("ours")
        for i, entry in enumerate(sorted(case.timed(), key=median)):
            # As Text, because rich reads brackets as markup.
            contender = Text(entry.label + _note(entry), style="bold" if entry is ours else "")
            times = "" if ours is None or entry is ours else _times(entry, ours)
            table.add_row("" if i else Text(case.name), times, _time(entry, width >= WIDE), contender)
    return [table]


def _references(cases: Sequence[Case], width: int) -> list[Table]:
    """Return zerocopy's time, and its ratio to code by hand, the documented call and each reference.

    A narrow terminal has one ratio: to a case's last reference if it has several, else to code by hand.
    """
    notes = list(dict.fromkeys(entry.note for case in cases for entry in case.timed("reference")))
    table = _table()
    if width < WIDE:
        table.add_column("case", overflow="fold")
        for name in ("zerocopy", "ratio"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("to", overflow="fold")
        for case in cases:
            ours, hand = case.fastest("ours"), case.fastest("documented", "idiom")
            references = case.timed("reference")
            rival = hand if hand and len(references) < 2 else references[-1] if references else None
            name = "-" if rival is None else "by hand" if rival is hand else rival.note
            table.add_row(Text(case.name), _time(ours, spread=False), _times(ours, rival), name)
        return [table]
    _add_names(table, cases, width)
    table.add_column("zerocopy", justify="right", no_wrap=True)
    for name in ("fastest by hand", "documented", *notes):
        table.add_column(Text(f"to {name}"), justify="right")
    for case in cases:
        ours = case.fastest("ours")
        rivals = [case.fastest("documented", "idiom"), case.fastest("documented")]
        rivals += [next((e for e in case.timed("reference") if e.note == note), None) for note in notes]
        table.add_row(Text(case.name), _time(ours), *(_times(ours, rival) for rival in rivals))
    return [table]


_LOOKS = {
    "contest": _contest,
    "references": _references,
    "rivals": _rivals,
    "series": _series,
    "figures": _figures,
}


def _goals(goals: Sequence[Goal], width: int) -> Table:
    """Return a row for each goal: on how many cases it was met, and the worst case."""
    table = _table()
    table.add_column("goal", overflow="fold")
    table.add_column("met", justify="right", no_wrap=True)
    table.add_column("worst", justify="right", no_wrap=True)
    table.add_column("limit", justify="right", no_wrap=True)
    if width >= WIDE:
        table.add_column("missed on", overflow="fold")
    for name in dict.fromkeys(goal.name for goal in goals):
        same = [goal for goal in goals if goal.name == name]
        missed = [goal for goal in same if not goal.met]
        worst = max(same, key=lambda goal: goal.value - goal.limit)
        met = Text(f"{len(same) - len(missed)} of {len(same)}", style="red" if missed else "green")
        row = [
            Text(name),
            met,
            format_quantity(worst.value, worst.unit),
            format_quantity(worst.limit, worst.unit),
        ]
        if width >= WIDE:
            row.append(_some([f"{goal.case} ({format_quantity(goal.value, goal.unit)})" for goal in missed]))
        table.add_row(*row)
    return table


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


def _remarks(cases: Iterable[Case]) -> list[str]:
    """Return each remark once, with the cases that it concerns."""
    about: dict[str, list[str]] = {}
    for case in cases:
        for remark in [*case.remarks, *[f"FAILED: {case.failed}"] * bool(case.failed)]:
            about.setdefault(remark, []).append(case.name)
        for entry in case.entries:
            if entry.left_out:
                about.setdefault(f"left out {entry.label}: {entry.left_out}", []).append(case.name)
    return [f"  {remark} ({_some(names)})" for remark, names in about.items()]


def _some(names: Sequence[str]) -> str:
    """Return some names, and the number of the others."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _named(entry: Entry | None) -> str:
    return "-" if entry is None else f"{format_duration(median(entry))}  {entry.label}{_note(entry)}"


def _brief(entry: Entry) -> str:
    return f"{format_duration(median(entry))}  {entry.note or entry.label}"


def _note(entry: Entry) -> str:
    # Parentheses, because rich reads square brackets as markup.
    return f" ({entry.note})" if entry.note else ""


def _time(entry: Entry | None, spread: bool = True) -> str:
    if entry is None or not isinstance(entry.timing, Timing):
        return "-"
    time = format_duration(entry.timing.median)
    return f"{time} ({format_duration(entry.timing.spread)})" if spread else time


def _cell(entry: Entry | None, noted: bool = True) -> str:
    if entry is None:
        return ""
    if entry.timing is None:
        return "-"
    return format_duration(median(entry)) + (_note(entry) if noted else "*" * bool(entry.note))


def _own(results: Results) -> str:
    return f"zerocopy {results.facts['versions'].get('zerocopy', '?')}"
