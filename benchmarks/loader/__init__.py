"""Batches for training from files: `loader`, compared with reading alone by pyarrow."""

from benchmarks.loader import copies, epochs, memory, real, targets
from benchmarks.suite import Suite

SUITE = Suite(
    "loader",
    "batches from files: zc.loader and others as multiples of pyarrow that only reads",
    (
        *epochs.SECTIONS,
        *copies.SECTIONS,
        *memory.SECTIONS,
        *targets.SECTIONS,
        *real.SECTIONS,
    ),
    frameworks=("torch", "jax", "tensorflow", "numpy", "polars"),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "pyarrow", "pandas", "polars"),
        "datasets",
    ),
)
