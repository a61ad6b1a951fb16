"""Write docs/replacements.md: ``python docs/replacements.py > docs/replacements.md``.

For each pair of frameworks, the usual call by hand and the call of zerocopy are both run on the same
objects. The page states what was observed, so a note cannot be wrong or out of date.
The prose is in ``replacements.in`` in this folder.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

# Set before any framework is imported: the page is about defaults and host memory.
os.environ.pop("JAX_ENABLE_X64", None)
os.environ |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}

import duckdb
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import tensorflow as tf
import torch

import zerocopy as zc
from benchmarks.formats import format_quantity
from zerocopy.protocols.array_interface import aligned_copy

NAMES = {
    "duckdb": duckdb,
    "jnp": jnp,
    "np": np,
    "pa": pa,
    "pd": pd,
    "pl": pl,
    "tf": tf,
    "torch": torch,
    "zc": zc,
}

ARRAYS = ("numpy", "torch", "jax", "tensorflow")
TABLES = ("pyarrow", "pandas", "polars", "duckdb")

#: The call that the documentation of the target or the source recommends, for an array or tensor ``x``.
FROM_ARRAYS = {
    ("numpy", "torch"): "torch.from_numpy(x)",
    ("numpy", "jax"): "jnp.asarray(x)",
    ("numpy", "tensorflow"): "tf.convert_to_tensor(x)",
    ("numpy", "pyarrow"): "pa.array(x)",
    ("numpy", "pandas"): "pd.Series(x)",
    ("numpy", "polars"): "pl.Series(x)",
    ("numpy", "duckdb"): 'duckdb.from_arrow(pa.table({"x": x}))',
    ("torch", "numpy"): "x.numpy()",
    ("torch", "jax"): "jnp.asarray(x.numpy())",
    ("torch", "tensorflow"): "tf.convert_to_tensor(x.numpy())",
    ("torch", "pyarrow"): "pa.array(x.numpy())",
    ("torch", "pandas"): "pd.Series(x.numpy())",
    ("torch", "polars"): "pl.Series(x.numpy())",
    ("torch", "duckdb"): 'duckdb.from_arrow(pa.table({"x": x.numpy()}))',
    ("jax", "numpy"): "np.asarray(x)",
    ("jax", "torch"): "torch.tensor(np.asarray(x))",
    ("jax", "tensorflow"): "tf.convert_to_tensor(x)",
    ("jax", "pyarrow"): "pa.array(np.asarray(x))",
    ("jax", "pandas"): "pd.Series(np.asarray(x))",
    ("jax", "polars"): "pl.Series(np.asarray(x))",
    ("jax", "duckdb"): 'duckdb.from_arrow(pa.table({"x": np.asarray(x)}))',
    ("tensorflow", "numpy"): "x.numpy()",
    ("tensorflow", "torch"): "torch.tensor(x.numpy())",
    ("tensorflow", "jax"): "jnp.asarray(x.numpy())",
    ("tensorflow", "pyarrow"): "pa.array(x.numpy())",
    ("tensorflow", "pandas"): "pd.Series(x.numpy())",
    ("tensorflow", "polars"): "pl.Series(x.numpy())",
    ("tensorflow", "duckdb"): 'duckdb.from_arrow(pa.table({"x": x.numpy()}))',
}

#: The same for a table ``x`` of numbers.
FROM_TABLES = {
    ("pandas", "numpy"): "x.to_numpy()",
    ("pandas", "torch"): "torch.tensor(x.to_numpy())",
    ("pandas", "jax"): "jnp.asarray(x.to_numpy())",
    ("pandas", "tensorflow"): "tf.convert_to_tensor(x)",
    ("pandas", "pyarrow"): "pa.Table.from_pandas(x)",
    ("pandas", "polars"): "pl.from_pandas(x)",
    ("pandas", "duckdb"): "duckdb.from_df(x)",
    ("polars", "numpy"): "x.to_numpy()",
    ("polars", "torch"): "x.to_torch()",
    ("polars", "jax"): "x.to_jax()",
    ("polars", "tensorflow"): "tf.convert_to_tensor(x.to_numpy())",
    ("polars", "pyarrow"): "x.to_arrow()",
    ("polars", "pandas"): "x.to_pandas()",
    ("polars", "duckdb"): 'duckdb.sql("FROM x")',
    ("pyarrow", "numpy"): "x.to_pandas().to_numpy()",
    ("pyarrow", "torch"): "torch.tensor(x.to_pandas().to_numpy())",
    ("pyarrow", "jax"): "jnp.asarray(x.to_pandas().to_numpy())",
    ("pyarrow", "tensorflow"): "tf.convert_to_tensor(x.to_pandas())",
    ("pyarrow", "pandas"): "x.to_pandas()",
    ("pyarrow", "polars"): "pl.from_arrow(x)",
    ("pyarrow", "duckdb"): "duckdb.from_arrow(x)",
    ("duckdb", "numpy"): "x.fetchnumpy()",
    ("duckdb", "torch"): "x.torch()",
    ("duckdb", "jax"): "jnp.asarray(x.df().to_numpy())",
    ("duckdb", "tensorflow"): "x.tf()",
    ("duckdb", "pyarrow"): "x.to_arrow_table()",
    ("duckdb", "pandas"): "x.df()",
    ("duckdb", "polars"): "x.pl()",
}

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
VALUES = aligned_copy(np.arange(4096, dtype=np.float32))
WITH_NULL = pa.table({"a": pa.array([2**53 + 1, None, 3]), "b": pa.array([4, 5, 6])})
FLOATS = [pa.array(values, pa.float32()) for values in ([1, None, 3], [1, math.nan, 3], [4, 5, 6])]


@dataclass(frozen=True)
class Case:
    """One object to convert: its name in a note, and how to make it in each framework."""

    name: str
    make: Callable[[str], Any]


ARRAY_CASES = (
    Case("reversed, `x[::-1]`", lambda source: VALUES[::-1] if source == "numpy" else None),
    Case(
        "with `requires_grad`",
        lambda source: torch.zeros(3, requires_grad=True) if source == "torch" else None,
    ),
    Case("`bfloat16`", lambda source: _bfloat16(source)),
)
TABLE_CASES = (
    Case("integers with a null", lambda source: zc.convert(WITH_NULL, to=source)),
    Case("floats with a null", lambda source: _floats(source, 0)),
    Case("floats with NaN", lambda source: _floats(source, 1)),
)


def _floats(source: str, column: int) -> Any:
    table = pa.table({"a": FLOATS[column], "b": FLOATS[2]})
    if source != "pandas":
        return zc.convert(table, to=source)
    return table.to_pandas() if column == 1 else None  # pandas' own floats have NaN, but no nulls


def _bfloat16(source: str) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "torch": lambda: torch.ones(3, dtype=torch.bfloat16),
        "jax": lambda: jnp.ones(3, dtype=jnp.bfloat16),
        "tensorflow": lambda: tf.ones(3, dtype=tf.bfloat16),
    }
    return makers[source]() if source in makers else None


def _ratios() -> dict[tuple[str, str], str]:
    """Return the time of each pair relative to the fastest code by hand, from the newest full results."""
    kinds = {(a, b): "table 1,000 x 10" for a in TABLES for b in TABLES}
    kinds |= {(a, b): "table 1,000 x 10 to a matrix" for a in TABLES for b in ARRAYS}
    kinds |= {(a, b): "array of 1,000" for a in ARRAYS for b in TABLES}
    names = {f"{a} -> {b}, {kind}": (a, b) for (a, b), kind in kinds.items()}
    names |= {f"{a} -> {b}": (a, b) for a in ARRAYS for b in ARRAYS}
    results = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")]
    ratios = {}
    for data in sorted((d for d in results if d.get("complete")), key=lambda d: str(d["started"])):
        sections = data["sections"]
        core = sections.get("conversion/core", ())
        for case in (*sections.get("grid/cells", ()), *core):
            medians: dict[str, list[float]] = {}
            for entry in case["entries"]:
                medians.setdefault(entry["role"], []).append((entry.get("ns") or {}).get("median", math.inf))
            hand = min(medians.get("documented", []) + medians.get("idiom", []), default=math.inf)
            if case["name"] in names and hand < math.inf:
                ratio = min(medians["ours"]) / hand
                ratios[names[case["name"]]] = format_quantity(ratio, "x") if case in core else f"{ratio:.2f}x"
    return ratios


def main() -> str:
    """Return the page."""
    template = Template((Path(__file__).parent / "replacements.in").read_text(encoding="utf-8"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = [row for name in ARRAYS for row in _rows(name, FROM_ARRAYS, _array(name), ARRAY_CASES)]
        tables = [row for name in TABLES for row in _rows(name, FROM_TABLES, _table(name), TABLE_CASES)]
    memory = [row[3] for row in arrays + tables]
    return template.substitute(
        arrays=_lines(arrays),
        tables=_lines(tables),
        versions=_versions(),
        aliases=memory.count("copy, alias"),
        rows=len(memory),
    )


def _array(source: str) -> Any:
    return zc.convert(VALUES, to=source, copy=False)


def _table(source: str) -> Any:
    columns = {"a": VALUES, "b": VALUES[::-1].copy()}
    return zc.convert(columns, to=source)


def _rows(source: str, calls: dict[tuple[str, str], str], x: Any, cases: tuple[Case, ...]) -> list[list[str]]:
    rows = []
    for (origin, target), by_hand in calls.items():
        if origin == source:
            ours = _ours(source, target)
            notes, time = _notes(source, by_hand, ours, cases), RATIOS.get((source, target), "")
            memory = f"{_memory(by_hand, x)}, {_memory(ours, x)}"
            rows.append([source, target, f"`{by_hand}`", memory, time, "<br>".join(notes)])
    return rows


def _lines(rows: list[list[str]]) -> str:
    head = ["from", "to", "by hand", "memory", "time", "differences seen on other inputs"]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def _ours(source: str, target: str) -> str:
    matrix = ', layout="matrix"' if source in TABLES and target in ARRAYS else ""
    return f'zc.convert(x, "{target}"{matrix})'


def _run(code: str, x: Any) -> Any:
    return eval(code, {**NAMES, "x": x})


def _memory(code: str, x: Any) -> str:
    result = _run(code, x)
    if isinstance(x, duckdb.DuckDBPyRelation):
        return "copy"  # DuckDB copies each result: it has no memory of its own to share
    if isinstance(result, duckdb.DuckDBPyRelation):
        return "query"
    return "alias" if zc.shares_memory(x, result) else "copy"


def _notes(source: str, by_hand: str, ours: str, cases: tuple[Case, ...]) -> list[str]:
    """Return the inputs on which the two calls differ, with both outcomes."""
    notes = []
    for case in cases:
        x = case.make(source)
        if x is None:
            continue
        before, after = _outcome(by_hand, x), _outcome(ours, x)
        if before != after and not (before.startswith("raises") and after.startswith("raises")):
            notes.append(f"{case.name}: by hand {before}; zerocopy {after}")
    return notes


def _outcome(code: str, x: Any) -> str:
    """Return what a call does: the error, or the dtype and values of the result's first column."""
    try:
        result = _run(code, x)
    except Exception as error:  # noqa: BLE001 - the page states the type of any error
        return f"raises `{type(error).__name__}`"
    if isinstance(result, duckdb.DuckDBPyRelation):
        return f"returns `{str(result.types[0]).lower()}` `{[row[0] for row in result.fetchall()]}`"
    column = _first_column(result)
    dtype = getattr(column.dtype if hasattr(column, "dtype") else column.type, "name", None)
    name = dtype or str(getattr(column, "dtype", None) or column.type)
    values = f" `{_values(column)}`" if isinstance(result, TABLE_TYPES) or np.ndim(result) == 2 else ""
    return f"returns `{name.removeprefix('torch.').lower()}`{values}"


TABLE_TYPES = (dict, pd.DataFrame, pl.DataFrame, pa.Table)


def _first_column(result: Any) -> Any:
    if isinstance(result, dict):
        return next(iter(result.values()))
    if isinstance(result, pd.DataFrame):
        return result.iloc[:, 0]
    if isinstance(result, pl.DataFrame):
        return result.to_series(0)
    if isinstance(result, pa.Table):
        return result.column(0)
    return result[:, 0] if np.ndim(result) == 2 else result


def _values(column: Any) -> list[Any]:
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column.numpy().tolist())


def _versions() -> str:
    modules = (np, torch, jax, tf, pa, pd, pl, duckdb)
    text = ", ".join(f"{module.__name__} {module.__version__}" for module in modules)
    return f"Python {platform.python_version()}, zerocopy {zc.__version__}, {text}."


RATIOS = _ratios()

if __name__ == "__main__":
    sys.stdout.write(main())
