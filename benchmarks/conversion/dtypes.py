"""Each dtype between each pair: zerocopy, and below it the call that the target documents."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.conversion.contenders import Contender, Pair, differs, essential, statement
from benchmarks.conversion.inputs import sources, targets
from benchmarks.conversion.subjects import Array, Subject, aligned_values
from benchmarks.suite import Case, Entry, Section, Settings, Task
from benchmarks.timing import Statement, measure

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
    timed: dict[str, Statement] = {}
    cases = []
    for target in targets(source, settings):
        pair = (source.name, target)
        rows = [Case(" -> ".join(pair)), Case(f"{' -> '.join(pair)} {DOCUMENTED}")]
        for case, contender in zip(rows, essential(pair), strict=True):
            for name, sample in samples.items():
                entry = Entry(name, contender.role)
                if not isinstance(sample, str):
                    entry.left_out, entry.note = check(contender, pair, *sample)
                    if not entry.left_out:
                        timed[f"{case.name}: {name}"] = statement(contender, pair, sample[0])
                elif contender.role == "ours":  # once for each pair
                    entry.left_out = sample
                else:
                    continue
                case.entries.append(entry)
        theirs = {entry.label: bool(entry.left_out) for entry in rows[1].entries}
        alone = [e.label for e in rows[0].entries if not e.left_out and theirs[e.label]]
        rows[0].figures = {ALONE: len(alone)}
        cases += rows
    # All statements of a source take turns, because they are compared.
    timings = measure(timed, settings.pace)
    for case in cases:
        for entry in case.entries:
            entry.timing = timings.get(f"{case.name}: {entry.label}")
    return cases


def check(contender: Contender, pair: Pair, x: Any, values: Array) -> tuple[str, str]:
    """Return why a contender does not support a dtype, and ``"copies"`` if it copies."""
    plan = zc.explain(x, pair[1])
    if contender.role == "ours" and not plan.possible:
        return "refused: " + "; ".join(reason.why for reason in plan.reasons), ""
    try:
        result = _quietly(statement(contender, pair, x))
    except Exception as error:  # noqa: BLE001 - frameworks raise different errors for a missing dtype
        return f"raises {type(error).__name__}", ""  # the text names the dtype: it would be a remark for each
    wrong = differs(pair, result, values)
    return wrong, "" if wrong or zc.shares_memory(x, result) else "copies"


def _quietly(one: Statement) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about legacy capsules and read-only memory
        return one.value()


SECTION = Section(
    "dtypes",
    f"{COUNT:,} elements of each dtype, and below it the documented call; - for unsupported dtypes",
    tasks,
    "series",
)
