"""TensorFlow's ``tf.SparseTensor``: COO with one array of int64 coordinates of shape (count, ndim)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy.compound.coordinates import coordinates, index_parts
from zerocopy.compound.hook import CompoundHook, Part
from zerocopy.compound.sparse import SparseLayout, refuse_format


class TensorFlowSparse(CompoundHook):
    """Eager sparse tensors. Order and duplicates are not recorded."""

    def read(self, obj: Any) -> tuple[SparseLayout, tuple[Any, ...]] | None:
        if type(obj).__name__ != "SparseTensor" or not hasattr(obj.values, "numpy"):
            return None
        shape = tuple(int(size) for size in obj.dense_shape.numpy())
        return SparseLayout("coo", shape, None, None, "by-point"), (obj.values, obj.indices)

    def accepts(self, layout: Any) -> bool:
        return isinstance(layout, SparseLayout)

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
