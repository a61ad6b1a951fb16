"""What conversions cost, beside the calls that people write by hand."""

from benchmarks.conversion import inputs, pairs, process
from benchmarks.conversion.subjects import SUBJECTS
from benchmarks.suite import Suite

SUITE = Suite(
    "conversion",
    "what conversions cost, beside the calls that people write by hand",
    (pairs.SECTION, *inputs.SECTIONS, *process.SECTIONS),
    frameworks=tuple(SUBJECTS),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "pyarrow", "ml-dtypes"),
        *("apache-tvm-ffi", "array-api-compat", "scikit-learn"),
    ),
)
