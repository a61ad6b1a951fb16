"""JAX's sparse arrays of ``jax.experimental.sparse``: BCOO and BCSR without batch and dense dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.jax import is_sparse_type
from zerocopy.errors import Fix, Reason
from zerocopy.sparse_ragged.hook import CompoundHook, Part
from zerocopy.sparse_ragged.indices import check_index_type, coordinates, index_parts
from zerocopy.sparse_ragged.sparse import SparseLayout, refuse_format

_PADDED = Reason(
    "it has padding: elements whose indices lie outside its shape, which JAX ignores",
    code="padded",
    fixes=[Fix("{x}.sum_duplicates()", "removes it"), Fix("{x}.todense()", "makes it dense")],
)
_NEGATIVE = Reason(
    "it has negative indices, which JAX counts from the end, and other frameworks do not",
    code="out-of-bounds",
    fixes=[Fix("jax.experimental.sparse.BCOO.fromdense({x}.todense())", "gives indices from the start")],
)
_INDEX_TYPES = (np.dtype("int32"), np.dtype("int64"))


class Compound(CompoundHook):
    """BCOO is COO with one array of coordinates of shape (count, ndim); BCSR is CSR."""

    layout_type = SparseLayout

    def read(self, obj: Any) -> tuple[SparseLayout, tuple[Any, ...]] | None:
        form = type(obj).__name__ if is_sparse_type(type(obj)) else ""
        if form not in ("BCOO", "BCSR") or obj.n_batch or obj.n_dense:
            return None
        flags = obj.indices_sorted or None, obj.unique_indices or None
        shape = tuple(obj.shape)
        indices = np.asarray(obj.indices)
        limit = shape if form == "BCOO" else shape[1]
        # Padding is valid in JAX (docs of BCOO.fromdense, `nse`) and out of bounds in all others.
        if len(indices) and (indices.max(axis=0) >= limit).any():
            raise obstacles.refuse_source(f"jax.experimental.sparse.{form}", _PADDED)
        if indices.min(initial=0) < 0:
            raise obstacles.refuse_source(f"jax.experimental.sparse.{form}", _NEGATIVE)
        if form == "BCOO":
            return SparseLayout("coo", shape, *flags, "by-point"), (obj.data, obj.indices)
        return SparseLayout("csr", shape, *flags), (obj.data, obj.indices, obj.indptr)

    def fit(self, layout: SparseLayout, parts: Sequence[Any]) -> tuple[SparseLayout, list[Part]]:
        import jax

        if layout.format not in ("coo", "csr"):
            raise refuse_format("JAX", layout, ("csr", "coo"))
        layout, parts = coordinates(layout, parts, "by-point")
        wide = ("int64",) if jax.config.jax_enable_x64 else ()
        return layout, index_parts("JAX", layout, parts, ("int32", *wide))

    def build(self, layout: SparseLayout, parts: Sequence[Any]) -> Any:
        from jax.experimental import sparse

        cls = sparse.BCOO if layout.format == "coo" else sparse.BCSR
        if layout.format not in ("coo", "csr") or layout.coords not in ("", "by-point"):
            raise ValueError("JAX has CSR, and COO with coordinates by point: fit() makes them")
        check_index_type(parts[1:], _INDEX_TYPES)
        flags = {"indices_sorted": bool(layout.is_sorted), "unique_indices": bool(layout.is_unique)}
        return cls(tuple(parts), shape=tuple(layout.shape), **flags)
