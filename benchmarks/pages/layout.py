"""The parts of the pages of the layout suite."""

from __future__ import annotations

from pathlib import Path

from benchmarks import results as storage
from benchmarks.pages.shared import code, entry_of, labels_of, ratio, reasons, table, time
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median

_RESULTS = Path(__file__).parents[1] / "results"
_MOVES = ("layout/to-columns", "layout/to-rows")


def moves(results: Results, section: str) -> str:
    """Return the speed of zerocopy by record type, and its ratio to copies and to other methods."""
    cases = results.cases[section]
    narrowed = {isa: {c.name: c for c in run.cases[section]} for isa, run in _narrowed(results).items()}
    rows = []
    for case in cases:
        ours, other = case.entries[0], case.fastest("idiom", "library")
        copies = [_times(ours, copied) for copied in _of(case, "reference")]
        copies[1:1] = [
            _times(run[case.name].entries[0], _of(run[case.name], "reference")[0])
            for run in narrowed.values()
        ]
        rows.append([case.name, _rate(case, ours), *copies])
        rows[-1] += [
            _times(ours, _numpy(case)),
            f"{_times(ours, other)} {code(other.label)}" if other else "-",
        ]
    heads = [f"to the {entry.note.partition(':')[0]}" for entry in _of(cases[0], "reference")]
    heads[1:1] = [f"the same, {isa}" for isa in narrowed]
    return table(["records", "zerocopy, GB/s", *heads, "to NumPy", "to the fastest other"], rows)


def _narrowed(results: Results) -> dict[str, Results]:
    """Return the newest run on this processor with each other instruction set."""
    runs: dict[str, Results] = {}
    for path in sorted(_RESULTS.glob("layout-*.json")):
        try:
            run = storage.read(path)
        except ValueError:
            continue  # another kind of results
        same = run.facts["machine"]["cpu"] == results.facts["machine"]["cpu"] and run.isa != results.isa
        if same and run.isa and run.complete and not run.quick and {*_MOVES} <= {*run.cases}:
            runs[run.isa] = max(run, runs.get(run.isa, run), key=lambda each: each.facts["started"])
    return runs


def _numpy(case: Case) -> Entry | None:
    """Return the fastest entry that is only NumPy."""
    able = [e for e in case.timed("idiom") if not e.note.startswith("a Numba loop")]
    return min(able, key=median, default=None)


def fresh(results: Results) -> str:
    """Return the speed with fresh memory, and the ratio to a copy."""
    rows = []
    cases = results.cases["layout/fresh"]
    for case in cases:
        ours, (copied, *others) = _of(case, "ours"), _of(case, "reference")
        rows.append([case.name, *(f"{_rate(case, e)} ({_times(e, copied)})" for e in ours)])
        rows[-1] += [_rate(case, entry) for entry in (copied, *others)]
    return table(["records", *map(code, labels_of(cases[:1]))], rows)


def fields(results: Results) -> str:
    """Return the times for selected fields."""
    cases = results.cases["layout/fields"]
    notes = ["", *(entry.note.partition(":")[0] for entry in cases[0].entries)]
    rows = [[case.name, *(time(entry) for entry in case.entries)] for case in cases]
    return table(["", *map(code, labels_of(cases[:1]))], [notes, *rows])


def sizes(results: Results) -> str:
    """Return times by number of records, and the ratio of each pair of zerocopy and NumPy."""
    cases = results.cases["layout/sizes"]
    heads = [""]
    for ours, theirs in _pairs(cases[0]):
        heads += [code(ours.label), theirs.label, "to NumPy"]
    rows = []
    for case in cases:
        rows.append([case.name])
        for ours, theirs in _pairs(case):
            rows[-1] += [time(ours), time(theirs), ratio(ours, theirs)]
    return table(heads, rows)


def start(results: Results) -> str:
    """Return the times of first calls in a process, in one sentence."""
    return "; ".join(f"{code(e.label)}: {time(e)}" for c in results.cases["layout/start"] for e in c.entries)


def on_device(results: Results) -> str:
    """Return rates on the device, and the ratio of zerocopy to the copy."""
    cases = results.cases["layout/gpu"]
    labels = labels_of(cases)
    ours = {entry.label for case in cases for entry in case.entries if entry.role == "ours"}
    heads = ["records"]
    for label in labels:
        heads += [code(label), *(["to the copy"] if label in ours else [])]
    rows = []
    for case in cases:
        rows.append([case.name])
        copied = case.fastest("reference")
        for label in labels:
            entry = entry_of(case, label)
            rows[-1].append(_rate(case, entry))
            if label in ours:
                rows[-1].append(_times(entry, copied))
    return f"{table(heads, rows)}\n\n{_left_out(cases)}"


def _left_out(cases: list[Case]) -> str:
    lines = [f"- `{label}`: {why} ({'; '.join(names)})." for (label, why), names in reasons(cases).items()]
    return "Left out:\n\n" + "\n".join(lines) if lines else ""


def _pairs(case: Case) -> list[tuple[Entry, Entry]]:
    return list(zip(case.entries[::2], case.entries[1::2], strict=True))


def _of(case: Case, role: str) -> list[Entry]:
    return [entry for entry in case.entries if entry.role == role]


def _rate(case: Case, entry: Entry | None) -> str:
    if entry is None or not entry.timing:
        return "-"
    return f"{case.figures['bytes a record'] * case.figures['records'] / median(entry):.1f}"


def _times(ours: Entry | None, other: Entry | None) -> str:
    """Return how many times as fast zerocopy is."""
    if not (ours and other and ours.timing and other.timing):
        return "-"
    return f"{median(other) / median(ours):.2f}x"
