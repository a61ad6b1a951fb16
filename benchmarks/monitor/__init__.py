"""The time that recording adds to a call of ``convert``, with and without its line of code."""

from benchmarks.monitor import overhead
from benchmarks.suite import Suite

SUITE = Suite(
    "monitor",
    "what recording adds to a call of convert",
    overhead.SECTIONS,
    frameworks=("numpy", "torch", "jax", "pyarrow", "pandas"),
    distributions=("numpy", "torch", "jax", "jaxlib", "pyarrow", "pandas"),
)
