"""Arrays and tables in memory that other processes of one machine open without a copy.

A segment is a Linux memfd, which has no name: nothing is left behind when processes die. The owner
copies an object into a segment once, or allocates it there. A handle locates it in a few plain fields.
A reader opens the segment through ``/proc/PID/fd``, takes a lease, and maps it privately.
"""
