"""pyarrow's arrays as columns, and checks of their buffers.

This module does not import pyarrow: callers pass the module as `pa`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from zerocopy.errors import DeviceError, UnsupportedConversionError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.tables.arrow_column import ArrowColumn

_FLAT = ("number", "bool", "date", "time", "timestamp", "duration", "decimal", "fixed_binary")


def field_of_type(of: Any) -> Field:
    """Return a type or a field as the C data interface describes it; one without children has no name."""
    kind = getattr(of, "type", of)
    # pyarrow compares types without the metadata of their children: so only types without children
    # are cached, which saves 50 us per column.
    if not kind.num_fields and not getattr(of, "metadata", None):
        try:
            return _plain_field(kind, getattr(of, "nullable", True))
        except TypeError as error:  # extension types written in Python are often not hashable
            if not is_error(error):
                raise
    return read_schema(of.__arrow_c_schema__())


@lru_cache(maxsize=4096)
def _plain_field(kind: Any, nullable: bool) -> Field:
    field = read_schema(kind.__arrow_c_schema__())
    return field if nullable else replace(field, nullable=False)


def column_of(pa: Any, array: Any, name: str, of: Any = None) -> ArrowColumn:
    """Describe an array, chunked or not; its memory is exported when it is read."""
    if not getattr(array, "is_cpu", True):
        raise DeviceError(
            f"convert({name})",
            "the array is not in host memory",
            "copy it to the host: x.copy_to(...)",
            code="other-device",
        )
    array = checked(pa, array, name)
    return _ArrayColumn(pa, array, name, field_of_type(of if of is not None else array.type))


class _ArrayColumn(ArrowColumn):
    """A column over a pyarrow array. One object: nested functions take 1 us more, in thousands of columns."""

    def __init__(self, pa: Any, array: Any, name: str, field: Field) -> None:
        self.name, self.field, self.length, self._array = name, field, len(array), array
        self._is_chunked = isinstance(array, pa.ChunkedArray)
        self.chunk_count = array.num_chunks if self._is_chunked else 1

    def arrow(self) -> Any:
        return self._array

    @property
    def nbytes(self) -> int:
        return int(self._array.nbytes)

    def _read(self) -> list[arrow_c.Memory]:
        field, chunks = self.field, self._array.chunks if self._is_chunked else [self._array]
        # A type without children needs only its buffers: exporting it would take 20 us more per chunk.
        if field.kind in _FLAT and not field.extension:
            return [_flat_memory(field, chunk) for chunk in chunks]
        return [arrow_c.read_array(chunk) for chunk in chunks]


def _flat_memory(field: Field, chunk: Any) -> arrow_c.Memory:
    """Describe an array without children as the C data interface would."""
    places = tuple([buffer.address if buffer is not None else 0 for buffer in chunk.buffers()])
    return arrow_c.Memory(field, len(chunk), chunk.offset, chunk.null_count, places, (), None, chunk)


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
