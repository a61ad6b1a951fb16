"""A contender: at each border a chain of expressions, as a user would write them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

#: From where, to where.
Border = tuple[str, str]
#: Each expression takes ``x``, what the one before it gave.
Chain = tuple[str, ...]
Hop = Callable[[Any], Any]

#: The names that users write, and the modules that they mean.
MODULES = {
    "zc": "zerocopy",
    "np": "numpy",
    "pa": "pyarrow",
    "pl": "polars",
    "pd": "pandas",
    "torch": "torch",
    "jnp": "jax.numpy",
    "cp": "cupy",
    "cudf": "cudf",
}


@dataclass(frozen=True)
class Method:
    """One method over all borders.

    Attributes
    ----------
    label, role : str
        As in :class:`benchmarks.suite.Entry`.
    borders : dict of (str, str) to tuple of str
    """

    label: str
    role: str
    borders: Mapping[Border, Chain]

    def modules(self, border: Border) -> dict[str, str]:
        """Return the modules that the code at a border uses, by the names that it uses for them."""
        trees = [ast.parse(code) for code in self.borders[border]]
        used = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return {name: module for name, module in MODULES.items() if name in used}

    def hops(self, border: Border) -> tuple[Hop, ...]:
        """Compile the chain of a border; its modules are imported."""
        names = {name: import_module(module) for name, module in self.modules(border).items()}
        return tuple(eval(f"lambda x: {code}", names) for code in self.borders[border])
