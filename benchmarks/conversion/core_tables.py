"""Questions about several arrays in one call: dicts, Arrow tables, options of tables, one matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.conversion import containers as dicts, goals
from benchmarks.conversion.contenders import Pair, pairs
from benchmarks.conversion.question import Question, method, methods, ours
from benchmarks.conversion.subjects import SUBJECTS, Array

COUNT = 1000  # elements of each leaf and column
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
            yield from options(pair)
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


def options(pair: Pair) -> Iterator[Question]:
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
        strides = (1, rows) if layout == "matrix:F" else (columns, 1)
        timed = ours(f'zc.convert(x, "torch", layout="{layout}")', {"x": x})
        timed += [method(code, "idiom", {"x": x}) for code in _MATRIX_BY_HAND[layout]]
        name = f"pyarrow -> torch, {goals.MATRIX.format(layout)}"
        yield Question(name, timed, partial(wrong, strides), columns)
