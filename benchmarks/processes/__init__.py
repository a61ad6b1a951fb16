"""Arrays and tables between processes: pickle, shared memory, and engines."""

from benchmarks.processes import engines, pickles, scale, sharing
from benchmarks.suite import Suite

SUITE = Suite(
    "processes",
    "arrays and tables between processes: pickle, shared memory, Dask, Ray, Flight, multiprocessing",
    (*pickles.SECTIONS, *sharing.SECTIONS, *engines.SECTIONS, *scale.SECTIONS),
    frameworks=("numpy", "torch", "jax", "tensorflow", "pyarrow", "pandas", "polars"),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "pyarrow", "pandas", "polars"),
        *("distributed", "ray"),
    ),
)
