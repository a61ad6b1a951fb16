"""Programs for the tests of the audit: code with source text, the calls, and arguments of each framework."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

import zerocopy as zc
from zerocopy.audit import Audit, audit
from zerocopy.protocols.array_interface import aligned_copy

_NUMBERS: Iterator[int] = count()
MODULES = {
    "np": "numpy",
    "torch": "torch",
    "jax": "jax",
    "jnp": "jax.numpy",
    "tf": "tensorflow",
    "pd": "pandas",
    "pl": "polars",
    "pa": "pyarrow",
}


def modules(code: str) -> dict[str, Any]:
    """Return the modules that code names by their usual short names."""
    return {short: importlib.import_module(name) for short, name in MODULES.items() if f"{short}." in code}


def run_code(code: str, names: dict[str, Any]) -> str:
    """Run code whose source text is known, and return its file name."""
    name = f"<program {next(_NUMBERS)}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    exec(compile(code, name, "exec"), names)
    return name


def audited(code: str, names: dict[str, Any], min_bytes: int = 1024) -> Audit:
    """Run code under an audit."""
    with audit(min_bytes) as report:
        run_code(code, names)
    return report


def values(size: int = 4096) -> Any:
    """Return float32 values that every framework aliases."""
    return aligned_copy(np.arange(size, dtype="f4"))


def argument(kind: str) -> Any:
    """Return 16 KiB as an object of a framework, or of a form such as ``"polars.DataFrame"``."""
    if kind == "matrix":
        return values().reshape(64, 64)
    if kind == "dict":
        return {"a": values(2048), "b": values(2048)}
    if kind in ("pandas.DataFrame", "polars.DataFrame", "pyarrow.Table"):
        return zc.convert({"a": values()}, kind)
    return values() if kind == "numpy" else zc.convert(values(), kind)


#: Calls that copy where ``convert`` aliases: the code, the kind of ``x``, and the expected fix.
AVOIDABLE = [
    ("torch.tensor(x)", "numpy", 'zc.convert(x, to="torch")'),
    ("torch.tensor(x)", "jax", 'zc.convert(x, to="torch")'),
    ("torch.tensor(data=x)", "tensorflow", 'zc.convert(x, to="torch")'),
    ("torch.tensor(x)", "pyarrow", 'zc.convert(x, to="torch")'),
    ("torch.tensor(x)", "polars.Series", 'zc.convert(x, to="torch")'),
    ("torch.as_tensor(x)", "pandas.Series", 'zc.convert(x, to="torch")'),
    ("torch.asarray(x)", "polars.Series", 'zc.convert(x, to="torch")'),
    ("np.array(x)", "torch", 'zc.convert(x, to="numpy")'),
    ("np.array(x)", "jax", 'zc.convert(x, to="numpy")'),
    ("np.array(x)", "tensorflow", 'zc.convert(x, to="numpy")'),
    ("np.array(x)", "pyarrow", 'zc.convert(x, to="numpy")'),
    ("np.array(x)", "polars.Series", 'zc.convert(x, to="numpy")'),
    ("np.asarray(x)", "pyarrow.Table", 'zc.convert(x, to="numpy", layout="matrix")'),
    ("np.array(x)", "pandas.DataFrame", 'zc.convert(x, to="numpy", layout="matrix")'),
    ("jnp.array(x)", "numpy", 'zc.convert(x, to="jax")'),
    ("jnp.array(object=x)", "torch", 'zc.convert(x, to="jax")'),
    ("jnp.asarray(x)", "numpy", 'zc.convert(x, to="jax")'),
    ("jnp.asarray(x)", "torch", 'zc.convert(x, to="jax")'),
    ("tf.constant(x)", "numpy", 'zc.convert(x, to="tensorflow")'),
    ("tf.convert_to_tensor(x)", "matrix", 'zc.convert(x, to="tensorflow")'),
    ("x.numpy()", "tensorflow", 'zc.convert(x, to="numpy")'),
    ("pd.Series(x)", "numpy", 'zc.convert(x, to="pandas")'),
    ("pd.DataFrame(data=x)", "dict", 'zc.convert(x, to="pandas")'),
    ("x.to_torch()", "polars.Series", 'zc.convert(x, to="torch")'),
    ("x.to_torch()", "polars.DataFrame", 'zc.convert(x, to="torch", layout="matrix")'),
    ('x.to_torch("dict")', "polars.DataFrame", 'zc.convert(x, to="torch")'),
    ("x.to_jax()", "polars.Series", 'zc.convert(x, to="jax")'),
    ("x.to_jax()", "polars.DataFrame", 'zc.convert(x, to="jax", layout="matrix")'),
]

#: Calls that alias, or copies that ``convert`` does not avoid: the code, the kind of ``x``, the audit's kind.
NOT_AVOIDABLE = [
    ("torch.as_tensor(x)", "numpy", "alias"),
    ("torch.asarray(x)", "numpy", "alias"),
    ("torch.tensor(x, dtype=torch.float64)", "numpy", "needed"),
    ("torch.tensor(x, requires_grad=True)", "numpy", "needed"),
    ("torch.tensor(x[::-1])", "numpy", ""),  # torch refuses it: no result
    ("np.asarray(x)", "torch", "alias"),
    ("np.asarray(x)", "jax", "alias"),
    ("np.asanyarray(x)", "polars.Series", "alias"),
    ("np.array(x, copy=True)", "torch", "needed"),
    ("np.array(x, dtype='f8')", "torch", "needed"),
    ("np.array(x, ndmin=2)", "torch", "needed"),
    ("jnp.asarray(x[1:])", "numpy", "needed"),  # not aligned
    ("jax.device_put(x)", "numpy", "alias"),
    ("tf.constant(x[1:])", "numpy", "needed"),
    ("tf.constant(x, dtype='float64')", "numpy", "needed"),
    ("pd.DataFrame(x, index=range(4096))", "polars.DataFrame", "needed"),
    ("pd.DataFrame(x)", "matrix", "needed"),  # other names of the columns
    ("pd.Series(x, index=range(1, 4097))", "numpy", "needed"),
    ("pd.Series(x, name='a')", "numpy", "needed"),
    ("pd.Series(x, copy=False)", "numpy", "alias"),
    ("x.to_numpy()", "pandas.DataFrame", "alias"),
    ("x.to_numpy()", "pandas.Series", "alias"),
    ("x.values", "pandas.DataFrame", "alias"),
    ("x.values", "pandas.Series", "alias"),
    ("x.to_numpy()", "polars.Series", "alias"),
    ("x.to_numpy()", "polars.DataFrame", "alias"),
    ("x.to_numpy(writable=True)", "polars.Series", "needed"),
    ("x.to_arrow()", "polars.Series", "alias"),
    ("x.to_arrow()", "polars.DataFrame", "alias"),
    ("x.to_pandas()", "polars.Series", "alias"),
    ("x.to_pandas()", "polars.DataFrame", "needed"),
    ("x.to_pandas()", "pyarrow.Table", "needed"),
    ("pl.Series(x)", "numpy", "alias"),
    ("pl.Series('a', x)", "numpy", "alias"),
    ("pl.DataFrame(x)", "dict", "alias"),
    ("pl.from_pandas(x)", "pandas.DataFrame", "alias"),
    ("pl.from_numpy(x)", "matrix", "needed"),
    ("pl.from_arrow(x)", "pyarrow.Table", "alias"),
    ("pl.from_torch(x)", "torch", "alias"),
    ("pa.array(x)", "numpy", "alias"),
    ("pa.array(x)", "polars.Series", "needed"),
    ("pa.table(x)", "dict", "alias"),
    ("pa.table(x)", "polars.DataFrame", "alias"),
]
