"""The batches of a loader as Arrow data, for consumers of the Arrow PyCapsule Interface."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from zerocopy._engine.convert import convert
from zerocopy.loading.errors import LoaderUseError


def stream_of(batches: Iterable[Any], requested_schema: object) -> Any:
    """Return the capsule of a stream, which makes each batch when the consumer asks for it."""
    import pyarrow as pa

    made = _record_batches(batches)
    schema = next(made)
    return pa.RecordBatchReader.from_batches(schema, made).__arrow_c_stream__(requested_schema)


def schema_of(batches: Iterable[Any]) -> Any:
    """Return the capsule of the schema of the first batch."""
    return next(_record_batches(batches)).__arrow_c_schema__()


def _record_batches(batches: Iterable[Any]) -> Generator[Any]:
    """Return the schema of the first batch, then all batches as ``pyarrow.RecordBatch``."""
    schema = None
    for batch in batches:
        table = _table(batch)
        if schema is None:
            schema = table.schema
            yield schema
        yield from table.cast(schema).to_batches()
    if schema is None:
        why = "it has no batches, so the types of its columns are unknown"
        raise _refused(why, "check the source: it has no rows")


def _table(batch: Any) -> Any:
    import pyarrow as pa

    columns = convert(batch, "pyarrow")
    if isinstance(columns, pa.Table):
        return columns
    why = f"its batches are matrices or arrays without names, such as {type(batch).__qualname__}"
    raise _refused(why, "leave out layout=, so that each batch has columns")


def _refused(why: str, remedy: str) -> LoaderUseError:
    return LoaderUseError("loader.__arrow_c_stream__()", why, remedy, code="not-a-column")
