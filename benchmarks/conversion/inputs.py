"""What the cost of a conversion goes with: the size, the dtype, the container, the way of calling."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.conversion.contenders import Contender, Pair, contenders, namespace, pairs, statement
from benchmarks.conversion.subjects import SUBJECTS, Subject, aligned_values
from benchmarks.machine import available_memory
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Pace, Statement, measure

SMALL, LARGE = 2**12, 2**30  # bytes: what the promise on sizes compares
SIZES = (4, 64, SMALL, 2**16, 2**20, 2**26, LARGE)
QUICK_SIZES = (4, SMALL, 2**26)
DTYPES = (
    *("float16", "bfloat16", "float32", "float64", "complex64"),
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
)
LEAVES = (1, 10, 100, 1000)
#: Noise of a median of blocks on a shared machine, as a share of it.
NOISE = 1.1


def sources(settings: Settings) -> list[Subject]:
    """Return the frameworks to convert from."""
    names = dict.fromkeys(source for source, _ in pairs(settings.wants))
    return [SUBJECTS[name] for name in names]


def targets(source: Subject, settings: Settings) -> list[str]:
    """Return where to convert to, from a framework."""
    return [target for name, target in pairs(settings.wants) if name == source.name]


def ours(pair: Pair) -> Contender:
    """Return our own row of the table."""
    return contenders(pair)[0]


def within_memory(sizes: Sequence[int]) -> list[int]:
    """Return the sizes of which three arrays fit in a half of what memory is free."""
    return [size for size in sizes if size * 6 <= available_memory()] or [min(sizes)]


def size_name(size: int) -> str:
    """Write a size in bytes.

    Examples
    --------
    >>> size_name(4), size_name(4096), size_name(2**30)
    ('4 B', '4 KiB', '1 GiB')
    """
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_ and size % bytes_ == 0:
            return f"{size // bytes_} {unit}"
    return f"{size} B"


def size_tasks(settings: Settings) -> list[Task]:
    """One task a source, whose arrays are made once for all targets."""
    return [Task(f"from {source.name}", partial(_sizes, source, settings)) for source in sources(settings)]


def _sizes(source: Subject, settings: Settings) -> list[Case]:
    asked = settings.sizes or (QUICK_SIZES if settings.quick else SIZES)
    sizes = within_memory(sorted(asked))
    arrays = {size: source.make(aligned_values(max(size // 4, 1))) for size in sizes}
    cases = []
    for target in targets(source, settings):
        pair = (source.name, target)
        case = Case(" -> ".join(pair))
        # The sizes take turns, as contenders do: it is they that are compared.
        timings = measure(
            {size_name(size): statement(ours(pair), pair, x) for size, x in arrays.items()}, settings.pace
        )
        for size, x in arrays.items():
            alias = zc.shares_memory(x, zc.convert(x, target))
            name = size_name(size)
            case.entries.append(Entry(name, "ours", timings[name], "" if alias else "copies"))
        case.remarks += [f"no memory for {size_name(size)}" for size in asked if size not in sizes]
        cases.append(case)
    return cases


def _size_goals(cases: Sequence[Case]) -> list[Goal]:
    found = []
    for case in cases:
        by_label = {entry.label: entry for entry in case.timed()}
        small, large = by_label.get(size_name(SMALL)), by_label.get(size_name(LARGE))
        if small and large:
            ratio = median(large) / median(small)
            name = f"1 GiB takes as long as 4 KiB, within noise ({NOISE}x)"
            found.append(Goal(name, case.name, ratio, NOISE, "x"))
    return found


def dtype_tasks(settings: Settings) -> list[Task]:
    """One task a source: all its dtypes, to each target."""
    return [Task(f"from {source.name}", partial(_dtypes, source, settings)) for source in sources(settings)]


def _dtypes(source: Subject, settings: Settings) -> list[Case]:
    arrays: dict[str, Any] = {}
    for name in DTYPES:
        try:
            arrays[name] = source.make(aligned_values(1000, name))
        except Exception as error:  # noqa: BLE001 - frameworks say "no such type" in many ways
            arrays[name] = error
    return [_dtype_case((source.name, target), arrays, settings.pace) for target in targets(source, settings)]


def _dtype_case(pair: Pair, arrays: dict[str, Any], pace: Pace) -> Case:
    case = Case(" -> ".join(pair))
    timed = {}
    for name, x in arrays.items():
        entry = Entry(name)
        case.entries.append(entry)
        if isinstance(x, Exception):
            entry.left_out = f"{pair[0]} cannot make it: {str(x).partition(chr(10))[0][:100]}"
            continue
        plan = zc.explain(x, pair[1])
        if not plan.possible:
            entry.left_out = "refused: " + "; ".join(reason.why for reason in plan.reasons)
            continue
        entry.note = "" if zc.shares_memory(x, zc.convert(x, pair[1])) else "copies"
        timed[name] = statement(ours(pair), pair, x)
    timings = measure(timed, pace) if timed else {}
    for entry in case.entries:
        entry.timing = timings.get(entry.label)
    return case


#: Pairs whose containers are measured, and what a user maps over the leaves.
_MAPPED = {
    ("numpy", "torch"): "torch.from_numpy",
    ("torch", "numpy"): "torch.Tensor.numpy",
    ("jax", "numpy"): "np.asarray",
    ("numpy", "jax"): "jnp.from_dlpack",
}


def container_tasks(settings: Settings) -> list[Task]:
    """One task a pair and number of leaves."""
    counts = LEAVES[:3] if settings.quick else LEAVES
    return [
        Task(f"{' -> '.join(pair)}, {count}", partial(_container, pair, count, settings))
        for pair in _MAPPED
        if pair in pairs(settings.wants)
        for count in counts
    ]


def _container(pair: Pair, count: int, settings: Settings) -> list[Case]:
    source, target = pair
    call = _MAPPED[pair]
    x = {f"layer{i}": SUBJECTS[source].make(aligned_values(1000)) for i in range(count)}
    names = namespace(pair) | {"x": x}
    rows = [
        (f'zc.convert(x, "{target}")', "ours"),
        (f"{{k: {call}(v) for k, v in x.items()}}", "idiom"),
        (f'{{k: zc.convert(v, "{target}") for k, v in x.items()}}', "reference"),
    ]
    if "jax" in pair:
        rows.append((f"jax.tree.map({call}, x)", "idiom"))
    timings = measure({code: Statement(code, names) for code, _ in rows}, settings.pace)
    case = Case(f"{source} -> {target}, dict of {count}")
    case.entries = [Entry(code, role, timings[code]) for code, role in rows]
    case.figures = {"ns a leaf": timings[rows[0][0]].median / count}
    return [case]


def call_tasks(settings: Settings) -> list[Task]:
    """One task: each way to write the same call, between two frameworks."""
    return [
        Task(" -> ".join(pair), partial(_calls, pair, settings.pace))
        for pair in (("numpy", "torch"), ("torch", "numpy"))
        if pair in pairs(settings.wants)
    ]


def _calls(pair: Pair, pace: Pace) -> list[Case]:
    source, target = pair
    x = SUBJECTS[source].make(aligned_values(1000))
    names = namespace(pair) | {"x": x, "y": zc.convert(x, target), "convert": zc.convert}
    codes = (
        f'convert(x, "{target}")',
        f'zc.convert(x, "{target}")',
        f'zc.convert(x, to="{target}")',
        f'zc.convert(x, "{source}")',
        f'zc.convert(x, "{target}", copy=False)',
        f'zc.convert(x, "{target}", device="cpu")',
        f'zc.explain(x, "{target}")',
        "zc.view(x)",
        "zc.shares_memory(x, y)",
    )
    timings = measure({code: Statement(code, names) for code in codes}, pace)
    return [Case(" -> ".join(pair), [Entry(code, "ours", timings[code]) for code in codes])]


SECTIONS = (
    Section("sizes", "ours, from one element to 1 GiB of float32", size_tasks, "series", _size_goals),
    Section("dtypes", "ours, 1,000 elements of each dtype", dtype_tasks, "series"),
    Section("containers", "a dict of arrays, against a comprehension by hand", container_tasks),
    Section("calls", "ours, ways to call, and the other functions", call_tasks, "figures"),
)
