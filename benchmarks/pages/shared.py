"""Parts of pages: tables of cases and goals in Markdown. Each part is a function of results and of texts.

A template in docs/ names a part as ``{{rivals tables/columns}}``: `benchmarks.page` calls it with the
results, and with the texts after its name, which ``|`` separates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.formats import format_duration, format_quantity, format_speedup
from benchmarks.results import Results
from benchmarks.suite import Case, Entry, median


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    cells = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells)


def rivals(results: Results, section: str) -> str:
    """Return a row for each case with the fastest and the slowest other contender, then those left out."""
    rows = []
    for case in results.cases[section]:
        ours = case.fastest("ours")
        others = sorted(case.timed("documented", "idiom", "library", "narrow"), key=median)
        if ours and others:
            slowest = _contender(others[-1]) if len(others) > 1 else ""
            ratios = [ratio(ours, others[0]), _contender(others[0]), slowest]
            rows.append([case.name, noted(ours), *ratios])
    left_out = [
        f"{code(label)} {why}" for label, why in reasons(results.cases[section]) if why != "is not installed"
    ]
    text = table(["", "zerocopy", "to the fastest", "the fastest other", "the slowest other"], rows)
    return text + (f"\n\nLeft out: {'; '.join(left_out)}." if left_out else "")


def _contender(entry: Entry) -> str:
    return f"{time(entry)} {code(entry.label)}" + (f" ({entry.note})" if entry.note else "")


def series(results: Results, section: str) -> str:
    """Return a row for each case and a column for each label; a table for each set of labels."""
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for case in results.cases[section]:
        before, colon, last = case.name.rpartition(": ")
        row = [f"{before}{colon}{code(last)}", *(noted(entry) for entry in case.entries)]
        groups.setdefault(tuple(entry.label for entry in case.entries), []).append(row)
    return "\n\n".join(table(["", *labels], rows) for labels, rows in groups.items())


def by_size(results: Results, section: str) -> str:
    """Return a row for each question and a column for each size: the time and the ratio to the fastest other.

    The name of a case ends with its size, after a comma.
    """
    by_question: dict[str, dict[str, Case]] = {}
    for case in results.cases[section]:
        question, _, size = case.name.rpartition(", ")
        by_question.setdefault(question, {})[size] = case
    rows = []
    for question, cases in by_question.items():
        contests = [
            (case.fastest("ours"), case.fastest("documented", "idiom", "library")) for case in cases.values()
        ]
        cells = [f"{time(ours)} ({ratio(ours, other)})" for ours, other in contests]
        rows.append([question, *cells, timed_code(contests[-1][1])])
    return table(["", *next(iter(by_question.values())), "fastest other, for the last size"], rows)


def figures(results: Results, section: str, head: str = "", start: str = "") -> str:
    """Return a row for each case, and a column for each figure whose name begins with `start`, in bytes."""
    cases = results.cases[section]
    names = [
        name for name in dict.fromkeys(n for case in cases for n in case.figures) if name.startswith(start)
    ]
    if not any(case.figures[name] for case in cases for name in names if name in case.figures):
        return f"{' and '.join(names)}: 0 in all {len(cases)} cases."
    rows = [[case.name, *(size(case, name) for name in names)] for case in cases]
    return table([head, *(name.removeprefix(start).strip() for name in names)], rows)


def compared(results: Results, section: str, *columns: str) -> str:
    """Return a row for each case; its columns are the head of the names, the labels, and comparisons.

    After the labels, ``ratio`` is the last label's time over that of the first, ``added`` their difference,
    and ``FIGURE = HEAD`` a figure in bytes. A label after ``:`` is shown as a multiple of the first.
    """
    heads = [column.partition(" = ")[2] or column.removeprefix(":") for column in columns]
    rows = []
    for case in results.cases[section]:
        entries = {entry.label: entry for entry in case.timed()}
        labels = [column for column in columns[1:] if column in entries]
        first, last = entries[labels[0]], entries[labels[-1]]
        texts = {label: time(entry) for label, entry in entries.items()}
        texts |= {f":{label}": ratio(entry, first) for label, entry in entries.items()}
        texts["ratio"] = f"{median(last) / median(first):.2f}x"
        texts["added"] = format_duration(median(last) - median(first))
        rows.append([case.name, *(texts.get(c) or size(case, c.partition(" = ")[0]) for c in columns[1:])])
    return table(heads, rows)


def machine(results: Results) -> str:
    """Return the machine, the versions and the date of the run."""
    facts = results.facts
    computer = facts["machine"]
    cores = f"{computer['cores']} cores{' of a virtual machine' * bool(computer['virtual'])}"
    memory = f"{computer['memory_bytes'] / 2**30:.0f} GiB"
    versions = ", ".join(
        f"{name} {version}" for name, version in facts["versions"].items() if name != "zerocopy"
    )
    system = f"{computer['system']}, {computer['python']}"
    return f"{computer['cpu']}, {cores}, {memory}, {system}; {versions}; {facts['started'][:10]}"


def load(results: Results) -> str:
    """Return the load of the machine if other programs used its processors during the run."""
    before, cores = results.facts["load_before"], results.facts["machine"]["cores"]
    return f"load {before:.1f} on {cores} cores" if before > cores else ""


def note(results: Results) -> str:
    """Return the note of the results: sections may be of later runs."""
    return str(results.facts.get("note", ""))


def labelled(results: Results, call: str, text: str) -> str:
    """Return a text about an older call if the results have it in a label, and nothing otherwise."""
    labels = [entry.label for cases in results.cases.values() for case in cases for entry in case.entries]
    return text if any(call in label for label in labels) else ""


def entry_of(case: Case, label: str) -> Entry | None:
    """Return the entry of a label."""
    return next((entry for entry in case.entries if entry.label == label), None)


def labels_of(cases: Iterable[Case]) -> list[str]:
    """Return the labels of all cases."""
    return list(dict.fromkeys(entry.label for case in cases for entry in case.entries))


def code(text: str) -> str:
    return f"`{text}`"


def noted(entry: Entry | None) -> str:
    """Return a time and its note, a dash if it was left out, or nothing if it does not exist."""
    if entry is None:
        return ""
    return time(entry) + (f" ({entry.note})" if entry.note and entry.timing else "")


def time(entry: Entry | None) -> str:
    return format_duration(median(entry)) if entry and entry.timing else "-"


def timed_code(entry: Entry | None) -> str:
    """Return an entry's median and its code."""
    return f"{time(entry)} {code(entry.label)}" if entry else "-"


