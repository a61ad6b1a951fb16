"""zerocopy at each border: the same call for every target."""

BORDERS = {
    ("Arrow", "polars"): ('zc.convert(x, to="polars")',),
    ("records", "polars"): ("zc.aos_to_soa(x)", 'zc.convert(x, to="polars")'),
    ("polars", "torch"): ('zc.convert(x, to="torch")',),
    ("torch", "JAX"): ('zc.convert(x, to="jax")',),
    ("JAX", "NumPy"): ('zc.convert(x, to="numpy")',),
    ("NumPy", "Arrow"): ('zc.convert(x, to="pyarrow")',),
    # On a GPU.
    ("Arrow", "cuDF"): ('zc.convert(x, to="cudf")',),
    ("records", "cuDF"): ("zc.aos_to_soa(x)", 'zc.convert(x, to="cudf")'),
    ("polars", "torch on CUDA"): ('zc.convert(x, to="torch", device="cuda")',),
    ("cuDF", "torch on CUDA"): ('zc.convert(x, to="torch")',),
    ("torch on CUDA", "CuPy"): ('zc.convert(x, to="cupy")',),
    ("torch on CUDA", "JAX"): ('zc.convert(x, to="jax")',),
    ("CuPy", "NumPy"): ('zc.convert(x, to="numpy")',),
}
