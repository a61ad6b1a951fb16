"""AoS <-> SoA on CUDA devices, in Numba.

The public functions are in :mod:`zerocopy.layout.cuda.columns`, which is imported where device
memory is met: it imports Numba. The plan, in :mod:`zerocopy.layout.cuda.plan`, does not.
"""
