"""The innermost arrays of a pyarrow array: for looking at values of a type wherever they are nested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zerocopy.source import Array


def leaves(array: Any, pa: Any) -> Iterator[Any]:
    """Yield the arrays without children that a pyarrow array is made of, nulls left out.

    Of dictionaries, unions and runs all values are looked at, whether a row has them or not.

    Parameters
    ----------
    array : pyarrow.Array or pyarrow.ChunkedArray
    pa : module
        pyarrow, which only its users import.
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
        elif kind == "map":  # pyarrow flattens none, and its keys are those of other rows too
            entries = pa.struct([chunk.type.key_field, chunk.type.item_field])
            parts = [chunk.cast(pa.list_(entries)).flatten()]
        elif "list" in kind:
            parts = [chunk.flatten()]
        elif "union" in kind:
            parts = [chunk.field(i) for i in range(chunk.type.num_fields)]
        elif kind == "run_end_encoded":
            parts = [chunk.values]
        elif chunk.null_count < len(chunk):
            yield chunk.drop_null() if chunk.null_count else chunk
        for part in parts:
            yield from leaves(part, pa)


def numbers(leaf: Any, dtype: Any) -> Array:
    """Return the elements of an array of one width and without nulls, as an alias."""
    return np.frombuffer(leaf.buffers()[1], dtype)[leaf.offset : leaf.offset + len(leaf)]
