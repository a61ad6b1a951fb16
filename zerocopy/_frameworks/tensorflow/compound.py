"""TensorFlow's arrays of several buffers: ``tf.SparseTensor`` and ``tf.RaggedTensor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy.sparse_ragged.hook import CombinedHook, CompoundHook, Part
from zerocopy.sparse_ragged.indices import coordinates, index_parts
from zerocopy.sparse_ragged.ragged import RaggedLayout, check_built, ragged_parts
from zerocopy.sparse_ragged.sparse import SparseLayout, refuse_format


class TensorFlowSparse(CompoundHook):
    """Eager sparse tensors. Order and duplicates are not recorded."""

    layout_type = SparseLayout

    def read(self, obj: Any) -> tuple[SparseLayout, tuple[Any, ...]] | None:
        if type(obj).__name__ != "SparseTensor" or not hasattr(obj.values, "numpy"):
            return None
        if obj.dtype.name == "string":
            return None  # the fixes of a tensor of text do not apply to it
        shape = tuple(int(size) for size in obj.dense_shape.numpy())
        return SparseLayout("coo", shape, None, None, "by-point"), (obj.values, obj.indices)

    def fit(self, layout: SparseLayout, parts: Sequence[Any]) -> tuple[SparseLayout, list[Part]]:
        if layout.format != "coo":
            raise refuse_format("TensorFlow", layout, ("coo",))
        layout, parts = coordinates(layout, parts, "by-point")
        return layout, index_parts("TensorFlow", layout, parts, ("int64",))

    def build(self, layout: SparseLayout, parts: Sequence[Any]) -> Any:
        import tensorflow as tf

        if layout.coords != "by-point":
            raise ValueError("TensorFlow has COO with coordinates by point: fit() makes them")
        return tf.SparseTensor(parts[1], parts[0], layout.shape)


class TensorFlowRagged(CompoundHook):
    """Eager ragged tensors, with any number of ragged dimensions."""

    layout_type = RaggedLayout

    def read(self, obj: Any) -> tuple[RaggedLayout, tuple[Any, ...]] | None:
        if type(obj).__name__ != "RaggedTensor":
            return None
        values, levels = obj.flat_values, obj.nested_row_splits
        if not hasattr(values, "numpy") or not hasattr(levels[0], "numpy"):
            return None  # symbolic
        return RaggedLayout(len(levels), len(levels[0]) - 1), (values, *levels)

    def fit(self, layout: RaggedLayout, parts: Sequence[Any]) -> tuple[RaggedLayout, list[Part]]:
        return ragged_parts("TensorFlow", layout, parts, ("int64", "int32"), from_zero=True, same_type=True)

    def build(self, layout: RaggedLayout, parts: Sequence[Any]) -> Any:
        import tensorflow as tf

        values, *levels = parts
        check_built(layout, parts, from_zero=True)
        if len({level.dtype for level in levels}) > 1 or levels[0].dtype not in (tf.int64, tf.int32):
            raise ValueError("TensorFlow needs offsets of one type: fit() casts")
        # With validate=True it compares the offsets in several kernels, after zerocopy has.
        return tf.RaggedTensor.from_nested_row_splits(values, levels, validate=False)


class Compound(CombinedHook):
    """Sparse and ragged tensors."""

    hooks = (TensorFlowSparse(), TensorFlowRagged())
