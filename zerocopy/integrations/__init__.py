"""Functions that make Dask, Ray, Arrow Flight and multiprocessing send arrays and tables by zerocopy.

Importing a package of an engine imports neither the engine nor a framework.
"""
