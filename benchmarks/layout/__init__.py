"""Records to columns and back, compared with copies and other methods."""

from benchmarks.layout import fields, gpu, moves, start
from benchmarks.suite import Suite

SUITE = Suite(
    "layout",
    "records to columns and back, compared with copies and other methods",
    (*moves.SECTIONS, *fields.SECTIONS, *start.SECTIONS, *gpu.SECTIONS),
    frameworks=("numba", "pandas", "polars", "pyarrow"),
    distributions=("numpy", "numba", "numba-cuda", "pandas", "polars", "pyarrow"),
)
