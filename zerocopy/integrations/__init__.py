"""Functions that make Dask, Ray, Arrow Flight and multiprocessing send arrays and tables by zerocopy.

Importing a package of an engine imports neither the engine nor a framework.
"""

#: Each engine, for ``zerocopy doctor``: its name, its module, its distribution, and the oldest version that
#: is supported, if any.
ENGINES = (
    ("dask", "distributed", "distributed", "2026.1"),
    ("ray", "ray", "ray[data]", "2.50"),
    ("flight", "pyarrow", "pyarrow", "24"),
    ("torch DataLoader", "torch", "torch", ""),
)


def install_line(name: str) -> str:
    """Return the command that installs an engine."""
    distribution, oldest = next(each[2:] for each in ENGINES if each[0] == name)
    return f"pip install '{distribution}>={oldest}'" if oldest else f"pip install {distribution}"
