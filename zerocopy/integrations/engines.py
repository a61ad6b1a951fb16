"""The engines that this package connects, for ``zerocopy doctor``."""

#: Each engine: its name, its module, its distribution, and the oldest version that is supported, if any.
ENGINES = (
    ("dask", "distributed", "distributed", "2026.1"),
    ("ray", "ray", "ray[data]", "2.50"),
    ("flight", "pyarrow", "pyarrow", "24"),
    ("torch DataLoader", "torch", "torch", ""),
)
