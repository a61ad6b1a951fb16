"""Each pair in which one side is a table framework, compared with the fastest correct code by hand."""

from benchmarks.grid import cells
from benchmarks.suite import Suite

SUITE = Suite(
    "grid",
    "each pair in which one side is a table framework, compared with the fastest correct code by hand",
    cells.SECTIONS,
    frameworks=(*cells.TABLES, *cells.ARRAYS),
    distributions=(*("duckdb", "nanoarrow", "pandas", "polars", "pyarrow"), *cells.ARRAYS),
)
