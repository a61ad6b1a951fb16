"""Tables and columns with options, or of text and dates, compared with code by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contest import Contest, Method, imported, installed, refusal
from benchmarks.goals import BY_HAND, Promise, judge, ratio
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.tables.contest import array, differ
from benchmarks.timing import Statement

#: Rows of the case of a converter; rows of the cases of calls.
FEW, MANY = 50, (5_000, 100_000)
LIMIT, LIMIT_OF_FEW = 1.2, 2.0
#: Nanoseconds for the checks of a call, which are not counted.
LESS = 10_000.0

Objects = Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True)
class Row:
    """One kind of work: its object ``x`` of any number of rows, zerocopy's arguments, and code by hand."""

    name: str
    objects: Objects
    arguments: str
    by_hand: Sequence[str]
    frameworks: tuple[str, ...] = ("pyarrow",)
    reads: Callable[[Any], Any] = array

    def contest(self, contest: Contest, rows: int) -> None:
        """Add the case of one number of rows."""
        names = imported("zc", f"f({self.arguments})", *self.by_hand) | dict(self.objects(rows))
        case = contest.case(f"{self.name}, {rows:,} rows")
        ours = f"zc.convert(x, {self.arguments})"
        if rows == FEW:
            names["converter"], ours = (
                Statement(f"zc.converter(x, {self.arguments})", names).value(),
                "converter(x)",
            )
        expected = self.reads(Statement(self.by_hand[0], names).value())
        for method in (Method(ours, "ours"), *map(Method, self.by_hand)):
            statement = Statement(method.code, names)
            refused = refusal(lambda statement=statement: differ(self.reads(statement.value()), expected))
            contest.add(case, method.code, method.role, statement, refused)


def _numbers(rows: int, columns: int = 16) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {f"c{i}": rng.random(rows) for i in range(columns)}


def _with_nulls(rows: int) -> dict[str, Any]:
    import pyarrow as pa

    rng = np.random.default_rng(1)
    columns = {name: pa.array(x, mask=rng.random(rows) < 0.1) for name, x in _numbers(rows, 8).items()}
    return {"x": pa.table(columns | {"id": np.arange(rows)}), "names": [*columns]}


def _frame(module: str, rows: int) -> dict[str, Any]:
    from importlib import import_module

    return {"x": import_module(module).DataFrame(_numbers(rows))}


def _words(rows: int) -> list[str]:
    return [f"word {i % 1000}" for i in range(rows)]


def _text(rows: int) -> dict[str, Any]:
    import pyarrow as pa

    return {"x": pa.table({"s": _words(rows)}), "S": np.dtype([("s", "S8")]), "U": np.dtype([("s", "U8")])}


