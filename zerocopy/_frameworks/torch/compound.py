"""torch's arrays of several buffers: COO, CSR, CSC, BSR, and nested tensors of layout ``torch.jagged``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.torch import GRAD
from zerocopy.errors import Fix, Reason
from zerocopy.forks import plain_lock
from zerocopy.sparse_ragged.hook import CombinedHook, CompoundHook, Part
from zerocopy.sparse_ragged.indices import canonical, check_index_type, coordinates, index_parts
from zerocopy.sparse_ragged.ragged import RaggedLayout, check_built, ragged_parts
from zerocopy.sparse_ragged.sparse import COMPRESSED, SparseLayout

_LENGTHS = Reason(
    "its rows are parts of its values, with gaps between them",
    code="not-contiguous",
    fixes=[Fix("{x}.contiguous()", "copies its rows without the gaps")],
)
_TRANSPOSED = Reason(
    "its ragged dimension is not the second one",
    "transpose it back: x.transpose(1, 2)",
    code="not-contiguous",
)
_LOCK = plain_lock()


class TorchSparse(CompoundHook):
    """Tensors without batch and dense dimensions. In compressed formats, indices are sorted and unique.

    torch's kernels rely on this invariant (docs of ``torch.sparse.check_sparse_tensor_invariants``) and do
    not check it.
    """

    layout_type = SparseLayout

    def read(self, obj: Any) -> tuple[SparseLayout, tuple[Any, ...]] | None:
        form = _formats().get(obj.layout)
        if form is None:
            return None
        if obj.requires_grad:
            raise obstacles.refuse_source(f"torch.{type(obj).__name__}", GRAD)
        shape = tuple(obj.shape)
        if form == "coo":
            if obj.dense_dim():
                return None
            canonical = True if obj.is_coalesced() else None
            layout = SparseLayout("coo", shape, canonical, canonical, "by-dimension")
            # The public indices() refuses tensors that are not coalesced.
            return layout, (obj._values(), obj._indices())
        if len(shape) != 2 or (form == "bsr") != (obj.values().dim() == 3):
            return None  # batches, and dense dimensions
        # torch's own results can have unsorted indices, such as those of a product of two CSR tensors.
        layout = SparseLayout(form, shape, reader="torch")
        if form == "csc":
            return layout, (obj.values(), obj.row_indices(), obj.ccol_indices())
        return layout, (obj.values(), obj.col_indices(), obj.crow_indices())

    def fit(self, layout: SparseLayout, parts: Sequence[Any]) -> tuple[SparseLayout, list[Part]]:
        if layout.format in COMPRESSED:
            layout, parts = canonical("torch", layout, parts)
        layout, parts = coordinates(layout, parts, "by-dimension")
        return layout, index_parts("torch", layout, parts, ("int64", "int32"), coo=("int64",))

    def build(self, layout: SparseLayout, parts: Sequence[Any]) -> Any:
        import torch

        shape = layout.shape
        if layout.format == "coo":
            data, indices = parts
            if layout.coords != "by-dimension" or indices.dtype is not torch.int64:
                raise ValueError("torch needs int64 indices of shape (ndim, count): fit() makes them")
            # A flag of False would let torch search for duplicates later, which it does anyway.
            return torch.sparse_coo_tensor(
                indices, data, shape, is_coalesced=layout.is_canonical or None, check_invariants=False
            )
        if not layout.is_canonical:
            raise ValueError("torch needs sorted and unique indices: fit() sorts them")
        data, indices, indptr = parts
        check_index_type((indices, indptr), (torch.int64, torch.int32))
        return _constructors()[layout.format](indptr, indices, data, size=shape, check_invariants=False)


class TorchRagged(CompoundHook):
    """Nested tensors with one ragged dimension, the second. Those with another layout have no offsets."""

    layout_type = RaggedLayout

    def read(self, obj: Any) -> tuple[RaggedLayout, tuple[Any, ...]] | None:
        if not obj.is_nested:
            return None
        import torch

        if obj.layout is not torch.jagged or type(obj).__name__ != "NestedTensor":
            return None
        if obj.requires_grad:
            raise obstacles.refuse_source("torch.NestedTensor", GRAD)
        if isinstance(obj.shape[1], int):  # a ragged size is symbolic
            raise obstacles.refuse_source("torch.NestedTensor", _TRANSPOSED)
        if obj.lengths() is not None:
            raise obstacles.refuse_source("torch.NestedTensor", _LENGTHS)
        return RaggedLayout(1, int(obj.shape[0])), (obj.values(), obj.offsets())

    def fit(self, layout: RaggedLayout, parts: Sequence[Any]) -> tuple[RaggedLayout, list[Part]]:
        return ragged_parts("torch", layout, parts, ("int64", "int32"), from_zero=True, max_depth=1)

    def build(self, layout: RaggedLayout, parts: Sequence[Any]) -> Any:
        import torch

        values, offsets = parts
        check_built(layout, parts, from_zero=True)
        if offsets.dtype not in (torch.int64, torch.int32):
            raise ValueError("torch needs int64 or int32 offsets: fit() casts")
        return torch.nested.nested_tensor_from_jagged(values, offsets)


class Compound(CombinedHook):
    """Sparse and nested tensors."""

    hooks = (TorchSparse(), TorchRagged())


@lru_cache(maxsize=1)
def _formats() -> dict[Any, str]:
    import torch

    return {getattr(torch, f"sparse_{form}"): form for form in ("coo", *COMPRESSED)}


@lru_cache(maxsize=1)
def _constructors() -> dict[str, Any]:
    """Return the constructors by format, after torch has given its only warning that they are in beta."""
    import torch

    constructors = {form: getattr(torch, f"sparse_{form}_tensor") for form in COMPRESSED}
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 0], [], torch.empty(0), size=(1, 1), check_invariants=False)
    return constructors
