"""The page of the compiled core: its prose is in docs/compiled-core.in, its tables are from results."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

from benchmarks import results as storage
from benchmarks.conversion import goals
from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.words import picture, table
from benchmarks.suite import Case, Goal, median

NAME = "compiled-core"
SECTION, IMPORT = "conversion/core", "conversion/import"
#: The picture, which :mod:`benchmarks.plots` draws.
PICTURE = "conversion-core"

# Cases that a missed goal names: the worst.
_NAMED = 4

_ABSENT = """\
`benchmarks/results` has no results of a compiled build yet. To measure it and write the table here:

```sh
python -m benchmarks conversion --json benchmarks/results
python -m benchmarks.page --write
```"""

_MEASURED = """\
The figures are from one run, stored in [{file}](../{file}), measured
{build}: {cpu}, {cores} cores{virtual},
{python}; {versions};
{date}. All conversions of the table take turns in one process:
[benchmarks/README.md](../benchmarks/README.md) describes the method. `python -m benchmarks conversion`
measures them on your machine.

{goals}

### Pairs

1,000 float32 values in 64-byte-aligned memory. *By hand* is the fastest code by hand that is correct
for arrays in general. *Pure Python* is the same call of zerocopy without the compiled core, in the
same process.

{picture}
{pairs}"""


def newest(folder: Path) -> Path | None:
    """Return the newest full results of the section that were measured with the compiled core."""
    candidates = []
    for path in sorted(folder.glob("*.json")):
        try:
            results = storage.read(path)
        except ValueError:
            continue  # another kind of results
        full = results.complete and not results.quick and not results.facts["settings"].get("frameworks")
        if full and results.compiled and any(case.timed() for case in results.cases.get(SECTION, ())):
            candidates.append((results.facts["started"], path))
    return max(candidates)[1] if candidates else None


def page(template: Path, path: Path | None) -> str:
    """Return the page for a file of results, or for none.

    Parameters
    ----------
    template : Path
        The prose, with ``$measured`` in the place of the tables.
    path : Path or None
    """
    measured = _ABSENT if path is None else _measured(path)
    return Template(template.read_text(encoding="utf-8")).substitute(measured=measured)


def _measured(path: Path) -> str:
    results = storage.read(path)
    facts: dict[str, Any] = results.facts
    computer = facts["machine"]
    return _MEASURED.format(
        file=f"benchmarks/results/{path.name}",
        build=results.build,
        cpu=computer["cpu"],
        cores=computer["cores"],
        virtual=" of a virtual machine" * bool(computer["virtual"]),
        python=computer["python"],
        versions=", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        date=facts["started"][:10],
        picture=picture(PICTURE, "Time of each pair relative to the fastest code by hand"),
        goals=_goals(results),
        pairs=_pairs(results.cases[SECTION]),
    )


def _goals(results: storage.Results) -> str:
    """Return a row for each goal: the measured range, and whether it was met, or where not."""
    by_name: dict[str, list[Goal]] = {bound.name: [] for bound in goals.GOALS}
    for goal in results.goals:
        if goal.section in (SECTION, IMPORT):
            by_name.setdefault(goal.name, []).append(goal)
    rows = []
    for name, judged in by_name.items():
        rows.append([name, _range(judged), _verdict(judged)])
    return table(["goal: at most", "measured", "result"], rows)


def _verdict(judged: list[Goal]) -> str:
    """Return whether a goal was met, or on how many cases not, with the worst of them."""
    missed = sorted((goal for goal in judged if not goal.met), key=lambda goal: -goal.value)
    if not missed:
        return "met" if judged else "not measured"
    if len(judged) == 1:
        return "missed"
    named = [f"{goal.case} ({format_quantity(goal.value, goal.unit)})" for goal in missed[:_NAMED]]
    more = f" and {len(missed) - _NAMED} more" * (len(missed) > _NAMED)
    return f"missed on {len(missed)} of {len(judged)}: {', '.join(named)}{more}"


def _range(judged: list[Goal]) -> str:
    """Return the least and the greatest value."""
    if not judged:
        return "-"
    ends = min(judged, key=lambda goal: goal.value), max(judged, key=lambda goal: goal.value)
    shown = [format_quantity(goal.value, goal.unit) for goal in ends]
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _pairs(cases: list[Case]) -> str:
    rows = []
    for case in cases:
        if case.name in goals.PAIRS and (ours := case.fastest("ours")):
            ratios = [goals.ratio(case, name) for name in (goals.BY_HAND, goals.DOCUMENTED, goals.PURE)]
            hand = goals.rival(case, goals.BY_HAND)
            shown = ["-" if value is None else format_quantity(value, "x") for value in ratios]
            by_hand = f"{format_duration(median(hand))} `{hand.label}`" if hand else "-"
            rows.append([case.name, format_duration(median(ours)), *shown, by_hand])
    heads = ["pair", "zerocopy", "to by hand", "to the documented call", "to pure Python", "by hand"]
    return table(heads, rows)
