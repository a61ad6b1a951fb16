"""Arrays in CUDA memory that other processes of one machine open without a copy.

The driver gives a handle of a whole allocation of ``cudaMalloc``. Freeing an allocation that a reader has
open is undefined, so each handle has a ticket: a block of host memory that every reader leases, as it leases
host arrays. The owner keeps the array until no reader has a lease, also after readers have crashed.
"""
