"""What a bridge costs: one step, forward and backward, compared with a wrapper by hand."""

from benchmarks.bridge import steps
from benchmarks.suite import Suite

SUITE = Suite(
    "bridge",
    "one step through a function of another framework, compared with a wrapper by hand",
    steps.SECTIONS,
    frameworks=("torch", "jax"),
    distributions=("torch", "jax", "jaxlib"),
)
