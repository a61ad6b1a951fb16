"""The goals of the compiled core: all conversions of their table take turns in one task.

Each time is compared with code by hand, with the documented call and, for arrays, with the pure Python path
in the same process. Without the compiled core, zerocopy's call and its pure Python path are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest
from benchmarks.conversion import containers as dicts, goals
from benchmarks.conversion.contenders import Pair, aliases, contenders, pairs
from benchmarks.conversion.question import Question, Timed, method, methods, ours
from benchmarks.conversion.subjects import SUBJECTS, Array, aligned_values, numpy_dtype
from benchmarks.goals import judge
from benchmarks.suite import Case, Section, Settings, Task, median
from zerocopy.dtype import by_name

COUNT = 1000  # elements

#: Options are measured between these frameworks, which need the least time without options.
OPTION_PAIRS: tuple[Pair, ...] = (("numpy", "torch"), ("torch", "numpy"))

Wants = Callable[[str], bool]


def arrays(wants: Wants) -> Iterator[Question]:
    """Yield the questions of the installed and wanted frameworks."""
    known = pairs(wants)
    for name in dict.fromkeys(source for source, _ in known):
        yield same_type(name)
    for pair in known:
        yield across(pair)
    if ("torch", "numpy") in known:
        yield fresh()
    for pair in known:
        if "pyarrow" not in pair:  # it has neither dtype
            yield from dtypes(pair)
    for pair in known:
        if pair[0] == "numpy":
            yield read_only(pair)
    for pair in OPTION_PAIRS:
        if pair in known:
            yield from options(pair)
    for pair in known:
        yield explained(pair)


def same_type(name: str) -> Question:
    """Return the question of an object that already belongs to the target."""
    x = SUBJECTS[name].make(aligned_values(COUNT))

    def wrong(result: Any) -> str:
        return "" if result is x else "gives another object"

    return Question(f"{name} -> {name}", ours(f'zc.convert(x, "{name}")', {"x": x}), wrong)


def across(pair: Pair, name: str = "", make: Callable[[], Any] | None = None) -> Question:
    """Return the question of one pair: zerocopy, the documented call, and code by hand."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    timed = ours(f'zc.convert(x, "{pair[1]}")', {"x": x}, make)
    timed += methods(contenders(pair), {"x": x}, "documented", "idiom", make=make)
    return Question(name or " -> ".join(pair), timed, partial(aliases, pair, x, expected))


def fresh() -> Question:
    """Return the question of tensors whose storage was never converted before."""
    import torch

    return across(("torch", "numpy"), f"torch -> numpy, {goals.FRESH}", partial(torch.empty, COUNT))


#: bfloat16 and float8 by hand: as bits, which the target views as the dtype.
_AS_BITS = {
    ("numpy", "torch"): "torch.from_numpy(x.view(np.{bits})).view(torch.{name})",
    ("torch", "numpy"): "x.view(torch.{bits}).numpy().view(dtype)",
}


def _compared(pair: Pair, x: Any) -> list[Timed]:
    """Return the conversion of `x`, and that of an ordinary array of float32 as a reference."""
    call = f'zc.convert({{}}, "{pair[1]}")'.format
    plain = SUBJECTS[pair[0]].make(aligned_values(COUNT))
    reference = method(call("float32"), "reference", {"float32": plain}, goals.FLOAT32)
    return [*ours(call("x"), {"x": x}), replace(reference, checked=False)]


def dtypes(pair: Pair) -> Iterator[Question]:
    """Yield a question for each dtype that NumPy lacks, if the target can alias it."""
    for name in goals.DTYPES:
        expected = aligned_values(COUNT, name)
        x = SUBJECTS[pair[0]].make(expected)
        if not zc.explain(x, pair[1]).zero_copy:
            continue  # TensorFlow takes float8 only with a copy
        timed = _compared(pair, x)
        if pair in _AS_BITS:
            code = _AS_BITS[pair].format(bits=by_name(name).storage.name, name=name)
            timed.append(method(code, "idiom", {"x": x, "dtype": numpy_dtype(name)}))
        yield Question(f"{' -> '.join(pair)}, {name}", timed, partial(aliases, pair, x, expected))


