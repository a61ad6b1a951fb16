"""Plans of tables whose columns differ in type, alignment, access, nulls and chunks, for each framework."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers.oracle import agrees as agree
from helpers.tiers import sampled

import zerocopy as zc

TARGETS = (
    "pyarrow",
    "pyarrow.RecordBatch",
    "pandas",
    "polars",
    "duckdb",
    "nanoarrow",
    "numpy",
    "torch",
    "jax",
)
OPTIONS: list[dict[str, Any]] = [{}, {"copy": True}, {"copy": False}, {"index": False}, {"writable": True}]
OPTIONS += [{"layout": "columns"}, {"layout": "columns", "copy": True}]
OPTIONS += [{"layout": "matrix"}, {"layout": "matrix:C"}, {"layout": "matrix:F", "copy": False}]


def _misaligned(dtype: str = "f8") -> np.ndarray:
    return np.zeros(5 * np.dtype(dtype).itemsize + 1, "u1")[1:].view(dtype)


def _offset(count: int) -> np.ndarray:
    return np.arange(5.0 + count)[count:]  # addresses of different alignment


def dicts() -> dict[str, dict[Any, Any]]:
    numbers = {f"c{i}": np.arange(5.0) for i in range(6)}
    readonly = np.arange(5.0)
    readonly.flags.writeable = False
    return {
        "numbers": numbers,
        "alignments": {f"c{i}": _offset(i) for i in range(9)},
        "one misaligned": {**numbers, "odd": _misaligned()},
        "misaligned": {f"c{i}": _misaligned() for i in range(3)},
        "two types": {f"c{i}": np.arange(5, dtype=("i4", "f4")[i % 2]) for i in range(6)},
        "read-only": {**numbers, "r": readonly, "s": readonly},
        "strided": {"a": np.arange(10.0)[::2], "b": np.arange(10.0)[::2], "c": np.arange(5.0)[::-1]},
        "booleans": {"a": np.zeros(5, "?"), "b": np.ones(5, "?")},
        "vectors": {"a": np.zeros((5, 2)), "b": np.zeros((5, 2)), "c": np.zeros((5, 2), order="F")},
        "no rows": {"a": np.empty(0), "b": np.empty(0)},
        "complex": {"a": np.zeros(5, "c8"), "b": np.zeros(5, "c8")},
        "other byte order": {"a": np.zeros(5, ">f8"), "b": np.zeros(5, ">f8")},
        "labels": {1: np.zeros(5), "1": np.zeros(5), None: np.zeros(5)},
        "text": {**numbers, "t": np.array(list("abcde"))},
        "one matrix": dict(zip("abcd", np.arange(20.0).reshape(4, 5), strict=True)),
        "rows of a matrix": dict(zip("abcd", np.arange(20.0).reshape(5, 4).T, strict=True)),
        "every other column": dict(zip("abcd", np.arange(40.0).reshape(8, 5)[::2], strict=True)),
        "one column": {"a": np.arange(5.0)},
        "shapes": {
            "a": np.zeros(3),
            "b": np.zeros((2, 3)),
            "c": np.zeros((3, 2), order="F"),
            "d": np.zeros(0),
        },
        "two shapes": {"a": np.zeros(3), "b": np.zeros(4), "c": np.zeros(3), ("d", 1): np.zeros(4)},
        "scalar": {"a": np.zeros(3), "b": np.zeros(())},
        "one row": {"a": np.arange(1.0), "b": np.arange(1.0)},
    }


def tables() -> dict[str, Any]:
    """Return tables of each framework by name."""
    pa, pd, pl = (pytest.importorskip(name) for name in ("pyarrow", "pandas", "polars"))
    cases: dict[str, Any] = {f"dict: {name}": columns for name, columns in dicts().items()}
    for name in ("numbers", "two types", "alignments", "no rows", "one matrix", "one column", "one row"):
        columns = dicts()[name]
        table, frame = pa.table(columns), pd.DataFrame(columns)
        cases |= {f"pyarrow: {name}": table, f"pandas: {name}": frame, f"polars: {name}": pl.DataFrame(table)}
        cases |= {f"batch: {name}": batch for batch in table.to_batches()}
    plain = pa.table(dicts()["numbers"])
    bitmap = pa.Array.from_buffers(
        pa.float64(), 5, [pa.py_buffer(b"\xff"), plain["c0"].chunk(0).buffers()[1]]
    )
    frame = pd.DataFrame(dicts()["numbers"])
    cases |= {
        "pyarrow: bitmap": pa.table([bitmap, bitmap, plain["c1"], plain["c2"]], list("abcd")),
        "pyarrow: slice": plain.slice(1, 3),
        "pyarrow: chunks": pa.concat_tables([plain, plain]),
        "pyarrow: nulls": plain.append_column("n", pa.array([1, None, 2, 3, 4])),
        "pyarrow: two columns of nulls": pa.table(
            {name: pa.array([1.0, None, 2.0, 3.0, None][k:] + [4.0] * k) for k, name in enumerate("abcde")}
        ),
        "pyarrow: other types": plain.append_column("t", pa.array(list("abcde")))
        .append_column("u", pa.array(["x" * 20, None, "", "y", "z"], pa.large_string()))
        .append_column("v", pa.array(list("abcde"), pa.string_view()))
        .append_column("b", pa.array([True, False, None, True, False]))
        .append_column("d", pa.array(list("aabbc")).dictionary_encode())
        .append_column("l", pa.array([[1], [2, 3], [], None, [4]]))
        .append_column("f", pa.array([[1, 2]] * 5, pa.list_(pa.int32(), 2)))
        .append_column("s", pa.array([{"a": 1}] * 5)),
        "pyarrow: text": plain.append_column("t", pa.array(list("abcde"))),
        "pyarrow: views": plain.append_column("v", pa.array(["long text of 20 bytes"] * 5, pa.string_view())),
        "polars: nulls": pl.DataFrame(plain).with_columns(n=pl.Series([1, None, 2, 3, 4])),
        "polars: other types": pl.DataFrame(plain).with_columns(
            t=pl.lit("x"),
            l=pl.Series([[1], [2], [3], None, []]),
            c=pl.Series(list("aabbc"), dtype=pl.Categorical),
        ),
        "pyarrow: names twice": pa.table([plain["c0"], plain["c1"]], ["a", "a"]),
        "pyarrow: metadata": plain.replace_schema_metadata({"k": "v"}),
        "pandas: index": frame.set_index("c0"),
        "pandas: two levels": frame.set_index(["c0", "c1"]),
        "pandas: text": frame.assign(t=list("abcde"), u=list("abcde")),
        "pandas: labels": frame.set_axis([1, "1", 2.0, None, ("a", "b"), b"x"], axis=1),
        "pandas: names twice": frame.set_axis(list("aabbcc"), axis=1),
        "pandas: dates": frame.assign(d=pd.date_range("2020", periods=5)),
        "pandas: attributes": frame.copy(),
        "pandas: one block": pd.DataFrame(np.asfortranarray(np.arange(30.0).reshape(5, 6))),
        "pandas: rows": pd.DataFrame(np.arange(30.0).reshape(5, 6)),
        "pandas: arrow": frame.convert_dtypes(dtype_backend="pyarrow"),
        "pandas: arrow with nulls": pd.DataFrame(
            {
                "a": [1, None, 2],
                "b": [3.5, 4.5, None],
                "c": [1, 2, 3],
                "d": [1, None, 4],
                "t": ["x", None, "y"],
            }
        ).convert_dtypes(dtype_backend="pyarrow"),
        "pandas: arrow and numpy": frame.convert_dtypes(dtype_backend="pyarrow").assign(
            c1=1.0, c3=2.0, t="x"
        ),
        "pandas: levels of labels": frame.set_axis([list("aabbcc"), list("xyxyxy")], axis=1),
        "pandas: missing label": frame.set_axis(["a", None, *"bcde"], axis=1),
        "pandas: nullable": frame.convert_dtypes(),
        "polars: text": pl.DataFrame(plain).with_columns(t=pl.lit("x")),
        "polars: constant": pl.DataFrame(plain).with_columns(k=pl.lit(1.0), m=pl.lit(1.0)),
    }
    cases["pandas: attributes"].attrs = {"a": 1}
    for name, x in {"f8": np.arange(5.0), "i2": np.arange(5, dtype="i2"), "offset": _offset(1)}.items():
        cases |= {f"pyarrow: array {name}": pa.array(x), f"polars: series {name}": pl.Series("a", x)}
        cases[f"pandas: series {name}"] = pd.Series(x, name="a")
    column = pa.array(np.arange(9.0))
    cases |= {
        "pyarrow: slice of an array": column.slice(3),
        "pyarrow: chunked array": pa.chunked_array([column]),
        "pyarrow: array of nulls": pa.array([1.0, None]),
        "pyarrow: array without rows": pa.array([], pa.float64()),
        "pyarrow: array of float16": pa.array(np.arange(3, dtype="f2")),
        "pyarrow: array of text": pa.array(["a"]),
        "pandas: series reversed": pd.Series(np.arange(5.0))[::-1],
        "pandas: series with an index": pd.Series(np.arange(3.0), index=list("abc")),
        "pandas: series of booleans": pd.Series([True, False]),
        "pandas: series of text": pd.Series(["a", "b"]),
        "polars: series of nulls": pl.Series([1, None]),
        "polars: series in chunks": pl.concat([pl.Series([1.0]), pl.Series([2.0])], rechunk=False),
        "polars: series without rows": pl.Series([], dtype=pl.Float64),
        "polars: series of booleans": pl.Series([True, False]),
    }
    duckdb = pytest.importorskip("duckdb")
    for name in ("numbers", "two types", "no rows"):
        cases[f"duckdb: {name}"] = duckdb.from_arrow(pa.table(dicts()[name]))
    cases |= {
        "duckdb: text": duckdb.sql("select 1 as a, 'x' as t, 'y' as u, 2 as b"),
        "duckdb: other types": duckdb.sql("select 1 as a, [1] as l, 2 as b, 1.5::decimal(4,2) as d"),
        "duckdb: changed types": duckdb.sql("select 1 as a, 2 as b, 1::uhugeint as u"),
        "duckdb: names twice": duckdb.sql("select 1 as a, 2 as b").project("a, b, a as A"),
    }
    return cases


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_a_plan_of_a_table_is_what_convert_does(to: str) -> None:
    pytest.importorskip(to.partition(".")[0])
    for (name, table), options in sampled(4, list(tables().items()), OPTIONS, first=TARGETS.index(to)):
        agree(table, to, **options)
        plan = zc.explain(table, to, **options)
        if plan.run is not None:
            expected = zc.convert(table, to, **options)
            assert type(plan.run()) is type(expected), (name, options)


@pytest.mark.parametrize("to", ["torch", "pyarrow"])
def test_the_plan_of_each_column_converts_that_column(to: str) -> None:
    pytest.importorskip(to)
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]})
    plan = zc.explain(frame, to)
    assert list(plan.leaves) == ["['a']", "['b']", "['c']"]
    values = [leaf.run().tolist() for leaf in plan.leaves.values() if leaf.run is not None]
    assert values in ([], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def test_low_alignment_decides() -> None:
    """A column that is aligned to 8 bytes is copied for JAX, and one that is aligned to 64 is not."""
    pytest.importorskip("jax")
    block = np.zeros(200, "f4")
    start = -block.ctypes.data % 64 // 4
    aligned, other = block[start : start + 16], block[start + 20 : start + 36]
    for pair in itertools.permutations([aligned, other]):
        columns = dict(zip("ab", pair, strict=True))
        plan = zc.explain(columns, "jax")
        assert (plan.aliased_bytes, plan.copied_bytes) == (64, 64)
