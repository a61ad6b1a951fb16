"""One file per protocol, with its structs, names, versions and flags.

No file names a framework except NumPy, which represents host memory.
"""
