"""What it costs to turn records into columns and back, beside copies and what people call today."""

from benchmarks.layout import fields, gpu, moves, sizes, start
from benchmarks.suite import Suite

SUITE = Suite(
    "layout",
    "what it costs to turn records into columns and back, beside copies and what people call today",
    (*moves.SECTIONS, *fields.SECTIONS, *sizes.SECTIONS, *start.SECTIONS, *gpu.SECTIONS),
    frameworks=("numba", "pandas", "polars", "pyarrow"),
    distributions=("numpy", "numba", "numba-cuda", "pandas", "polars", "pyarrow"),
)
