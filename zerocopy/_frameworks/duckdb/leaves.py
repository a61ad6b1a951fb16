"""The innermost arrays of a pyarrow array, to inspect the values of a type at any level of nesting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zerocopy.source import Array

_TEXT = ("string", "binary", "string_view", "binary_view")


def leaves(array: Any, pa: Any) -> Iterator[Any]:
    """Yield the innermost arrays of a pyarrow array without their nulls, except text and bytes.

    Dictionaries, unions and runs yield all their values, including those that no row uses.
    """
    for chunk in getattr(array, "chunks", [array]):
        kind = str(chunk.type).partition("<")[0]
        parts: list[Any] = []
        if hasattr(chunk, "storage"):
            parts = [chunk.storage]
        elif hasattr(chunk, "dictionary"):
            parts = [chunk.dictionary]
        elif kind == "struct":
            parts = chunk.flatten()
        elif kind == "map":  # it has no flatten(), and its keys include those of other rows
            entries = pa.struct([chunk.type.key_field, chunk.type.item_field])
            parts = [chunk.cast(pa.list_(entries)).flatten()]
        elif "list" in kind:
            parts = [chunk.flatten()]
        elif "union" in kind:
            parts = [chunk.field(i) for i in range(chunk.type.num_fields)]
        elif kind == "run_end_encoded":
            parts = [chunk.values]
        # pyarrow 26 cannot drop the nulls of views, and no caller inspects text.
        elif chunk.null_count < len(chunk) and not kind.endswith(_TEXT):
            yield chunk.drop_null() if chunk.null_count else chunk
        for part in parts:
            yield from leaves(part, pa)


def numbers(leaf: Any, dtype: Any) -> Array:
    """Return the elements of an array of fixed width without nulls, as an alias."""
    return np.frombuffer(leaf.buffers()[1], dtype)[leaf.offset : leaf.offset + len(leaf)]
