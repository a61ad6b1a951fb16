"""Columns of vectors, and images, to one tensor."""

from benchmarks.suite import Suite
from benchmarks.vectors import images, lists

SUITE = Suite(
    "vectors",
    "columns of vectors, images and frames of video to one tensor",
    (*lists.SECTIONS, *images.SECTIONS),
    frameworks=("numpy", "torch", "pyarrow", "polars", "pandas"),
    distributions=(
        *("numpy", "torch", "pyarrow", "polars", "pandas", "duckdb", "datasets"),
        *("pillow", "av"),
    ),
)
