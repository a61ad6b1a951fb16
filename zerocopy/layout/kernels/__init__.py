"""The CPU's kernels, in Numba: see :mod:`zerocopy.layout.machine_code` for how they are run."""
