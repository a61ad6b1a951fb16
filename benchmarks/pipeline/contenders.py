"""Contenders of the pipeline: the stages and the work are the same, the code at the borders differs.

A border has a chain of expressions, as a user would write them; ``x`` is the value of the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.contest import imported, modules_of

#: Source and target.
Border = tuple[str, str]
Hop = Callable[[Any], Any]


@dataclass(frozen=True)
class Method:
    """One contender with its code at all borders; label and role are those of its entries."""

    label: str
    role: str
    borders: Mapping[Border, tuple[str, ...]]

    def modules(self, border: Border) -> set[str]:
        """Return the modules that the code at a border uses."""
        return set(modules_of(*self.borders[border]).values())

    def hops(self, border: Border) -> tuple[Hop, ...]:
        """Compile the chain of a border, and import its modules."""
        names = imported(*self.borders[border])
        return tuple(eval(f"lambda x: {code}", names) for code in self.borders[border])


#: The same call for every target.
_OURS = {
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

#: Calls of documentation and tutorials: pandas in between, and constructors that copy. On a GPU each of them
#: goes through the host.
_DOCUMENTED = {
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

_COLUMNS = "pa.table({n: pa.array(np.ascontiguousarray(x[n])) for n in x.dtype.names})"
#: Expert code: at each border the call that is known to alias.
_BY_HAND = {
    ("Arrow", "polars"): ("pl.from_arrow(x, rechunk=False)",),
    ("records", "polars"): (_COLUMNS, "pl.from_arrow(x)"),
    ("polars", "torch"): ("{s.name: torch.from_dlpack(s.to_arrow()) for s in x}",),
    ("torch", "JAX"): ("{n: jnp.from_dlpack(t) for n, t in x.items()}",),
    ("JAX", "NumPy"): ("{n: np.asarray(a) for n, a in x.items()}",),
    ("NumPy", "Arrow"): ("pa.table(x)",),
    # On a GPU.
    ("Arrow", "cuDF"): ("cudf.DataFrame.from_arrow(x)",),
    ("records", "cuDF"): (_COLUMNS, "cudf.DataFrame.from_arrow(x)"),
    ("polars", "torch on CUDA"): ('{s.name: torch.from_dlpack(s.to_arrow()).to("cuda") for s in x}',),
    ("cuDF", "torch on CUDA"): ('{n: torch.as_tensor(x[n], device="cuda") for n in x.columns}',),
    ("torch on CUDA", "CuPy"): ("{n: cp.from_dlpack(t) for n, t in x.items()}",),
    ("torch on CUDA", "JAX"): ("{n: jnp.from_dlpack(t) for n, t in x.items()}",),
    ("CuPy", "NumPy"): ("{n: cp.asnumpy(a) for n, a in x.items()}",),
}

METHODS = (
    Method("zerocopy", "ours", _OURS),
    Method("documented calls", "idiom", _DOCUMENTED),
    Method("aliases by hand", "narrow", _BY_HAND),
)
