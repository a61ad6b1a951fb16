"""A contender: a chain of expressions for each border, as a user would write them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

#: Source and target.
Border = tuple[str, str]
#: In each expression, ``x`` is the value of the one before it.
Chain = tuple[str, ...]
Hop = Callable[[Any], Any]

#: Modules by the names that user code has for them.
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
    """One contender with its code at all borders.

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
        """Return the modules that the code at a border uses, by their names in the code."""
        trees = [ast.parse(code) for code in self.borders[border]]
        used = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
        return {name: module for name, module in MODULES.items() if name in used}

    def hops(self, border: Border) -> tuple[Hop, ...]:
        """Compile the chain of a border, and import its modules."""
        names = {name: import_module(module) for name, module in self.modules(border).items()}
        return tuple(eval(f"lambda x: {code}", names) for code in self.borders[border])
