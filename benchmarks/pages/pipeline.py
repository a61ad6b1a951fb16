"""The page of the pipeline suite."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.words import goals, picture, ratio, table, time
from benchmarks.pipeline.contenders import METHODS

TITLE = "Benchmarks of a pipeline"
ABOUT = "From Parquet to scores through five frameworks: the cost of the borders, and of the work."

ON_GPU = (
    "The pipeline from Parquet to scores with engines on a GPU: the cost of the borders, and of the work."
)

#: Replaces "All contenders of a row run in one process".
CONTENDERS = "Whole runs of all contenders in one process"

Case = dict[str, Any]

_WHOLE = "whole pipeline"
_COPIED, _PEAK = "bytes copied, ", "bytes at the peak, "

_JOB = """\
## The job

The pipeline reads the flights that left New York in 2013 from Parquet, and the weather at their
airports from a file of records. polars joins them and computes features, as columns of float32.
torch fits a logistic model that predicts whether a flight arrives more than 15 minutes late. JAX
scores all flights, NumPy computes metrics of the scores, and pyarrow writes them as Parquet.

Each stage is the work of one engine, with the same code for all contenders. The contenders differ
in the code at the borders between engines:

- **zerocopy**: `zc.convert`, and `zc.aos_to_soa` for records.
- **documented calls**: the calls of documentation and tutorials, with pandas in between and
  constructors that copy.
- **aliases by hand**: at each border the call that is known to alias.

Before anything is timed, all contenders must give the same scores, labels and metrics. pandas
converts integers with nulls to floats, but these integers are small enough to keep their values.
"""

_WHY = """
Copied bytes are measured: the memory of each column of the result is compared with that of the same
column of the input, and columns without shared memory count. In a chain of calls each call counts.
"""

_WHERE = """\
## Where the time goes

- **Most of a run is work**: reading, joining, fitting, writing. Faster borders do not make the work
  faster: a whole run gains only the time of its borders.
- **Two borders copy in every contender.** Text has offsets in Arrow and views in polars, and records
  become columns by one copy.
- **The time of a border that aliases does not depend on the number of rows**: it describes each
  column. `zc.convert` also inspects its input.
- **Work rows differ slightly between contenders**, although their code is the same. After a copy, the
  data are in the caches, freed memory is reused without a call to the system, and threads are awake.
  For a contender that copies, the row before has this cost.
"""


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    sections = data["sections"]
    cases = sections["pipeline/stages"]
    alt = "Time of the stages of the pipeline, and the bytes copied between them"
    return [
        _JOB,
        picture("pipeline", alt),
        goals(data, _WHY),
        _stages("## Stages", cases),
        _borders(cases),
        _memory(sections.get("pipeline/memory")),
        _WHERE,
        _written(cases),
    ]


def on_gpu(data: dict[str, Any]) -> list[str]:
    """Return the GPU page after its head."""
    cases = data["sections"]["pipeline/gpu"]
    parts = [goals(data), _stages("## Stages", cases)]
    if any(entry.get("ns") for entry in cases[-1]["entries"]):
        parts += [_borders(cases), _against(cases, data["sections"].get("pipeline/stages"))]
    return [part for part in (*parts, _written(cases)) if part]


def _against(cases: list[Case], on_cpu: list[Case] | None) -> str:
    """Compare the whole with that on the CPU, if the same run has measured both."""
    whole, other = (
        next((case for case in several or [] if case["name"] == _WHOLE), None) for several in (cases, on_cpu)
    )
    if whole is None or other is None:
        return ""
    there = {entry["label"]: entry for entry in other["entries"] if entry.get("ns")}
    rows = [
        [e["label"], time(e), time(there[e["label"]]), ratio(e, there[e["label"]])]
        for e in whole["entries"]
        if e.get("ns") and e["label"] in there
    ]
    heads = ["whole pipeline", "on the GPU", "on the CPU", "to the CPU"]
    return f"## Compared with the CPU of the same machine\n\n{table(heads, rows)}\n"


def _stages(title: str, cases: list[Case]) -> str:
    """Return a row for each stage: time, copied bytes and ratio to zerocopy of each contender."""
    labels = [entry["label"] for entry in cases[0]["entries"]]
    heads = ["stage"]
    for label in labels:
        heads += [label, *(["to zerocopy"] if label != labels[0] else []), "copied"]
    rows = []
    for case in cases:
        ours = case["entries"][0]
        name = f"**{case['name']}**" if case["name"] == _WHOLE else case["name"]
        rows.append([name])
        for entry in case["entries"]:
            rows[-1] += [
                time(entry),
                *(
                    [ratio(entry, ours) if entry.get("ns") and ours.get("ns") else "-"]
                    if entry is not ours
                    else []
                ),
                _copied(case, entry["label"]),
            ]
    remarks = [line for case in cases for line in case.get("remarks", [])]
    remarks += [f"left out {e['label']}: {e['left_out']}" for e in cases[-1]["entries"] if e.get("left_out")]
    return f"{title}\n\n{table(heads, rows)}\n\n{_quoted(remarks)}\n"


def _quoted(remarks: list[str]) -> str:
    return "\n>\n".join(f"> {line[0].upper()}{line[1:]}." for line in remarks)


def _copied(case: Case, label: str) -> str:
    value = case.get("figures", {}).get(_COPIED + label)
    return "" if value is None else format_quantity(value, "bytes") if value else "nothing"


def _borders(cases: list[Case]) -> str:
    """Return the time of the borders, and its share of the whole."""
    whole = next(case for case in cases if case["name"] == _WHOLE)
    between = [case for case in cases if " -> " in case["name"]]
    rows = []
    for i, entry in enumerate(whole["entries"]):
        if not entry.get("ns"):
            continue
        spent = sum(case["entries"][i]["ns"]["median"] for case in between)
        share = f"{100 * spent / entry['ns']['median']:.1f}%"
        rows.append([entry["label"], format_duration(spent), share, _copied(whole, entry["label"])])
    text = "The sum of the medians of the borders, and its share of the median of the whole."
    return f"### The borders together\n\n{text}\n\n{table(['', 'time', 'share', 'copied'], rows)}\n"


def _memory(cases: list[Case] | None) -> str:
    if not cases or not cases[0].get("figures"):
        return ""
    (case,) = cases
    figures = {name.removeprefix(_PEAK): value for name, value in case["figures"].items()}
    rows = [[label, format_quantity(value, "bytes")] for label, value in figures.items()]
    remarks = _quoted(case.get("remarks", []))
    return f"## Memory\n\n{table(['', 'peak'], rows)}\n\n{remarks}\n"


def _written(cases: list[Case]) -> str:
    """Return the code at each border; ``x`` is the value of the line before it."""
    rows = []
    for border in (tuple(case["name"].split(" -> ")) for case in cases if " -> " in case["name"]):
        rows.append([" to ".join(border)])
        rows[-1] += [" then ".join(f"`{code}`" for code in method.borders[border]) for method in METHODS]
    text = "`x` is the input, and after *then* the value of the code before it."
    heads = ["border", *(method.label for method in METHODS)]
    return f"## The code at the borders\n\n{text}\n\n{table(heads, rows)}\n"
