"""Fast exporters and importers of pyarrow's arrays and tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from zerocopy._frameworks.pyarrow.columns import allocation_of
from zerocopy._frameworks.pyarrow.kernels import holds_views, may_lack_text
from zerocopy._native import core
from zerocopy.dtype import by_name
from zerocopy.tables.matrix import MOST_GAP

#: The characters of NumPy's types that ``pyarrow.array`` aliases.
_PLAIN = frozenset("bhilqBHILQefd")
#: The types of matrices that pyarrow copies.
_MATRIX_TYPES = (
    *(f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)),
    "float32",
    "float64",
)


def without_nulls(from_dlpack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an exporter to NumPy that refuses nulls before NumPy requests the memory.

    pyarrow's ``__dlpack__`` raises TypeError for nulls, upon which NumPy calls it without
    ``max_version``: pyarrow warns that such capsules are deprecated.
    """

    def export(array: Any) -> Any:
        if array.null_count:
            raise ValueError("it has nulls: the slow path refuses them")
        return from_dlpack(array)

    return export


def native_exporter(pa: Any, cls: type) -> Any:
    """Return the compiled exporter of a class of numeric arrays; None without the compiled core."""
    if core is None:
        return None
    # pyarrow's exporter refuses nulls. It warns if max_version is missing, which takes a microsecond.
    keywords = {"max_version": (1, 0)} if marks_immutable(pa) else {}
    return core.CapsuleExporter(cls.__dlpack__, keywords=keywords, readonly=True)  # type: ignore[attr-defined]


def native_importer(pa: Any, names: Iterable[str]) -> Any:
    """Return the compiled importer of 1-dimensional arrays; None without the compiled core.

    ``Array._import_from_c`` imports the structs of the Arrow C data interface from their addresses; pyarrow
    documents it for integrations in C. ``Array.from_buffers`` takes 1.5 times as long.
    """
    import_ = getattr(pa.Array, "_import_from_c", None)
    if core is None or import_ is None:
        return None
    types = {(dtype.code, dtype.bits): getattr(pa, dtype.name)() for dtype in map(by_name, names)}
    return core.ArrowImporter(import_, types)


#: Seconds in each unit of NumPy that Arrow lacks; the units that Arrow has.
_SECONDS = {"m": 60, "h": 3600}
_UNITS = ("s", "ms", "us", "ns")


def times_of(pa: Any, array: Any) -> Any:
    """Return dates or durations as an array, which aliases units of Arrow; None if the plan decides."""
    kind, (unit, count) = array.dtype.kind, np.datetime_data(array.dtype)
    if count != 1 or not (array.size and array.dtype.isnative and array.flags.aligned):
        return None
    if unit in _UNITS:
        return pa.array(array)  # NaT is null
    is_days = (kind, unit) == ("M", "D")
    if not is_days and unit not in _SECONDS:
        return None
    numbers = array.view("i8")
    most = 2**31 - 1 if is_days else (2**63 - 1) // _SECONDS[unit]
    if not -most < numbers.min() <= numbers.max() < most:  # NaT, or too large
        return None
    return pa.array(array if is_days else array.astype(f"{kind}8[s]"))


@cache
def flat_importer(pa: Any) -> Callable[[Any], Any]:
    """Return the importer of 1-dimensional NumPy arrays for a pyarrow without ``Array.from_dlpack``."""
    from_numpy = pa.array

    def ndarray(array: Any) -> Any:
        if array.ndim != 1 or not array.flags.c_contiguous or not array.flags.aligned:
            raise BufferError("other dimensions, gaps, or misaligned: use the slow path")
        if array.dtype.char not in _PLAIN or not array.dtype.isnative:
            raise BufferError("pyarrow copies it: use the slow path")
        return from_numpy(array)

    return ndarray


#: From this number of columns on, the export of each costs more than pyarrow's own copy: 300 columns of 100
#: rows take 51 us instead of 124.
_WIDE = 32
#: The most rows of a wide table that pyarrow copies: its copy goes column by column.
FEW_ROWS = 256


