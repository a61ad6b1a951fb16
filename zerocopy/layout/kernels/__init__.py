"""The CPU kernels, in Numba; :mod:`zerocopy.layout.kernel_cache` compiles and loads them."""
