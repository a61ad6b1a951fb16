"""What conversions cost, beside the calls that people write by hand."""

import zerocopy as zc
from benchmarks.conversion import containers, dtypes, gpu, grid, inputs, pairs, process, rival
from benchmarks.conversion.subjects import SUBJECTS
from benchmarks.suite import Suite

SUITE = Suite(
    "conversion",
    "what conversions cost, beside the calls that people write by hand",
    # By worth: a run that is short of time does the first of them.
    (
        grid.SECTION,
        pairs.SECTION,
        *gpu.SECTIONS,
        inputs.SIZES_SECTION,
        containers.SECTION,
        dtypes.SECTION,
        *process.SECTIONS,
        inputs.CALLS_SECTION,
        rival.SECTION,
    ),
    frameworks=tuple(dict.fromkeys([*SUBJECTS, *zc.frameworks()])),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "pyarrow", "ml-dtypes"),
        *("pandas", "polars", "duckdb", "nanoarrow", "cupy-cuda12x", "cupy-cuda13x", "numba", "numba-cuda"),
        *("apache-tvm-ffi", "array-api-compat", "scikit-learn", "optree", "pydlpack"),
    ),
)
