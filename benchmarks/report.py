"""The tables: what a person reads at the end of a run. Ratios first, times second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.results import Change, Results
from benchmarks.suite import Case, Entry, Goal, Section, median


def show(console: Console, results: Results, sections: Iterable[tuple[str, Section]]) -> None:
    """Print the tables of the sections that have cases, then the goals, then the machine."""
    for suite, section in sections:
        cases = results.cases.get(f"{suite}/{section.name}")
        if cases:
            console.print()
            console.print(_LOOKS[section.look](f"{suite}/{section.name}: {section.about}", cases))
            for remark in _remarks(cases):
                console.print(remark, style="dim", highlight=False, soft_wrap=True, markup=False)
    if results.goals:
        console.print()
        console.print(_goals(results.goals))
    console.print(_facts(results), style="dim", highlight=False)


def show_changes(console: Console, changes: Sequence[Change], threshold: float, old: Results) -> None:
    """Print what got slower than it was, or that nothing did."""
    console.print()
    if not changes:
        console.print("nothing to compare: the two runs have no case of ours in common")
        return
    slower = [change for change in changes if change.slower(threshold)]
    against = f"{old.facts['started'][:10]}, {old.facts['machine']['cpu']}, {_own(old)}"
    if not slower:
        console.print(f"nothing got slower by more than {threshold:g}x (against {against})")
        return
    table = Table(title=f"slower by more than {threshold:g}x (against {against})", title_justify="left")
    table.add_column("what", overflow="fold")
    for name in ("times", "machine", "now", "then"):
        table.add_column(name, justify="right")
    for change in slower:
        table.add_row(
            change.where,
            f"{change.ratio:.2f}x",
            f"{change.drift:.2f}x",
            duration(change.after),
            duration(change.before),
        )
    console.print(table)


def duration(nanoseconds: float) -> str:
    """Write a time with three digits.

    Examples
    --------
    >>> duration(1234), duration(12.3e6), duration(430)
    ('1.23 us', '12.3 ms', '430 ns')
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            scaled = nanoseconds / size
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def quantity(value: float, unit: str) -> str:
    """Write a value in its unit.

    Examples
    --------
    >>> quantity(-12.3, "ns"), quantity(0.456, "x"), quantity(0.00123, "x"), quantity(2048, "bytes")
    ('-12 ns', '0.46x', '0.0012x', '2.0 KiB')
    """
    if unit == "x":
        return f"{value:.2g}x" if 0 < abs(value) < 0.1 else f"{value:.2f}x"
    if unit == "bytes":
        for name, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if abs(value) >= size:
                return f"{value / size:.1f} {name}"
        return f"{value:.0f} B"
    if unit == "ns":
        return f"{value:.0f} ns" if abs(value) < 1e4 else duration(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g} {unit}".strip()


def _contest(title: str, cases: Sequence[Case]) -> Table:
    """Ours against the documented call, the fastest by hand, and others: ratios, then times."""
    documented = any(case.timed("documented") for case in cases)
    others = any(case.timed(*_OTHERS) for case in cases)
    figures = list(dict.fromkeys(name for case in cases for name in case.figures))
    table = Table(title=title, title_justify="left")
    table.add_column("case", no_wrap=True)
    for name in [*["to documented"] * documented, "to fastest", "zerocopy", *["documented"] * documented]:
        table.add_column(name, justify="right", no_wrap=True)
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
            row.append(quantity(median(ours) / median(call), "x") if ours and call else "-")
        row.append(_against(ours, hand))
        row.append(_time(ours))
        if documented:
            row.append(_time(call))
        row.append("the documented call" if hand and hand is call else _named(hand))
        if others:
            named = [_brief(entry) for role in _OTHERS if (entry := case.fastest(role))]
            row.append("\n".join(named))
        row += [quantity(case.figures[name], "") if name in case.figures else "" for name in figures]
        table.add_row(*row)
    return table


_OTHERS = ("narrow", "library", "reference")


def _against(ours: Entry | None, other: Entry | None) -> str:
    if ours is None or other is None:
        return "-"
    added = median(ours) - median(other)
    sign = "+" if added >= 0 else "-"
    return f"{quantity(median(ours) / median(other), 'x')} {sign}{duration(abs(added))}"


def _series(title: str, cases: Sequence[Case]) -> Table:
    """One column a label: how the cost goes with it."""
    labels = list(dict.fromkeys(entry.label for case in cases for entry in case.entries))
    table = Table(title=title, title_justify="left")
    table.add_column("case", no_wrap=True)
    for label in labels:
        table.add_column(Text(label), justify="right")
    for case in cases:
        by_label = {entry.label: entry for entry in case.entries}
        table.add_row(case.name, *(_cell(by_label.get(label)) for label in labels))
    return table