def ratio(ours: Entry | None, other: Entry | None) -> str:
    """Return the ratio of two medians."""
    if not (ours and other and ours.timing and other.timing):
        return "-"
    return format_quantity(median(ours) / median(other), "x")


def added(ours: Entry | None, other: Entry | None) -> str:
    """Return the ratio and the difference of two medians."""
    if ours is None or other is None:
        return "-"
    more = median(ours) - median(other)
    return f"{ratio(ours, other)} {'+' if more >= 0 else '-'}{format_duration(abs(more))}"


def speedup(ours: Entry, other: Entry) -> str:
    """Return in words how much faster or slower one median is than another."""
    return format_speedup(median(other) / median(ours))


def size(case: Case, figure: str) -> str:
    """Return a figure in bytes."""
    return format_quantity(case.figures[figure], "bytes") if figure in case.figures else "-"


def quoted(remarks: Iterable[str]) -> str:
    """Return remarks as a quotation, once each."""
    return "\n>\n".join(f"> {line[0].upper()}{line[1:]}." for line in dict.fromkeys(remarks))


def reasons(cases: Sequence[Case]) -> dict[tuple[str, str], list[str]]:
    """Return the cases of each label and reason for which it was left out."""
    left_out: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        for entry in case.entries:
            if entry.left_out:
                left_out.setdefault((entry.label, entry.left_out), []).append(case.name)
    return left_out
