"""Tables in known memory, shared by the tests of matrices and records."""

from __future__ import annotations

from helpers.frameworks import HOST
from zerocopy import registry

TABLES = [name for name in ("pyarrow", "pandas", "polars") if registry.frameworks()[name].installed]


TENSORS = [name for name in HOST if name != "pyarrow"]


POINTS = [("x", "f4"), ("y", "f4"), ("z", "f4"), ("w", "f4")]


#: Tensor frameworks that alias a strided field.
STRIDED = [name for name in ("numpy", "torch") if name in HOST]
