"""Helpers of the tests of ``aos_to_soa`` and ``soa_to_aos`` on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from helpers.arrays import bits
from zerocopy.protocols.array_interface import aligned_empty

POINT = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")])
TREE = np.dtype([("id", "i8"), ("at", [("x", "f4"), ("y", "f4")]), ("v", "f8", (2,)), ("name", "S3")])


def filled(dtype: Any, shape: Any = 6) -> np.ndarray:
    """Return records at a multiple of 64 bytes; neighbouring bytes differ."""
    records = aligned_empty(shape if isinstance(shape, tuple) else (shape,), np.dtype(dtype))
    raw = records.reshape(-1).view(np.uint8)
    raw[...] = np.arange(raw.size) % 251
    return records


def by_path(columns: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each column of nested dicts with its path."""
    for name, column in columns.items():
        if isinstance(column, dict):
            yield from by_path(column, (*path, name))
        else:
            yield (*path, name), column


def at(records: Any, path: tuple[str, ...]) -> Any:
    """Return a field of records, or a column of nested dicts, by its path."""
    for name in path:
        records = records[name]
    return records


def agree(records: np.ndarray, columns: dict[str, Any]) -> bool:
    """Return whether columns equal the fields of records, bit for bit in native byte order."""
    return all(
        bits(at(records, path).astype(column.dtype)) == bits(column)
        and column.shape == at(records, path).shape
        for path, column in by_path(columns)
    )


def refused(
    error: type[Exception],
    match: str,
    call: Callable[..., Any],
    *arguments: Any,
    untouched: Any = (),
    **options: Any,
) -> Exception:
    """Check that a call raises and leaves the arrays in `untouched` unchanged; return the error."""
    before = [array.tobytes() for array in untouched]
    with pytest.raises(error, match=match) as caught:
        call(*arguments, **options)
    assert [array.tobytes() for array in untouched] == before
    return caught.value
