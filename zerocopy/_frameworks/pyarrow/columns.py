"""pyarrow's arrays as columns; this module does not import pyarrow: callers pass the module as `pa`."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from zerocopy._frameworks.pyarrow.buffers import checked
from zerocopy.errors import DeviceError
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.tables.arrow_column import ArrowColumn

_FLAT = ("number", "bool", "date", "time", "timestamp", "duration", "decimal", "fixed_binary")


def field_of_type(of: Any) -> Field:
    """Return a type or a field as the C data interface describes it."""
    kind = getattr(of, "type", of)
    # pyarrow compares fields without their metadata, and without their children's: so only plain
    # fields are cached, which saves 8 us per column.
    if not kind.num_fields and not getattr(of, "metadata", None):
        try:
            return _plain_field(of)
        except TypeError:  # extension types written in Python are often not hashable
            pass
    return read_schema(of.__arrow_c_schema__())


@lru_cache(maxsize=4096)
def _plain_field(of: Any) -> Field:
    return read_schema(of.__arrow_c_schema__())


def column_of(pa: Any, array: Any, name: str, of: Any = None) -> ArrowColumn:
    """Describe an array, chunked or not; its memory is exported when it is read."""
    if not getattr(array, "is_cpu", True):
        raise DeviceError(
            f"convert({name})",
            "the array is not in host memory",
            "copy it to the host: x.copy_to(...)",
            code="other-device",
        )
    chunked = isinstance(array, pa.ChunkedArray)
    array = checked(pa, array, name)
    field = field_of_type(of if of is not None else array.type)
    # A type without children needs only its buffers: exporting it would take 20 us more per chunk.
    flat = field.kind in _FLAT and not field.extension
    read = partial(_flat_memory, field) if flat else arrow_c.read_array

    def load() -> list[arrow_c.Memory]:
        return [read(chunk) for chunk in (array.chunks if chunked else [array])]

    column = ArrowColumn(name, field, load, len(array), lambda: array, size=lambda: int(array.nbytes))
    column.chunk_count = array.num_chunks if chunked else 1
    return column


def _flat_memory(field: Field, chunk: Any) -> arrow_c.Memory:
    """Describe an array without children as the C data interface would."""
    places = tuple(buffer.address if buffer is not None else 0 for buffer in chunk.buffers())
    return arrow_c.Memory(field, len(chunk), chunk.offset, chunk.null_count, places, (), None, chunk)
