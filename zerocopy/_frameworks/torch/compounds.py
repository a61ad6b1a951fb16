"""torch's arrays of several buffers: sparse tensors, and nested tensors with the layout ``torch.jagged``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.torch.sparse import TorchSparse
from zerocopy.compound.hook import CombinedHook, CompoundHook, Part
from zerocopy.compound.ragged import RaggedLayout, check_built, ragged_parts
from zerocopy.errors import Fix, Reason

_GRAD = Reason(
    "it requires grad, and no other framework keeps the graph",
    code="requires-grad",
    fixes=[Fix("{x}.detach()", "aliases it without the graph")],
)
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


class TorchRagged(CompoundHook):
    """Nested tensors with one ragged dimension, the second. Those with another layout have no offsets."""

    def read(self, obj: Any) -> tuple[RaggedLayout, tuple[Any, ...]] | None:
        if not obj.is_nested:
            return None
        import torch

        if obj.layout is not torch.jagged or type(obj).__name__ != "NestedTensor":
            return None
        if obj.requires_grad:
            raise obstacles.refuse_source("torch.NestedTensor", _GRAD)
        if isinstance(obj.shape[1], int):  # a ragged size is symbolic
            raise obstacles.refuse_source("torch.NestedTensor", _TRANSPOSED)
        if obj.lengths() is not None:
            raise obstacles.refuse_source("torch.NestedTensor", _LENGTHS)
        return RaggedLayout(1, int(obj.shape[0])), (obj.values(), obj.offsets())

    def accepts(self, layout: Any) -> bool:
        return isinstance(layout, RaggedLayout)

    def fit(self, layout: RaggedLayout, parts: Sequence[Any]) -> tuple[RaggedLayout, list[Part]]:
        return ragged_parts("torch", layout, parts, ("int64", "int32"), from_zero=True, max_depth=1)

    def build(self, layout: RaggedLayout, parts: Sequence[Any]) -> Any:
        import torch

        values, offsets = parts
        check_built(layout, parts, from_zero=True)
        if offsets.dtype not in (torch.int64, torch.int32):
            raise ValueError("torch needs int64 or int32 offsets: fit() casts")
        return torch.nested.nested_tensor_from_jagged(values, offsets)


class TorchCompounds(CombinedHook):
    """Sparse and nested tensors."""

    hooks = (TorchSparse(), TorchRagged())
