"""INT96 timestamps of Parquet: nanoseconds of any year, which int64 cannot hold.

pyarrow reads them as nanoseconds that wrap, or as microseconds without the last three digits. The loader
reads both, and so knows each value: Spark writes microseconds up to the year 9999.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from zerocopy.errors import LossyConversionError, ReadError

#: The unit in which the loader reads them, unless the schema has nanoseconds.
UNIT = "us"


def parquet_format() -> Any:
    """Return pyarrow's format whose data sets have INT96 timestamps in microseconds."""
    from pyarrow import dataset as ds

    return ds.ParquetFileFormat(coerce_int96_timestamp_unit=UNIT)


def int96_columns(metadata: Any, schema: Any) -> list[str]:
    """Return the columns of `schema`, in any unit, that have INT96 timestamps in a file."""
    if not any(_has_times(kind) for kind in schema.types):
        return []
    leaves = metadata.schema
    roots = {
        leaf.path.removesuffix(leaf.name).partition(".")[0] or leaf.name
        for leaf in map(leaves.column, range(len(leaves)))
        if leaf.physical_type == "INT96"
    }
    # The path of a nested column has the same separator as names with dots.
    return [
        field.name
        for field in schema
        if _has_times(field.type) and (field.name in roots or field.name.partition(".")[0] in roots)
    ]


def checked(table: Any, fine: Any, schema: Any, place: str) -> Any:
    """Return a table in microseconds with its columns of INT96 in the unit of `schema`.

    `fine` has these columns in nanoseconds, which wrap.

    Raises
    ------
    LossyConversionError
        A value is outside the range of nanoseconds, or has digits below a microsecond.
    """
    for name in fine.column_names:
        number = table.column_names.index(name)
        wanted = schema.field(name).type if name in schema.names else table.schema.field(number).type
        is_fine, column = _has_times(wanted, "ns"), fine.column(name)
        for whole, exact in zip(_leaves(table.column(number)), _leaves(column), strict=True):
            _check(whole, exact, is_fine, name, place)
        if is_fine:
            table = table.set_column(number, table.schema.field(number).with_type(column.type), column)
    return table


def refuse_int96(name: str, metadata: Any, schema: Any, columns: Sequence[Any], call: str) -> None:
    """Refuse INT96 timestamps that an object of pyarrow reads as nanoseconds, which wrap."""
    refused = [each for each in int96_columns(metadata, schema) if each in columns]
    refused = [each for each in refused if _has_times(schema.field(each).type, "ns")]
    if refused:
        why = f"column {refused[0]!r} has INT96 timestamps, which it reads as nanoseconds: other years wrap"
        raise ReadError(f"loader({name})", why, f"{call} reads microseconds", code="lossy-cast")


def _check(whole: Any, exact: Any, is_fine: bool, name: str, place: str) -> None:
    """Compare microseconds with nanoseconds modulo 2**64."""
    coarse, fine = (array.cast("int64").fill_null(0).to_numpy() for array in (whole, exact))
    inexact, fix = fine - coarse * 1000, f'schema={{"{name}": "timestamp[ns]"}} keeps them, with all columns'
    why = "has nanoseconds below a microsecond"
    if is_fine:
        inexact, fix = fine // 1000 - coarse, f'pass schema={{"{name}": "timestamp[us]"}}, with all columns'
        why = "is outside the years 1677 to 2262 of nanoseconds"
    rows = inexact.nonzero()[0]
    if len(rows):
        why = f"column {name!r}: {whole[int(rows[0])]} {why}"
        raise LossyConversionError(f"reading {place}", why, fix, code="lossy-cast")


def _has_times(kind: Any, unit: str = "") -> bool:
    """Whether a type is, or contains, timestamps of a unit, or of any."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return not unit or bool(kind.unit == unit)
    return any(_has_times(kind.field(number).type, unit) for number in range(kind.num_fields))


def _leaves(column: Any) -> Iterator[Any]:
    """Return the timestamps inside a column, in the order of their places."""
    import pyarrow as pa

    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_timestamp(chunk.type):
            yield chunk
        elif pa.types.is_map(chunk.type):
            yield from (leaf for part in (chunk.keys, chunk.items) for leaf in _leaves(part))
        elif pa.types.is_struct(chunk.type):
            yield from (leaf for part in chunk.flatten() for leaf in _leaves(part))
        elif _has_times(chunk.type):
            yield from _leaves(chunk.flatten())
