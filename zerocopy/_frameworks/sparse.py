"""PyData's ``sparse``: COO and GCXS arrays whose missing elements are 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.dtype import NATIVE_NAMES
from zerocopy.errors import Fix, Reason
from zerocopy.framework import Framework
from zerocopy.source import Source
from zerocopy.sparse_ragged.hook import CompoundHook, Part
from zerocopy.sparse_ragged.indices import canonical, check_index_type, coordinates, index_parts
from zerocopy.sparse_ragged.sparse import SparseLayout, refuse_format
from zerocopy.strided_view import StridedView

#: GCXS runs functions that Numba compiles, which lacks float16 and the types of ml_dtypes.
_COMPILED = NATIVE_NAMES - {"float16"}
_DENSE = Fix("{x}.todense()", "makes it dense")
_INDEX_TYPES = (np.dtype("int64"), np.dtype("int32"))


class PyDataSparse(Framework):
    """``sparse.COO`` and ``sparse.GCXS``; DOK is a dictionary and has no buffers."""

    name = "sparse"
    types = ("COO", "GCXS")
    kind = "compound"
    root_modules = ("sparse",)
    distribution = "sparse"
    min_version = "0.15"
    actions: Mapping[str, Fix] = {
        "cast": Fix("{x}.astype('{type}')"),
        "to-csr": Fix("sparse.GCXS({x}, compressed_axes=(0,))"),
        "to-coo": Fix("{x}.tocoo()"),
    }

    def owns(self, cls: type) -> bool:
        return any(base.__name__ == "SparseArray" for base in cls.__mro__)

    def source(self, obj: Any) -> Source:
        form = type(obj).__name__
        reason = Reason("it is sparse", code="sparse", fixes=[_DENSE])
        if form == "DOK":
            fixes = [Fix("{x}.to_coo()", "makes it COO", {"layout": None}), _DENSE]
            reason = Reason("it is DOK, whose elements are in a dict", code="sparse", fixes=fixes)
        raise obstacles.refuse_source(f"sparse.{form}", reason)

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        name = "the arrays of PyData's sparse"
        raise obstacles.refuse_dense(name, "sparse.COO.from_numpy", view, NATIVE_NAMES)


class Compound(CompoundHook):
    """Indices are sorted and unique in both formats: its operations rely on it."""

    part_target = "numpy"
    layout_type = SparseLayout

    def read(self, obj: Any) -> tuple[SparseLayout, tuple[Any, ...]] | None:
        form = type(obj).__name__
        if form not in ("COO", "GCXS"):
            return None
        # Dates and text have no 0; the engine refuses their values.
        if obj.dtype.kind not in "mMSUTO" and (obj.fill_value != 0 or obj.fill_value != obj.fill_value):
            why = f"its missing elements are {obj.fill_value}, and those of other frameworks are 0"
            raise obstacles.refuse_source(f"sparse.{form}", Reason(why, code="fill-value", fixes=[_DENSE]))
        shape = tuple(obj.shape)
        if form == "COO":
            return SparseLayout("coo", shape, True, True, "by-dimension"), (obj.data, obj.coords)
        if len(shape) != 2:
            return None
        compressed = "csr" if obj.compressed_axes == (0,) else "csc"
        return SparseLayout(compressed, shape, True, True), (obj.data, obj.indices, obj.indptr)

    def value_types(self, layout: SparseLayout) -> frozenset[str] | None:
        return None if layout.format == "coo" else _COMPILED

    def fit(self, layout: SparseLayout, parts: Sequence[Any]) -> tuple[SparseLayout, list[Part]]:
        if layout.format == "bsr":
            raise refuse_format("sparse", layout, ("csr", "csc", "coo"))
        layout, parts = canonical("sparse", layout, parts)
        layout, parts = coordinates(layout, parts, "by-dimension")
        return layout, index_parts("sparse", layout, parts, ("int64", "int32"))

    def build(self, layout: SparseLayout, parts: Sequence[Any]) -> Any:
        import sparse

        if not layout.is_canonical or layout.coords not in ("", "by-dimension") or layout.format == "bsr":
            raise ValueError("sparse needs sorted and unique indices: fit() sorts them")
        check_index_type(parts[1:], _INDEX_TYPES)
        if layout.format == "coo":
            return sparse.COO(parts[1], parts[0], shape=layout.shape, has_duplicates=False, sorted=True)
        # Older versions construct the array, and fail when it is used.
        if parts[0].dtype.name not in _COMPILED:
            raise ValueError(f"GCXS lacks functions for {parts[0].dtype}")
        axis = 0 if layout.format == "csr" else 1
        return sparse.GCXS(tuple(parts), shape=layout.shape, compressed_axes=(axis,))


FRAMEWORK = PyDataSparse()
