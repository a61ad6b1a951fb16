"""SciPy's sparse arrays and matrices: ``scipy.sparse.csr_array`` and the other formats with buffers."""

from __future__ import annotations

import copy as copying
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.dtype import NATIVE_NAMES
from zerocopy.errors import Fix, Reason
from zerocopy.framework import Framework
from zerocopy.source import Source
from zerocopy.sparse_ragged.hook import CompoundHook, Part
from zerocopy.sparse_ragged.indices import check_index_type, index_parts
from zerocopy.sparse_ragged.sparse import COMPRESSED, SparseLayout, require_dimension
from zerocopy.strided_view import StridedView

_DENSE = Fix("{x}.toarray()", "makes it dense")
_FLAT = Reason(
    "only SciPy has CSR arrays of one dimension",
    code="sparse",
    fixes=[Fix("{x}.tocoo()", "makes it COO"), _DENSE],
)
#: The attributes in which SciPy keeps its flags.
_FLAGS = frozenset(("_has_canonical_format", "_has_sorted_indices"))
#: Elements that are compared at a time, so that their coordinates stay in the cache.
_BLOCK = 1 << 14
#: The types of values that SciPy's arrays accept.
_VALUE_TYPES = NATIVE_NAMES - {"float16"}
_INDEX_TYPES = (np.dtype("int32"), np.dtype("int64"))


class SciPy(Framework):
    """Sparse arrays and matrices; conversions return arrays, such as ``csr_array``."""

    name = "scipy"
    types = ("sparse.csr_array", "sparse.csc_array", "sparse.coo_array", "sparse.bsr_array")
    kind = "compound"
    root_modules = ("scipy",)
    distribution = "scipy"
    min_version = "1.15"  # the first whose arrays have any number of dimensions
    actions: Mapping[str, Fix] = {
        "cast": Fix("{x}.astype('{type}')"),
        "canonical": Fix("{x}.tocoo().tocsr()"),
        "canonical-coo": Fix("sparse.COO(numpy.stack({x}.coords), {x}.data, shape={x}.shape)"),
        "to-csr": Fix("{x}.tocsr()"),
        "to-csc": Fix("{x}.tocsc()"),
        "to-coo": Fix("{x}.tocoo()"),
    }

    def owns(self, cls: type) -> bool:
        return any(base.__name__ in ("sparray", "spmatrix") for base in cls.__mro__)

    def source(self, obj: Any) -> Source:
        reason = Reason(f"it is sparse ({obj.format})", code="sparse", fixes=[_DENSE])
        raise obstacles.refuse_source(f"scipy.sparse.{type(obj).__name__}", reason)

    def copy_reasons(self, view: StridedView) -> list[Reason]:
        form = "csr" if view.ndim == 2 else "coo"
        raise obstacles.refuse_dense("SciPy's arrays", f"scipy.sparse.{form}_array", view, _VALUE_TYPES)


class Compound(CompoundHook):
    """CSR, CSC, BSR and COO. SciPy sorts and sums duplicates when an operation needs it."""

    part_target = "numpy"
    layout_type = SparseLayout

    def read(self, obj: Any) -> tuple[SparseLayout, tuple[Any, ...]] | None:
        form = obj.format
        if form in COMPRESSED:
            if len(obj.shape) != 2:
                raise obstacles.refuse_source(f"scipy.sparse.{type(obj).__name__}", _FLAT)
            if not vars(obj).keys() >= _FLAGS:
                # SciPy computes the flags in C++, which reads where indptr points, outside the arrays too.
                unchecked, parts = SparseLayout(form, obj.shape), (obj.data, obj.indices, obj.indptr)
                unchecked.check(parts)
                unchecked.check_pointers(parts)
            # SciPy computes the property once, and keeps the answer: 10 ms for 10 million elements.
            canonical = obj.has_canonical_format
            is_sorted = canonical or obj.has_sorted_indices
            layout = SparseLayout(form, obj.shape, is_sorted, canonical if is_sorted else None)
            return layout, (obj.data, obj.indices, obj.indptr)
        if form == "coo":
            # The flag does not say that they are sorted: tocoo() of a DOK sets it, and keeps the order of
            # insertion (scipy/sparse/_dok.py, SciPy 1.17).
            canonical = True if obj.has_canonical_format and _ascend(obj.coords) else None
            return SparseLayout("coo", obj.shape, canonical, canonical, "separate"), (obj.data, *obj.coords)
        raise obstacles.refuse_source(
            f"scipy.sparse.{type(obj).__name__}",
            Reason(
                f"only SciPy has {form.upper()}",
                code="sparse",
                fixes=[
                    Fix("{x}.tocoo()", "makes it COO", alone=False),
                    Fix("{x}.toarray()", "makes it dense"),
                ],
            ),
        )

    def fit(self, layout: SparseLayout, parts: Sequence[Any]) -> tuple[SparseLayout, list[Part]]:
        require_dimension("SciPy", layout)
        return layout, index_parts("SciPy", layout, parts, ("int32", "int64"))

    def build(self, layout: SparseLayout, parts: Sequence[Any]) -> Any:
        form = layout.format
        result = template(form, layout.shape)
        if form == "coo":
            indices = _split(layout, parts)
            result.data, result.coords = parts[0], indices
            result.has_canonical_format = layout.is_canonical
        else:
            result.data, result.indices, result.indptr = parts
            indices = tuple(parts[1:])
            if layout.is_canonical:
                result.has_canonical_format = True
            elif layout.is_sorted is not None:
                result.has_sorted_indices = layout.is_sorted
        check_index_type(indices, _INDEX_TYPES)
        return result


def _ascend(coords: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Whether coordinates are sorted by the first dimension, then the next, and each occurs once."""
    for start in range(0, len(coords[0]) - 1, _BLOCK):
        larger: Any = False
        equal: Any = True
        for indices in coords:
            block = indices[start : start + _BLOCK + 1]
            larger |= equal & (block[1:] > block[:-1])
            equal &= block[1:] == block[:-1]
        if not np.all(larger):
            return False
    return True


def _split(layout: SparseLayout, parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return one array of coordinates for each dimension; rows and columns of one array alias it."""
    if layout.coords == "separate":
        return tuple(parts[1:])
    return tuple(parts[1] if layout.coords == "by-dimension" else parts[1].T)


def template(form: str, shape: tuple[int, ...]) -> Any:
    """Return an array without elements, to which the parts are assigned.

    SciPy's constructors can copy them: they cast int64 indices whose values fit in int32, and copy an
    array that is a part of a much larger one (``_prune_array``).
    """
    empty = _empty(form, len(shape))
    if empty is None:
        return _class(form)(shape)
    result = copying.copy(empty)  # 1.4 us; the constructor for a shape takes 13 us
    result._shape = tuple(shape)
    return result


@lru_cache(maxsize=64)
def _empty(form: str, ndim: int) -> Any:
    """Return an empty array to copy; None if this SciPy does not keep its shape in the private `_shape`."""
    empty = _class(form)((1,) * ndim)
    changed = copying.copy(empty)
    changed.__dict__["_shape"] = (2,) * ndim
    return empty if vars(empty).get("_shape") == (1,) * ndim and changed.shape == (2,) * ndim else None


@lru_cache(maxsize=8)
def _class(form: str) -> Any:
    import scipy.sparse

    return getattr(scipy.sparse, f"{form}_array")


FRAMEWORK = SciPy()
