"""The buffers of pyarrow's arrays, whose sizes are known: checks, and the buffers that they are slices of."""

from __future__ import annotations

from typing import Any

from zerocopy.errors import UnsupportedConversionError


def checked(pa: Any, array: Any, name: str) -> Any:
    """Refuse buffers that are too small for their rows, as readers of IPC files may return them (130 ns)."""
    try:
        array.validate()
    except pa.ArrowInvalid:
        return _without_invalid_empties(pa, array, name)
    return array


def allocation_of(array: Any, address: int) -> tuple[int, int] | None:
    """Return the bounds of the outermost buffer that holds an address: an IPC message, or a mapped file."""
    for buffer in array.buffers():
        if buffer is not None and buffer.address <= address < buffer.address + buffer.size:
            while (parent := buffer.parent) is not None and _holds(parent, buffer):
                buffer = parent
            return buffer.address, buffer.address + buffer.size
    return None


def _holds(parent: Any, buffer: Any) -> bool:
    low, high = parent.address, parent.address + parent.size
    return bool(low <= buffer.address and buffer.address + buffer.size <= high)


def _without_invalid_empties(pa: Any, array: Any, name: str) -> Any:
    """Return the array with new chunks in place of empty ones that pyarrow refuses."""
    chunks = list(getattr(array, "chunks", [array]))
    for i, chunk in enumerate(chunks):
        try:
            chunk.validate()
        except pa.ArrowInvalid as error:
            if len(chunk):
                why, remedy = f"its content is invalid: {error}", "fix it where it is created"
                asked = f"convert({name})"
                raise UnsupportedConversionError(asked, why, remedy, code="invalid-content") from error
            # pyarrow 26 imports valid empty slices of views as arrays that it refuses in a table.
            chunks[i] = pa.array([], chunk.type)
    return pa.chunked_array(chunks, array.type) if isinstance(array, pa.ChunkedArray) else chunks[0]
