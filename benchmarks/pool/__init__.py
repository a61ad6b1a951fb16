"""Gains and costs of one memory pool for all frameworks."""

from benchmarks.pool import device, host
from benchmarks.suite import Suite

SUITE = Suite(
    "pool",
    "gains and costs of one memory pool for all frameworks",
    (*host.SECTIONS, *device.SECTIONS),
    frameworks=("numpy", "torch", "jax", "pandas", "pyarrow", "cupy", "numba", "rmm"),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "pandas", "pyarrow"),
        *("cupy-cuda12x", "cupy-cuda13x", "numba", "numba-cuda", "rmm-cu12", "rmm-cu13"),
    ),
)
