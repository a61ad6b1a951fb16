"""Files of weights: ``load``, and the loaders of the formats' own libraries."""

from benchmarks.suite import Suite
from benchmarks.weights import loading

SUITE = Suite(
    "weights",
    "the tensors of a file of weights",
    loading.SECTIONS,
    frameworks=("numpy", "torch", "jax"),
    distributions=("numpy", "torch", "jax", "jaxlib", "safetensors"),
)