def read_only(pair: Pair) -> Question:
    """Return the question of a NumPy array that is marked read-only."""
    expected = aligned_values(COUNT)
    x = expected.view()
    x.flags.writeable = False
    name = f"{' -> '.join(pair)}, {goals.READ_ONLY}"
    return Question(name, _compared(pair, x), partial(aliases, pair, expected, expected))


def options(pair: Pair) -> Iterator[Question]:
    """Yield a question for each option that changes nothing for this array."""
    expected = aligned_values(COUNT)
    x = SUBJECTS[pair[0]].make(expected)
    plain = f'zc.convert(x, "{pair[1]}")'
    for option in goals.OPTIONS:
        timed = ours(f'zc.convert(x, "{pair[1]}", {option})', {"x": x})
        timed.append(method(plain, "reference", {"x": x}, goals.PLAIN))
        yield Question(f"{' -> '.join(pair)}, {option}", timed, partial(aliases, pair, x, expected))


def explained(pair: Pair) -> Question:
    """Return the question of a plan."""
    x = SUBJECTS[pair[0]].make(aligned_values(COUNT))

    def wrong(plan: Any) -> str:
        return "" if plan.possible and plan.zero_copy else f"plans {plan}"

    timed = [method(f'zc.explain(x, "{pair[1]}")', "ours", {"x": x})]
    return Question(f"{' -> '.join(pair)}, {goals.EXPLAIN}", timed, wrong)


LEAVES = COLUMNS = 100
BATCH, CHOSEN = 30, 10  # columns, and how many of them an option chooses
MATRIX = 8192, 28  # rows, columns

#: The dicts that have a goal.
DICTS: tuple[Pair, ...] = (("torch", "numpy"), ("numpy", "torch"), ("jax", "numpy"))
TABLES: tuple[Pair, ...] = (("pyarrow", "numpy"), ("pyarrow", "torch"))

_EACH = "{{k: {} for k, c in zip(x.column_names, x.columns)}}".format
_BATCH = "dict(zip(x.column_names, map({}, x.to_batches()[0].columns)))".format

#: A table by hand: chunk by chunk, or with its only batch.
_TABLE_BY_HAND = {
    "numpy": [
        _EACH("c.to_numpy()"),
        _EACH("c.chunk(0).to_numpy()"),
        _EACH("np.from_dlpack(c.chunk(0))"),
        _BATCH("np.from_dlpack"),
        _BATCH("np.asarray"),
    ],
    "torch": [
        _EACH("torch.from_dlpack(c.chunk(0))"),
        _EACH("torch.utils.dlpack.from_dlpack(c.chunk(0).__dlpack__(max_version=(1, 0)))"),
        _BATCH("torch.from_dlpack"),
    ],
}

_ROWS = (
    "torch.stack([torch.from_dlpack(c) for c in x.columns], dim=1)",
    "torch.stack([torch.from_numpy(c.to_numpy()) for c in x.columns], dim=1)",
    "torch.stack([torch.from_dlpack(c) for c in x.columns]).T.contiguous()",
)
_COLUMNS = (
    "torch.stack([torch.from_dlpack(c) for c in x.columns]).T",
    "torch.stack([torch.from_numpy(c.to_numpy()) for c in x.columns]).T",
)
_MATRIX_BY_HAND = {"matrix": _ROWS, "matrix:C": _ROWS, "matrix:F": _COLUMNS}


def containers(wants: Callable[[str], bool]) -> Iterator[Question]:
    """Yield the questions of the installed and wanted frameworks."""
    known = pairs(wants)
    for pair in DICTS:
        if pair in known:
            yield in_dict(pair)
    for pair in TABLES:
        if pair in known:
            yield in_table(pair)
    for pair in TABLES:
        if pair in known:
            yield from table_options(pair)
    if ("pyarrow", "torch") in known:
        yield from matrix()


def in_dict(pair: Pair) -> Question:
    """Return the question of a dict of arrays."""
    x, values = dicts.leaves(pair[0], LEAVES)
    timed = ours(f'zc.convert(x, "{pair[1]}")', {"x": x})
    timed += methods(dicts.contenders(pair), {"x": x}, "documented", "idiom")
    wrong = partial(dicts.leaves_differ, pair, x, dict.fromkeys(x, values))
    return Question(f"{' -> '.join(pair)}, {goals.DICT}", timed, wrong, LEAVES)


def _columns(count: int, rows: int = COUNT) -> dict[str, Array]:
    """Return columns with different values."""
    return {f"c{i}": np.arange(i, i + rows, dtype=np.float32) for i in range(count)}