@cache  # its `layouts` keeps the plan of the last schema: 6 us for ten columns instead of 9
def table_exporter(pa: Any, cls: type) -> Any:
    """Return the compiled exporter of ``pyarrow.Table`` or ``RecordBatch``; None without the compiled core.

    A batch is exported as one array, in a third of the time of a stream.
    """
    if core is None:
        return None
    export = cls.__arrow_c_stream__ if cls is pa.Table else cls.__arrow_c_array__  # type: ignore[attr-defined]
    return core.TableExporter(
        export,
        check=_table_check(pa, cls),
        select=_select,
        matrix=_small_matrix(pa, cls),
        matrix_width=_WIDE,
        extent=lambda table: _extent(table.to_batches()[0] if cls is pa.Table else table),
    )


def _select(table: Any, labels: list[str]) -> Any:
    """Return the table, or one of some columns, if the export of the others would take longer.

    For a table of 30, a selection takes 1 us for each of its columns, and the export of a column 0.3 us.
    """
    return table.select(labels) if 4 * len(labels) < len(table.schema) else table


def _small_matrix(pa: Any, cls: Any) -> Callable[[Any], Any]:
    """Return a function that copies a table of few rows to a row-major array by pyarrow; None for others."""
    to_tensor, type_of = pa.RecordBatch.to_tensor, _common_type(pa)

    def matrix(table: Any) -> Any:
        if not 0 < table.num_rows <= FEW_ROWS or table.num_columns < 2:
            return None
        dtype, batches = type_of(table.schema), table.to_batches() if cls is pa.Table else [table]
        if dtype is None or len(batches) != 1 or _may_be_one_array(batches[0], dtype.itemsize):
            return None
        batches[0].validate()  # as in _table_check
        return to_tensor(batches[0], row_major=True).to_numpy()  # raises for nulls

    return matrix


def _common_type(pa: Any) -> Callable[[Any], Any]:
    """Return a function from a schema to the type of all columns, if they are numbers of one; else None."""
    types = {getattr(pa, name)(): by_name(name) for name in _MATRIX_TYPES}
    last: tuple[Any, Any] | None = None

    def type_of(schema: Any) -> Any:
        nonlocal last
        known = last
        if known is None or not schema.equals(known[0], True):
            kinds, names = {*schema.types}, schema.names
            is_one = len(kinds) == 1 and len({*names}) == len(names) and not has_extensions(schema)
            last = known = (schema, types.get(kinds.pop()) if is_one else None)
        return known[1]

    return type_of


def one_array(pa: Any, cls: Any) -> Callable[[Any], Any]:
    """Return the exporter ``matrix``: an alias of columns in one allocation (a plan: 20 us for each)."""
    type_of = _common_type(pa)

    def matrix(table: Any) -> Any:
        table.validate()  # as in _table_check
        dtype, batches = type_of(table.schema), table.to_batches() if cls is pa.Table else [table]
        if dtype is None or len(batches) != 1 or not _may_be_one_array(batches[0], dtype.itemsize):
            raise ValueError("not one array: use the slow path")
        columns, size = batches[0].columns, dtype.itemsize
        starts = [column.buffers()[1].address + column.offset * size for column in columns]
        steps = {b - a for a, b in pairwise(starts)}
        if len(steps) != 1 or any(column.null_count for column in columns):
            raise ValueError("other distances, or nulls: use the slow path")
        shape = table.num_rows, len(columns)
        return as_strided(np.from_dlpack(columns[0]), shape, (size, *steps), writeable=False)

    return matrix


def _may_be_one_array(batch: Any, width: int) -> bool:
    """Whether the first and the last column are in one allocation, as far apart as columns of one array."""
    first, last = batch.column(0), batch.column(batch.num_columns - 1)
    start = last.buffers()[1].address + last.offset * width
    step, rest = divmod(start - first.buffers()[1].address - first.offset * width, batch.num_columns - 1)
    if rest or not 0 <= step - batch.num_rows * width < MOST_GAP:
        return False
    bounds = _extent(batch)
    return bounds is not None and bounds[1] >= start + batch.num_rows * width


def _extent(batch: Any) -> tuple[int, int] | None:
    """Return the bounds of the allocation that holds the values of the first column."""
    column = batch.column(0)
    values = column.buffers()[1]
    return None if values is None else allocation_of(column, values.address)


#: The classes of lists that the core reads.
LISTS = ("ListArray", "LargeListArray", "FixedSizeListArray")


