"""pyarrow's arrays as columns; this module does not import pyarrow: callers pass the module as `pa`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from zerocopy._frameworks.pyarrow.buffers import checked
from zerocopy.errors import DeviceError
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
