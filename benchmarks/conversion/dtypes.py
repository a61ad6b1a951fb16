"""Each dtype between each pair: ours, and below it the call that the target documents."""

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
#: What the row of the documented call is called, after the pair.
DOCUMENTED = "(documented call)"
#: A figure of our row.
ALONE = "dtypes that zerocopy carries and the documented call does not"

#: An array of each dtype with its values; or why the source has none.
Arrays = Mapping[str, tuple[Any, Array] | str]


def tasks(settings: Settings) -> list[Task]:
    """One task a source: all its dtypes, to each target."""
    return [Task(f"from {source.name}", partial(run, source, settings)) for source in sources(settings)]


def arrays(source: Subject, names: tuple[str, ...] = DTYPES) -> Arrays:
    """Make an array of each dtype."""
    found: dict[str, tuple[Any, Array] | str] = {}
    for name in names:
        values = aligned_values(COUNT, name)
        try:
            found[name] = source.make(values), values.copy()
        except Exception as error:  # noqa: BLE001 - frameworks say "no such type" in many ways
            found[name] = f"{source.name} cannot make it: {str(error).partition(chr(10))[0][:100]}"
    return found


def run(source: Subject, settings: Settings) -> list[Case]:
    """Check both rows of each pair, and time what does the work."""
    made = arrays(source, QUICK_DTYPES if settings.quick else DTYPES)
    timed: dict[str, Statement] = {}
    cases = []
    for target in targets(source, settings):
        pair = (source.name, target)
        rows = [Case(" -> ".join(pair)), Case(f"{' -> '.join(pair)} {DOCUMENTED}")]
        for case, contender in zip(rows, essential(pair), strict=True):
            for name, given in made.items():
                entry = Entry(name, contender.role)
                if not isinstance(given, str):
                    entry.left_out, entry.note = check(contender, pair, *given)
                    if not entry.left_out:
                        timed[f"{case.name}: {name}"] = statement(contender, pair, given[0])
                elif contender.role == "ours":  # said once a pair
                    entry.left_out = given
                else:
                    continue
                case.entries.append(entry)
        theirs = {entry.label: bool(entry.left_out) for entry in rows[1].entries}
        alone = [e.label for e in rows[0].entries if not e.left_out and theirs[e.label]]
        rows[0].figures = {ALONE: len(alone)}
        cases += rows
    # All of a source take turns: they are compared with each other.
    timings = measure(timed, settings.pace)
    for case in cases:
        for entry in case.entries:
            entry.timing = timings.get(f"{case.name}: {entry.label}")
    return cases


def check(contender: Contender, pair: Pair, x: Any, values: Array) -> tuple[str, str]:
    """Return why a contender does not carry a dtype, and ``"copies"`` where it copies."""
    plan = zc.explain(x, pair[1])
    if contender.role == "ours" and not plan.possible:
        return "refused: " + "; ".join(reason.why for reason in plan.reasons), ""
    try:
        result = _quietly(statement(contender, pair, x))
    except Exception as error:  # noqa: BLE001 - each framework has its own for "no such type"
        return f"raises {type(error).__name__}", ""  # its words name the dtype, and would be a remark each
    told = differs(pair, result, values)
    return told, "" if told or zc.shares_memory(x, result) else "copies"


def _quietly(one: Statement) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of legacy capsules and memory that is not writable
        return one.value()


SECTION = Section(
    "dtypes",
    f"{COUNT:,} elements of each dtype, and the documented call below ours: - is what it does not carry",
    tasks,
    "series",
)
