"""Sparse arrays between frameworks: ``convert``, and the same constructors by hand."""

from benchmarks.sparse import conversions
from benchmarks.suite import Suite

SUITE = Suite(
    "sparse",
    "sparse arrays from one framework to another",
    conversions.SECTIONS,
    frameworks=("scipy", "torch", "jax", "sparse"),
    distributions=("numpy", "scipy", "torch", "jax", "jaxlib", "sparse"),
)
