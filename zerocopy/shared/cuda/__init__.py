"""Arrays in CUDA memory that other processes of one machine open without a copy.

The driver gives a handle of a whole allocation of ``cudaMalloc``. Freeing an allocation that a reader has
open is undefined. Each handle therefore locates a lease block: a block of host memory that every reader
leases, as it leases host arrays. The owner's export keeps the array until no reader has a lease, also after
readers have crashed.
"""
