"""The protocols: one file each, with its structs, names, versions and flags.

Nothing here knows a framework, save NumPy, which is the ground for host memory.
"""
