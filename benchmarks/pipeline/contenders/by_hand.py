"""Expert code: at each border the call that is known to alias."""

BORDERS = {
    ("Arrow", "polars"): ("pl.from_arrow(x, rechunk=False)",),
    ("records", "polars"): (
        "pa.table({n: pa.array(np.ascontiguousarray(x[n])) for n in x.dtype.names})",
        "pl.from_arrow(x)",
    ),
    ("polars", "torch"): ("{s.name: torch.from_dlpack(s.to_arrow()) for s in x}",),
    ("torch", "JAX"): ("{n: jnp.from_dlpack(t) for n, t in x.items()}",),
    ("JAX", "NumPy"): ("{n: np.asarray(a) for n, a in x.items()}",),
    ("NumPy", "Arrow"): ("pa.table(x)",),
    # On a GPU.
    ("Arrow", "cuDF"): ("cudf.DataFrame.from_arrow(x)",),
    ("records", "cuDF"): (
        "pa.table({n: pa.array(np.ascontiguousarray(x[n])) for n in x.dtype.names})",
        "cudf.DataFrame.from_arrow(x)",
    ),
    ("polars", "torch on CUDA"): ('{s.name: torch.from_dlpack(s.to_arrow()).to("cuda") for s in x}',),
    ("cuDF", "torch on CUDA"): ('{n: torch.as_tensor(x[n], device="cuda") for n in x.columns}',),
    ("torch on CUDA", "CuPy"): ("{n: cp.from_dlpack(t) for n, t in x.items()}",),
    ("torch on CUDA", "JAX"): ("{n: jnp.from_dlpack(t) for n, t in x.items()}",),
    ("CuPy", "NumPy"): ("{n: cp.asnumpy(a) for n, a in x.items()}",),
}
