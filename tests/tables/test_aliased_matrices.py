"""Tables whose columns are in one allocation become a matrix by a route, with the result of the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.oracle import check
from helpers.table_cases import pa

import zerocopy as zc
from zerocopy import registry


def message(table: Any) -> Any:
    """Return a table over one IPC message, whose columns are in one allocation."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def numbers(kind: str = "f8", width: int = 3, rows: int = 5) -> Any:
    return pa.table({f"c{i}": np.arange(i, i + rows).astype(kind) for i in range(width)})


def renamed(table: Any) -> Any:
    return table.rename_columns(["a"] * table.num_columns)


TABLES: dict[str, Callable[[], Any]] = {
    "numbers": lambda: message(numbers()),
    "integers": lambda: message(numbers("i2")),
    "halves": lambda: message(numbers("f2")),
    "one column": lambda: message(numbers(width=1)),
    "one row": lambda: message(numbers(rows=1)),
    "no rows": lambda: message(numbers(rows=0)),
    "a slice": lambda: message(numbers(rows=64)).slice(3, 7),
    "separate memory": numbers,
    "two types": lambda: message(numbers().append_column("i", pa.array(np.arange(5)))),
    "nulls": lambda: message(numbers().set_column(1, "c1", pa.array([1.0, None, 3.0, 4.0, 5.0]))),
    "dates": lambda: message(pa.table({n: pa.array([1, 2], pa.timestamp("us")) for n in "ab"})),
    "booleans": lambda: message(pa.table({n: pa.array([True, False]) for n in "ab"})),
    "text": lambda: message(pa.table({n: pa.array(["x", "y"]) for n in "ab"})),
    "names": lambda: renamed(message(numbers())),
    "chunks": lambda: pa.concat_tables([message(numbers()), message(numbers())]),
    "a batch": lambda: message(numbers()).to_batches()[0],
    "no columns": lambda: numbers().select([]),
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"order": "F"},
    {"order": "C"},
    {"copy": False},
    {"copy": True},
    {"writable": True},
    {"dtype": "float32"},
    {"nulls": 0},
]


@pytest.mark.filterwarnings("ignore")  # JAX, which has 32 bits
@pytest.mark.parametrize("to", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", TABLES)
def test_the_route_gives_the_result_of_the_plan(name: str, options: dict[str, Any], to: str) -> None:
    pytest.importorskip(to)
    x = TABLES[name]()
    for warm in (x, message(numbers())):
        check(x, warm, to, {"layout": "matrix", **options}, "convert")


def test_a_matrix_in_one_allocation_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of 300 columns took 4 ms."""
    table = message(numbers())
    expected = zc.convert(table, "numpy", layout="matrix")
    framework = registry.by_name("pyarrow")
    monkeypatch.setattr(type(framework), "table", lambda *args: pytest.fail("a plan was made"))
    matrix = zc.convert(table, "numpy", layout="matrix")
    assert matrix.tolist() == expected.tolist()
    assert not matrix.flags.writeable
    first = table.column(0).chunk(0).buffers()[1].address
    assert matrix.__array_interface__["data"][0] == first
    del table
    assert matrix.tolist() == expected.tolist()