def _figures(title: str, cases: Sequence[Case]) -> Table:
    """A row a time, or where there are none a row a case: its figures."""
    table = Table(title=title, title_justify="left")
    table.add_column("case", no_wrap=True)
    if not any(case.entries for case in cases):
        names = list(dict.fromkeys(name for case in cases for name in case.figures))
        for name in names:
            table.add_column(name, justify="right", no_wrap=True)
        for case in cases:
            table.add_row(case.name, *(_figure(case, name) for name in names))
        return table
    table.add_column("what", overflow="fold")
    table.add_column("how much", justify="right", no_wrap=True)
    for case in cases:
        rows = [(entry.label, _cell(entry)) for entry in case.entries]
        rows += [(name, _figure(case, name)) for name in case.figures]
        for i, (what, much) in enumerate(rows):
            table.add_row("" if i else case.name, what, much)
    return table


def _figure(case: Case, name: str) -> str:
    if name not in case.figures:
        return ""
    return quantity(case.figures[name], "bytes" if "bytes" in name else "")


def _rivals(title: str, cases: Sequence[Case]) -> Table:
    """A row a contender, the fastest first: its time, and how many of ours that is."""
    table = Table(title=title, title_justify="left")
    table.add_column("case", no_wrap=True)
    table.add_column("contender", overflow="fold")
    for name in ("time", "times ours"):
        table.add_column(name, justify="right", no_wrap=True)
    for case in cases:
        ours = case.fastest("ours")
        for i, entry in enumerate(sorted(case.timed(), key=median)):
            # As text: rich would take the brackets of an expression for markup.
            what = Text(entry.label + _note(entry), style="bold" if entry is ours else "")
            times = "" if ours is None or entry is ours else quantity(median(entry) / median(ours), "x")
            table.add_row("" if i else case.name, what, _time(entry), times)
    return table


_LOOKS = {"contest": _contest, "rivals": _rivals, "series": _series, "figures": _figures}


def _goals(goals: Sequence[Goal]) -> Table:
    """One row a promise: on how many cases it was kept, and where it was kept worst."""
    table = Table(title="goals", title_justify="left")
    table.add_column("goal", overflow="fold")
    table.add_column("kept", justify="right", no_wrap=True)
    table.add_column("worst", justify="right", no_wrap=True)
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("missed on", overflow="fold")
    for name in dict.fromkeys(goal.name for goal in goals):
        same = [goal for goal in goals if goal.name == name]
        missed = [goal for goal in same if not goal.met]
        worst = max(same, key=lambda goal: goal.value - goal.limit)
        kept = Text(f"{len(same) - len(missed)} of {len(same)}", style="red" if missed else "green")
        table.add_row(
            name,
            kept,
            quantity(worst.value, worst.unit),
            quantity(worst.limit, worst.unit),
            Text(", ".join(f"{goal.case} ({quantity(goal.value, goal.unit)})" for goal in missed)),
        )
    return table


def _facts(results: Results) -> str:
    facts = results.facts
    computer = facts["machine"]
    state = "" if results.complete else "INCOMPLETE: interrupted, or a task failed\n"
    known = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"\n{state}{computer['cpu']}, {computer['cores']} cores"
        f"{', virtual' if computer['virtual'] else ''}; {computer['system']}; {computer['python']}\n"
        f"{known}\n{facts['started']}; load {facts['load_before']} before, {facts.get('load_after')} after; "
        f"medians (interquartile range) of {facts['settings']['pace']['rounds']} interleaved blocks"
    )


def _remarks(cases: Iterable[Case]) -> list[str]:
    """What the numbers do not say, each said once for all the cases that it concerns."""
    about: dict[str, list[str]] = {}
    for case in cases:
        for remark in [*case.remarks, *[f"FAILED: {case.failed}"] * bool(case.failed)]:
            about.setdefault(remark, []).append(case.name)
        for entry in case.entries:
            if entry.left_out:
                about.setdefault(f"left out {entry.label}: {entry.left_out}", []).append(case.name)
    return [f"  {remark} ({', '.join(names)})" for remark, names in about.items()]


def _named(entry: Entry | None) -> str:
    return "-" if entry is None else f"{duration(median(entry))}  {entry.label}{_note(entry)}"


def _brief(entry: Entry) -> str:
    return f"{duration(median(entry))}  {entry.note or entry.label}"


def _note(entry: Entry) -> str:
    # Not in brackets: rich reads those as markup.
    return f" ({entry.note})" if entry.note else ""


def _time(entry: Entry | None) -> str:
    if entry is None or entry.timing is None:
        return "-"
    return f"{duration(entry.timing.median)} ({duration(entry.timing.spread)})"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry.timing is None:
        return "-"
    return duration(entry.timing.median) + _note(entry)


def _own(results: Results) -> str:
    return f"zerocopy {results.facts['versions'].get('zerocopy', '?')}"
