"""What one memory pool under every framework gains, and what it costs."""

from benchmarks.pool import aligned, recycle
from benchmarks.suite import Suite

SUITE = Suite(
    "pool",
    "what one memory pool under every framework gains, and what it costs",
    (*aligned.SECTIONS, *recycle.SECTIONS),
    frameworks=("numpy", "torch", "jax", "pandas", "pyarrow"),
    distributions=("numpy", "torch", "jax", "jaxlib", "pandas", "pyarrow"),
)