def column_exporter(pa: Any, cls: Any) -> Any:
    """Return the compiled exporter of columns in one chunk; None without the compiled core."""
    if core is None:
        return None
    from_arrays = pa.RecordBatch.from_arrays

    def export(column: Any) -> Any:
        return from_arrays([column], [""]).__arrow_c_array__()

    def export_chunk(column: Any) -> Any:
        if column.num_chunks != 1:
            raise ValueError("several chunks: the slow path decides")
        return export(column.chunk(0))

    is_chunked = cls is pa.ChunkedArray
    if not may_lack_text(pa):
        return core.TableExporter(export_chunk if is_chunked else export, check=cls.validate)

    def check(column: Any) -> None:
        column.validate()
        if holds_views(pa, column.type):
            raise ValueError("views that may lack their text buffer: the slow path adds it")

    return core.TableExporter(export_chunk if is_chunked else export, check=check)


def _table_check(pa: Any, cls: Any) -> Callable[[Any], None]:
    """Return a function that raises for a table that must not be read through the C data interface.

    It returns the last schema that it accepted if that equals the schema of the table: ``equals`` compares
    fingerprints, in 2 ns per column, and the metadata, which can name an extension type.
    """
    validate = cls.validate
    last: Any = None

    def check(table: Any) -> Any:
        nonlocal last
        validate(table)  # raises if a buffer is too small, as in a crafted IPC file
        schema, known = table.schema, last
        if known is None or not schema.equals(known, True):
            if "\0" in "".join(schema.names):
                raise ValueError("a name has a zero byte, at which the C data interface would cut it")
            if has_extensions(schema):
                raise ValueError("an unknown extension type: the slow path decides")
            if may_lack_text(pa) and any(holds_views(pa, kind) for kind in {*schema.types}):
                raise ValueError("views that may lack their text buffer: the slow path adds it")
            last = known = schema
        return known

    return check


def marks_immutable(pa: Any) -> bool:
    """Whether this pyarrow exports versioned capsules, which mark Arrow memory as read-only."""
    return "max_version" in inspect.signature(pa.Array.__dlpack__).parameters


def has_extensions(schema: Any) -> bool:
    """Whether columns have an extension type that pyarrow does not know, and reads as its storage."""
    return any(b"ARROW:extension:name" in (field.metadata or ()) for field in schema)


def one_chunk_each(table: Any, index: object = None) -> list[tuple[str, Any]]:
    """Return a table's columns as pairs of name and array; raise if one has several chunks."""
    if has_extensions(table.schema):
        raise ValueError("an unknown extension type: the slow path decides")
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        if hasattr(column, "num_chunks"):
            if column.num_chunks != 1:
                raise ValueError("several chunks")
            column = column.chunk(0)
        columns.append((name, column))
    table.validate()  # raises if a buffer is too small, as in a crafted IPC file
    return columns


def plain_column(types: frozenset[Any]) -> Callable[[Any, Any], Any]:
    """Return the exporter ``hub`` of columns of plain values in one chunk."""

    def column(array: Any, target: Any) -> tuple[str, Any, None]:
        if hasattr(array, "chunks"):
            if array.num_chunks != 1:
                raise ValueError("no rows, or several chunks")
            array = array.chunk(0)
        if array.type not in types:
            raise ValueError("other types: the slow path decides")
        array.validate()
        return "", array, None

    return column


def plain_table(pa: Any, plain_types: frozenset[Any]) -> Callable[[Any, Any], Any]:
    """Return the exporter ``hub`` of tables of plain columns and dates.

    It keeps the last accepted schema, and `to_batches` counts the chunks without an object for each column:
    ten columns take 1 us instead of 17.
    """
    last: Any = None
    times = [pa.timestamp(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC")]
    types = plain_types | {pa.date32(), *times}

    def plain(table: Any, target: Any) -> Any:
        nonlocal last
        schema = table.schema
        if last is None or not schema.equals(last, True):  # the metadata can name an extension type
            names = schema.names
            if "" in names or len({*names}) != len(names) or not names or "\0" in "".join(names):
                raise ValueError("names that need a check")
            if has_extensions(schema):
                raise ValueError("an unknown extension type: the slow path decides")
            if not types.issuperset(schema.types):
                raise ValueError("other types: the slow path decides")
            last = schema
        chunks = len(table.to_batches())
        if not chunks:
            raise ValueError("no rows")
        if chunks > 1 and any(column.num_chunks != chunks for column in table.columns):
            raise ValueError("chunks that end at different rows: a stream would divide more of them")
        table.validate()
        return None, table, schema

    return plain
