"""Each dtype between each pair: zerocopy, and below it the call that the target documents."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.contest import Contest, Method, refusal
from benchmarks.conversion.contenders import Pair, differs, essential, sources, targets
from benchmarks.conversion.subjects import Array, Subject, aligned_values
from benchmarks.suite import Case, Entry, Section, Settings, Task

COUNT = 1000  # elements
DTYPES = (
    *("float16", "bfloat16", "float8_e4m3fn", "float32", "float64", "complex64"),
    *("bool", "uint8", "uint16", "int8", "int16", "int32", "int64"),
)
QUICK_DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float64", "bool", "int64")
#: The name of the documented call's row, after the pair.
DOCUMENTED = "(documented call)"
#: A figure of zerocopy's row.
ALONE = "dtypes that only zerocopy supports"

#: An array of each dtype with its values, or why the source does not support it.
Arrays = Mapping[str, tuple[Any, Array] | str]


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each source: all its dtypes, to each target."""
    return [Task(f"from {source.name}", partial(run, source, settings)) for source in sources(settings)]


def arrays(source: Subject, names: tuple[str, ...] = DTYPES) -> Arrays:
    """Make an array of each dtype."""
    samples: dict[str, tuple[Any, Array] | str] = {}
    for name in names:
        values = aligned_values(COUNT, name)
        try:
            samples[name] = source.make(values), values.copy()
        except Exception as error:  # noqa: BLE001 - frameworks raise different errors for a missing dtype
            samples[name] = f"{source.name} cannot make it: {str(error).partition(chr(10))[0][:100]}"
    return samples


def run(source: Subject, settings: Settings) -> list[Case]:
    """Check both rows of each pair, and time the dtypes that are supported."""
    samples = arrays(source, QUICK_DTYPES if settings.quick else DTYPES)
    contest = Contest()  # all statements of a source take turns, because they are compared
    for target in targets(source, settings):
        pair = (source.name, target)
        ours, documented = essential(pair)
        alone = contest.case(" -> ".join(pair))
        theirs = contest.case(f"{' -> '.join(pair)} {DOCUMENTED}")
        for name, sample in samples.items():
            if isinstance(sample, str):
                alone.entries.append(Entry(name, "ours", left_out=sample))  # once for each pair
                continue
            refused = {}
            for case, method in ((alone, ours), (theirs, documented)):
                wrong, note = check(method, pair, *sample)
                refused[case.name] = wrong
                if wrong.startswith("refused"):
                    case.entries.append(Entry(name, method.role, left_out=wrong))
                else:
                    made = method.statement({"x": sample[0]})
                    contest.add(case, name, method.role, made, wrong, note)
            supported = not refused[alone.name] and refused[theirs.name]
            alone.figures[ALONE] = alone.figures.get(ALONE, 0) + bool(supported)
    return contest.time(settings.pace)


def check(method: Method, pair: Pair, x: Any, values: Array) -> tuple[str, str]:
    """Return why a contender does not support a dtype, and ``"copies"`` if it copies."""
    plan = zc.explain(x, pair[1])
    if method.role == "ours" and not plan.possible:
        return "refused: " + "; ".join(reason.why for reason in plan.reasons), ""
    results: list[Any] = []

    def wrong() -> str:
        results.append(method.statement({"x": x}).value())
        return differs(pair, results[0], values)

    refused = refusal(wrong)
    if not results:  # the text of the error names the dtype: it would be a remark for each
        return refused.partition(":")[0], ""
    return refused, "" if refused or zc.shares_memory(x, results[0]) else "copies"


SECTION = Section(
    "dtypes",
    f"{COUNT:,} elements of each dtype, and below it the documented call; - for unsupported dtypes",
    tasks,
    "series",
)
