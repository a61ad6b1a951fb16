"""The cost of conversions, compared with calls written by hand."""

import zerocopy as zc
from benchmarks.conversion import containers, core, dtypes, gpu, grid, inputs, pairs, process, rival
from benchmarks.conversion.subjects import SUBJECTS
from benchmarks.suite import Suite

SUITE = Suite(
    "conversion",
    "the cost of conversions, compared with calls written by hand",
    # By importance: a run that is short of time runs the first of them.
    (
        grid.SECTION,
        pairs.SECTION,
        core.SECTION,
        *gpu.SECTIONS,
        inputs.SIZES_SECTION,
        containers.SECTION,
        dtypes.SECTION,
        *process.SECTIONS,
        inputs.CALLS_SECTION,
        rival.SECTION,
    ),
    frameworks=tuple(
        dict.fromkeys([*SUBJECTS, *(n for n, info in zc.frameworks().items() if info.kind != "compound")])
    ),
    distributions=(
        *("numpy", "torch", "jax", "jaxlib", "tensorflow", "tensorflow-cpu", "pyarrow", "ml-dtypes"),
        *("pandas", "polars", "duckdb", "nanoarrow", "cupy-cuda12x", "cupy-cuda13x", "numba", "numba-cuda"),
        *("apache-tvm-ffi", "array-api-compat", "scikit-learn", "optree", "pydlpack"),
    ),
)
