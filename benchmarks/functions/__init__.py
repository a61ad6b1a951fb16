"""What ``accepts`` costs: a call of a decorated function, and the same conversions by hand."""

from benchmarks.functions import overhead
from benchmarks.suite import Suite

SUITE = Suite(
    "functions",
    "what accepts adds to the conversions of a call",
    overhead.SECTIONS,
    frameworks=("numpy", "torch", "jax", "pandas"),
    distributions=("numpy", "torch", "jax", "jaxlib", "pandas"),
)