def _lists(rows: int) -> dict[str, Any]:
    import pyarrow as pa

    lengths = np.random.default_rng(0).integers(0, 17, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return {"x": pa.ListArray.from_arrays(offsets, np.arange(offsets[-1])), "padded": padded}


def padded(lists: Any) -> Any:
    """Pad lists as is done by hand: a mask of the items that each row has, and one assignment."""
    offsets = lists.offsets.to_numpy()
    lengths = np.diff(offsets)
    out = np.zeros((len(lists), lengths.max()), np.int64)
    out[np.arange(out.shape[1]) < lengths[:, None]] = lists.values.to_numpy()
    return out


def _bfloat16(rows: int) -> dict[str, Any]:
    import jax.numpy as jnp

    return {"x": jnp.arange(rows).astype("bfloat16")}


def _listed(column: Any) -> list[Any]:
    return [str(getattr(column, "type", getattr(column, "dtype", ""))), *column.to_pylist()]


_CAST = '"numpy", layout="matrix", dtype="float32"'
ROWS = (
    Row(
        "8 columns with nulls to a matrix",
        _with_nulls,
        f"{_CAST}, nulls=0, columns=names",
        ['np.column_stack([x[n].fill_null(0).to_numpy().astype("f4") for n in names])'],
    ),
    Row(
        "16 arrays in a dict to a matrix of float32",
        lambda rows: {"x": _numbers(rows)},
        _CAST,
        [
            'np.ascontiguousarray(np.array([*x.values()], "f4").T)',
            'np.column_stack([c.astype("f4") for c in x.values()])',
        ],
    ),
    Row(
        "16 columns of pyarrow to a matrix of float32",
        lambda rows: {"x": __import__("pyarrow").table(_numbers(rows))},
        _CAST,
        ['np.column_stack([c.chunk(0).to_numpy().astype("f4") for c in x.columns])'],
    ),
    Row(
        "16 columns of pandas to a matrix of float32",
        partial(_frame, "pandas"),
        _CAST,
        ['x.to_numpy("f4")'],
        ("pandas",),
    ),
    Row(
        "16 columns of polars to a matrix of float32",
        partial(_frame, "polars"),
        _CAST,
        ['x.cast(pl.Float32).to_numpy(order="c")'],
        ("polars",),
    ),
    Row(
        "text to records, S8",
        _text,
        '"numpy", layout="records", dtype=S',
        ['np.array(x["s"].to_pylist(), "S8").view(S)', 'x["s"].to_numpy().astype("S8").view(S)'],
    ),
    Row(
        "text to records, U8",
        _text,
        '"numpy", layout="records", dtype=U',
        ['np.array(x["s"].to_pylist(), "U8").view(U)', 'x["s"].to_numpy().astype("U8").view(U)'],
    ),
    Row(
        "text objects to pyarrow",
        lambda rows: {"x": np.array(_words(rows), object)},
        '"pyarrow"',
        ["pa.array(x)"],
        reads=_listed,
    ),
    Row(
        "text objects of pandas to pyarrow",
        lambda rows: {"x": __import__("pandas").Series(_words(rows), dtype=object)},
        '"pyarrow"',
        ["pa.array(x)"],
        ("pyarrow", "pandas"),
        _listed,
    ),
    Row('lists of up to 16 integers, lists="pad"', _lists, '"numpy", lists="pad"', ["padded(x)"]),
    Row(
        "bytes S5 to pyarrow",
        lambda rows: {"x": np.arange(rows).astype("S5")},
        '"pyarrow"',
        ["pa.array(x)"],
        reads=_listed,
    ),
    Row(
        "datetime64[D] to polars",
        lambda rows: {"x": np.arange(rows).astype("M8[D]")},
        '"polars"',
        ["pl.Series(x)"],
        ("polars",),
        lambda series: [str(series.dtype), *series.to_list()],
    ),
    Row("bfloat16 of JAX to NumPy", _bfloat16, '"numpy"', ["np.asarray(x)"], ("jax",)),
)


def _run(row: Row, settings: Settings) -> list[Case]:
    contest = Contest()
    for rows in (FEW, MANY[0]) if settings.quick else (FEW, *MANY):
        row.contest(contest, rows)
    return contest.time(settings.pace)


def tasks(settings: Settings) -> list[Task]:
    """Return one task for each kind of work."""
    return [
        Task(row.name, partial(_run, row, settings))
        for row in ROWS
        if all(settings.wants(name) and installed(name) for name in row.frameworks)
    ]


def _of(few: bool) -> Callable[[Case], float | None]:
    """Return the measure of cases with few rows, or with many."""
    measure = ratio(BY_HAND, less=LESS)
    return lambda case: measure(case) if case.name.endswith(f", {FEW} rows") is few else None


PROMISES = (
    Promise(
        f"options: {LIMIT}x of the fastest by hand, and 10 us, at most from 5,000 rows on", _of(False), LIMIT
    ),
    Promise(
        f"options, converter: {LIMIT_OF_FEW:.0f}x of the fastest by hand, and 10 us, at most for {FEW} rows",
        _of(True),
        LIMIT_OF_FEW,
    ),
)

SECTIONS = (
    Section(
        "options",
        "tables and columns with options, and of text and dates",
        tasks,
        "rivals",
        partial(judge, PROMISES),
    ),
)
