"""CuPy's sparse matrices of ``cupyx.scipy.sparse``: CSR, CSC and COO with int32 indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy._frameworks.cupy import is_sparse_type
from zerocopy.sparse_ragged.hook import CompoundHook, Part
from zerocopy.sparse_ragged.indices import index_parts
from zerocopy.sparse_ragged.sparse import SparseLayout, refuse_format

_FORMATS = ("csr", "csc", "coo")


class Compound(CompoundHook):
    """The constructors of CuPy keep arrays of int32 indices, and cast others without a check."""

    layout_type = SparseLayout

    def read(self, obj: Any) -> tuple[SparseLayout, tuple[Any, ...]] | None:
        if not is_sparse_type(type(obj)) or obj.format not in _FORMATS:
            return None
        canonical = True if obj.has_canonical_format else None
        if obj.format == "coo":
            layout = SparseLayout("coo", tuple(obj.shape), canonical, canonical, "separate")
            return layout, (obj.data, obj.row, obj.col)
        layout = SparseLayout(obj.format, tuple(obj.shape), canonical, canonical)
        return layout, (obj.data, obj.indices, obj.indptr)

    def fit(self, layout: SparseLayout, parts: Sequence[Any]) -> tuple[SparseLayout, list[Part]]:
        if layout.format not in _FORMATS or len(layout.shape) != 2:
            raise refuse_format("CuPy", layout, _FORMATS)
        if layout.coords in ("by-dimension", "by-point"):
            first, second = parts[1] if layout.coords == "by-dimension" else parts[1].T
            layout, parts = layout._replace(coords="separate"), (parts[0], first, second)
        return layout, index_parts("CuPy", layout, parts, ("int32",))

    def build(self, layout: SparseLayout, parts: Sequence[Any]) -> Any:
        from cupyx.scipy import sparse

        if layout.format not in _FORMATS or any(part.dtype != "int32" for part in parts[1:]):
            raise ValueError("CuPy has CSR, CSC and COO with int32 indices: fit() casts")
        cls = getattr(sparse, f"{layout.format}_matrix")
        if layout.format == "coo":
            matrix = cls((parts[0], tuple(parts[1:])), shape=layout.shape)
            matrix.has_canonical_format = layout.is_canonical  # CuPy assumes duplicates, and sorts for them
            return matrix
        return cls(tuple(parts), shape=layout.shape)