def _arrow(values: Mapping[str, Array]) -> dict[str, Any]:
    return {name: SUBJECTS["pyarrow"].make(column) for name, column in values.items()}


def in_table(pair: Pair) -> Question:
    """Return the question of an Arrow table with one chunk."""
    import pyarrow as pa

    values = _columns(COLUMNS)
    columns = _arrow(values)
    x = pa.table(columns)
    timed = ours(f'zc.convert(x, "{pair[1]}")', {"x": x})
    timed += [method(code, "idiom", {"x": x}) for code in _TABLE_BY_HAND[pair[1]]]
    wrong = partial(dicts.leaves_differ, pair, columns, values)
    return Question(f"{' -> '.join(pair)}, {goals.TABLE}", timed, wrong, COLUMNS)


def table_options(pair: Pair) -> Iterator[Question]:
    """Yield a question for each option of a batch, compared with the same work without the option."""
    import pyarrow as pa

    values = _columns(BATCH)
    columns = _arrow(values)
    x = pa.record_batch(columns)
    labels = list(columns)
    few = {name: columns[name] for name in labels[:CHOSEN]}
    names = {"x": x, "names": labels, "some": labels[:CHOSEN], "few": pa.record_batch(few)}
    for option in goals.TABLE_OPTIONS:
        chosen = few if option == "columns=some" else columns
        plain = f'zc.convert({"few" if chosen is few else "x"}, "{pair[1]}")'
        timed = ours(f'zc.convert(x, "{pair[1]}", {option})', names)
        timed.append(method(plain, "reference", names, goals.PLAIN))
        wrong = partial(dicts.leaves_differ, pair, chosen, {name: values[name] for name in chosen})
        yield Question(f"{' -> '.join(pair)}, {goals.BATCH}, {option}", timed, wrong, len(chosen))


def matrix() -> Iterator[Question]:
    """Yield a question for each memory order: a batch to one tensor, compared with `torch.stack`."""
    import pyarrow as pa

    rows, columns = MATRIX
    values = _columns(columns, rows)
    arrays = _arrow(values)
    # In another order than that of their addresses: equally spaced columns would be aliased.
    x = pa.record_batch({name: arrays[name] for name in sorted(arrays, key=lambda name: (name[-1], name))})
    expected = np.stack([values[name] for name in x.schema.names], axis=1)

    def wrong(strides: tuple[int, int], result: Any) -> str:
        if tuple(result.shape) != MATRIX or not np.array_equal(result.numpy(), expected):
            return "gives other values"
        return "" if result.stride() == strides else f"has the strides {result.stride()}"

    for layout in goals.LAYOUTS:
        _, _, order = layout.partition(":")
        strides = (1, rows) if order == "F" else (columns, 1)
        option = f', order="{order}"' if order else ""
        timed = ours(f'zc.convert(x, "torch", layout="matrix"{option})', {"x": x})
        timed += [method(code, "idiom", {"x": x}) for code in _MATRIX_BY_HAND[layout]]
        name = f"pyarrow -> torch, {goals.MATRIX.format(layout)}"
        yield Question(name, timed, partial(wrong, strides), columns)


#: Seconds of a quick run.
_SECONDS = 5.0


def questions(settings: Settings) -> Iterator[Question]:
    """Yield all questions, in the order of the goals."""
    yield from arrays(settings.wants)
    yield from containers(settings.wants)


def tasks(settings: Settings) -> list[Task]:
    """Return one task: a goal is a ratio, so that all its times must be of the same minutes."""
    return [Task("all goals", partial(run, settings), _SECONDS)] if pairs(settings.wants) else []


def run(settings: Settings) -> list[Case]:
    """Check all methods, then time those that pass."""
    contest, pieces = Contest(), {}
    for question in questions(settings):
        question.add_to(contest)
        pieces[question.name] = question.pieces
    for case in contest.time(settings.pace):
        ours = case.fastest("ours")
        if pieces[case.name] and ours:
            case.figures = {"ns per leaf or column": median(ours) / pieces[case.name]}
    return contest.cases


SECTION = Section(
    "core",
    "the goals of the compiled core: the ratio to code by hand, to the documented call, and to references",
    tasks,
    "references",
    partial(judge, goals.GOALS),
)
