"""Elements of pages: tables, times, ratios."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_duration, format_quantity, format_speedup


def picture(name: str, alt: str) -> str:
    r"""Return the Markdown for a picture of ``docs/pictures``, as a page of ``docs/`` shows it.

    The path is relative to the page, so that GitHub and Sphinx with MyST find it.

    Examples
    --------
    >>> picture("layouts", "Throughput by layout")
    '![Throughput by layout](pictures/layouts.svg)\n'
    """
    return f"![{alt}](pictures/{name}.svg)\n"


def goals(data: dict[str, Any], why: str = "", *, speedups: bool = False) -> str:
    """Return the table of goals: on how many cases each was met, and the cases that missed it.

    With `speedups`, ratios of times are shown as speed-ups: ``"4.0x faster"``.
    """

    def show(value: float, unit: str) -> str:
        return format_speedup(1 / value) if speedups and unit == "x" else format_quantity(value, unit)

    rows = []
    for name in dict.fromkeys(goal["name"] for goal in data["goals"]):
        same = [goal for goal in data["goals"] if goal["name"] == name]
        missed = [goal for goal in same if not goal["met"]]
        worst = max(same, key=lambda goal: goal["value"] - goal["limit"])
        rows.append(
            [
                name.removesuffix(" (limit: ratio of times)") if speedups else name,
                f"{len(same) - len(missed)} of {len(same)}",
                show(worst["value"], worst["unit"]),
                show(worst["limit"], worst["unit"]),
                ", ".join(f"{g['case']} ({show(g['value'], g['unit'])})" for g in missed) or "-",
            ]
        )
    if not rows:
        return ""
    return "## Goals\n\n" + table(["goal", "met", "worst", "limit", "missed on"], rows) + "\n" + why


def rivals(data: dict[str, Any], section: str, title: str) -> str:
    """Return a table for each case: contenders by time, then those left out, with the reason."""
    parts = [f"## {title}\n"]
    for case in data["sections"][section]:
        ours = best(case, "ours")
        timed = sorted((e for e in case["entries"] if e.get("ns")), key=lambda e: float(e["ns"]["median"]))
        rows = [[code(e), e.get("note", ""), time(e), "" if e is ours else ratio(e, ours)] for e in timed]
        left_out = [[code(e), e["left_out"], "", ""] for e in case["entries"] if e.get("left_out")]
        contenders = table(["contender", "note", "time", "to zerocopy"], rows + left_out)
        parts.append(f"### {case['name']}\n\n{contenders}\n")
    return "\n".join(parts)


def series(data: dict[str, Any], section: str, title: str) -> str:
    """Return a table with a row for each case and a column for each label."""
    cases = data["sections"][section]
    labels = [entry["label"] for entry in cases[0]["entries"]]
    rows = [[code(case, "name"), *(noted(entry) for entry in case["entries"])] for case in cases]
    return f"## {title}\n\n" + table(["", *labels], rows) + "\n"


def code(plain: dict[str, Any], key: str = "label") -> str:
    """Return a label, or the last part of a name, as code."""
    before, colon, last = plain[key].rpartition(": ") if key == "name" else ("", "", plain[key])
    return f"{before}{colon}`{last}`"


def noted(entry: dict[str, Any]) -> str:
    """Return an entry's time, and its note."""
    return time(entry) + (f" ({entry['note']})" if entry.get("note") and entry.get("ns") else "")


def best(case: dict[str, Any], *roles: str) -> dict[str, Any] | None:
    """Return the fastest entry of some roles."""
    timed = [entry for entry in case["entries"] if entry["role"] in roles and entry.get("ns")]
    return min(timed, key=lambda entry: float(entry["ns"]["median"]), default=None)


def ratio(ours: dict[str, Any] | None, other: dict[str, Any] | None) -> str:
    """Return the ratio of two medians."""
    return format_quantity(ours["ns"]["median"] / other["ns"]["median"], "x") if ours and other else "-"


def speedup(ours: dict[str, Any], other: dict[str, Any]) -> str:
    """Return in words how much faster or slower one median is than another."""
    return format_speedup(other["ns"]["median"] / ours["ns"]["median"])


def added(ours: dict[str, Any] | None, other: dict[str, Any] | None) -> str:
    """Return the ratio and the difference of two medians."""
    if ours is None or other is None:
        return "-"
    more = ours["ns"]["median"] - other["ns"]["median"]
    return f"{ratio(ours, other)} {'+' if more >= 0 else '-'}{format_duration(abs(more))}"


def time(entry: dict[str, Any] | None) -> str:
    """Return an entry's median."""
    return format_duration(entry["ns"]["median"]) if entry and entry.get("ns") else "-"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    cells = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells)
