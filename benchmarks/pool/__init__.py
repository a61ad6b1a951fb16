"""What one memory pool under every framework gains, and what it costs."""

from benchmarks.pool import aligned, device, recycle
from benchmarks.suite import Suite

SUITE = Suite(
    "pool",
    "what one memory pool under every framework gains, and what it costs",
    (*aligned.SECTIONS, *recycle.SECTIONS, *device.SECTIONS),
    frameworks=("numpy", "torch", "jax", "pandas", "pyarrow", "cupy", "numba", "rmm"),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "pandas", "pyarrow"),
        *("cupy-cuda12x", "cupy-cuda13x", "numba", "numba-cuda", "rmm-cu12", "rmm-cu13"),
    ),
)
