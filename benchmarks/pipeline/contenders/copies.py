"""Calls of documentation and tutorials: pandas in between, and constructors that copy.

On a GPU each of them goes through the host.
"""

BORDERS = {
    ("Arrow", "polars"): ("x.to_pandas()", "pl.from_pandas(x)"),
    ("records", "polars"): ("pd.DataFrame(x)", "pl.from_pandas(x)"),
    ("polars", "torch"): ("{n: torch.tensor(x[n].to_numpy()) for n in x.columns}",),
    ("torch", "JAX"): ("{n: jnp.array(t.numpy()) for n, t in x.items()}",),
    ("JAX", "NumPy"): ("{n: np.array(a) for n, a in x.items()}",),
    ("NumPy", "Arrow"): ("pd.DataFrame(x)", "pa.Table.from_pandas(x)"),
    # On a GPU.
    ("Arrow", "cuDF"): ("x.to_pandas()", "cudf.from_pandas(x)"),
    ("records", "cuDF"): ("pd.DataFrame(x)", "cudf.from_pandas(x)"),
    ("polars", "torch on CUDA"): ('{n: torch.tensor(x[n].to_numpy(), device="cuda") for n in x.columns}',),
    ("cuDF", "torch on CUDA"): (
        "x.to_pandas()",
        '{n: torch.tensor(x[n].to_numpy(), device="cuda") for n in x.columns}',
    ),
    ("torch on CUDA", "CuPy"): (
        "{n: t.cpu().numpy() for n, t in x.items()}",
        "{n: cp.array(a) for n, a in x.items()}",
    ),
    ("torch on CUDA", "JAX"): (
        "{n: t.cpu().numpy() for n, t in x.items()}",
        "{n: jnp.array(a) for n, a in x.items()}",
    ),
    ("CuPy", "NumPy"): ("{n: np.array(cp.asnumpy(a)) for n, a in x.items()}",),
}
