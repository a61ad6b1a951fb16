"""AoS <-> SoA on CUDA devices, in Numba.

The functions are in :mod:`zerocopy.layout.cuda.transposition`, which imports Numba and is therefore
imported only for device memory. :mod:`zerocopy.layout.cuda.tile_plan` does not import Numba.
"""
