"""Tables and arrays in memory, and NumPy's files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy._engine.explain import explain
from zerocopy._engine.target import resolve
from zerocopy.errors import Fix, ReadError, UnsupportedConversionError
from zerocopy.loading.dataset import (
    Dataset,
    DerivedDataset,
    Group,
    choose,
    fitted,
    slice_rows,
    take_table,
)
from zerocopy.loading.options import LoaderOptions, opening
from zerocopy.loading.sources.chunked import ChunkedArrays, chunk_rows
from zerocopy.loading.sources.files import Files, digest
from zerocopy.source import Array
from zerocopy.tables.column import Table
from zerocopy.tables.hub import hub
from zerocopy.tables.rows import counts_missing
from zerocopy.weights import npy
from zerocopy.weights.file import WeightFile

#: Most rows of a group, so that the first batch does not wait for the whole table.
GROUP_ROWS = 1 << 17
#: Rows of one read in another order: Arrow takes 16,384 rows of 8 columns in 6 ms.
ORDERED_ROWS = 1 << 14


class TableDataset(Dataset):
    """The record batches of a ``pyarrow.Table``, in parts of 131,072 rows; or its rows by indices."""

    in_memory = True

    def __init__(self, table: Any, name: str, order: Array | None = None, digest: str = "") -> None:
        self.name = name
        self._digest = digest
        self.whole = table
        self.order = order
        self.is_new: bool = order is not None
        self.schema: Any = table.schema
        rows = [batch.num_rows for batch in table.to_batches(max_chunksize=GROUP_ROWS)]
        if order is not None:
            rows = [group.rows for group in groups_of(len(order), ORDERED_ROWS) if len(order)]
        self.groups: list[Group] = [Group(count, number=number) for number, count in enumerate(rows)]
        self._starts = [0, *accumulate(rows)]

    def read(self, index: int) -> Any:
        """Return the rows of a group: an alias, unless they have an order."""
        start, rows = self._starts[index], self.groups[index].rows
        if self.order is None:
            return self.whole.slice(start, rows)
        return take_table(self.whole, self.order[start : start + rows])

    def fingerprint(self) -> str:
        rows, order = self._digest or table_digest(self.whole), self.order
        return rows if order is None else digest(rows, hashlib.sha256(order.tobytes()).hexdigest())


class ArrayDataset(Dataset):
    """A dict of NumPy arrays whose first dimension is the rows."""

    in_memory = True
    is_new = False

    #: The labels of arrays whose NaN is a null for ``nulls=``.
    missing: Sequence[Hashable] = ()

    def __init__(self, arrays: Mapping[Hashable, Any], name: str) -> None:
        self.name = name
        self.whole = dict(arrays)
        self._rows = len(next(iter(self.whole.values()))) if self.whole else 0
        self.groups: list[Group] = groups_of(self._rows)

    def read(self, index: int) -> dict[Hashable, Any]:
        """Return the rows of a group: aliases."""
        start = index * GROUP_ROWS
        rows: dict[Hashable, Any] = slice_rows(self.whole, start, start + self.groups[index].rows)
        return rows

    def as_tables(self) -> Dataset:
        """Return the arrays as the columns of one Arrow table."""
        table = convert({str(label): x for label, x in self.whole.items()}, "pyarrow")
        return TableDataset(without_nan(table, map(str, self.missing)), self.name, digest=self.fingerprint())

    def fingerprint(self) -> str:
        places = sampled(self._rows)
        return digest(
            self._rows,
            [(name, str(array.dtype), array.shape[1:]) for name, array in self.whole.items()],
            # As ndarrays: Quantity of astropy has no tobytes.
            [np.asarray(array[places]).tobytes() for array in self.whole.values()],
        )


def groups_of(rows: int, most: int = 0) -> list[Group]:
    """Return groups of at most `most` rows, or of 131,072: at least one."""
    most = most or GROUP_ROWS
    starts = range(0, max(rows, 1), most)
    return [Group(min(most, rows - start), number=number) for number, start in enumerate(starts)]


def table_digest(table: Any) -> str:
    """Return a digest of the types of a table, its number of rows and some of the rows."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        rows = np.array(sampled(table.num_rows), np.int64)
        writer.write_table(hub().writable(take_table(table, rows)))
    return digest(table.num_rows, sink.getvalue().to_pybytes())


def sampled(rows: int) -> list[int]:
    """Return the rows that the digest covers: the first, the last and at most seven between."""
    return sorted({rows * part // 8 for part in range(8)} | {rows - 1}) if rows else []


def open_arrays(
    arrays: Mapping[Hashable, Any], options: LoaderOptions, name: str, place: str = "source"
) -> Dataset:
    """Return arrays of any framework whose first dimension is the rows.

    `place` is the expression of the dict, for fixes.
    """
    chosen = choose(options.columns, list(arrays)) if options.schema is None else list(arrays)
    if not chosen:
        raise UnsupportedConversionError(
            "loader({})", "the dict has no arrays", 'pass arrays: {"x": x, "y": y}', code="not-an-array"
        )
    columns = {label: _rows_of(label, arrays[label], options, place) for label in chosen}
    is_chunked = any(map(chunk_rows, columns.values()))
    lengths = {label: array.shape[0] for label, array in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{label!r} has {count:,}" for label, count in list(lengths.items())[:8])
        why = f"the arrays differ in their number of rows: {listed}"
        fix = "pass arrays with the same length of the first dimension"
        raise UnsupportedConversionError(f"loader({name})", why, fix, code="different-lengths")
    of_tables = (options.nulls, options.dtype, options.encode, options.schema)
    needs_table = options.is_matrix or any(option is not None for option in of_tables)
    needs_table = needs_table or resolve(options.to).kind != "tensor"
    arranged = ChunkedArrays(columns, name) if is_chunked else ArrayDataset(columns, name)
    arranged.missing = [label for label in chosen if _is_missing(arrays[label], label, options)]
    if not needs_table:
        return arranged
    for label, array in columns.items():
        if array.dtype.names is not None:
            why = "it is an array of records, and a column of a table has one value for each row"
            fix = "pass each of its fields as an array of its own"
            raise UnsupportedConversionError(f"loader(...)[{label!r}]", why, fix, code="records")
    with opening(options, name, place):
        tables = arranged.as_tables()
    opened = fitted(tables, options.columns, options.schema)
    assert isinstance(opened, Dataset)
    return opened


def open_table(source: Any, described: Table, options: LoaderOptions, name: str) -> Dataset:
    """Return a table of a framework; NaN that it counts as missing is null for ``nulls=``."""
    own = described.labels[: len(described.labels) - described.index]  # the labels of an index come last
    columns = options.columns if options.schema is None and not described.single else None
    columns = columns if {*(columns or ())} <= {*own} else None
    table = convert(source, "pyarrow.Table", columns=columns)
    chosen = [described.labels.index(label) for label in columns or described.labels]
    pairs = zip(table.column_names, (described.columns[i] for i in chosen), strict=False)
    missing = [label for label, column in pairs if counts_missing(column, options.nulls, label)]
    if options.is_matrix and options.columns is None and options.schema is None:
        table = table.select(range(table.num_columns - described.index))  # as in `convert`
    return TableDataset(without_nan(table, missing), name)


def _is_missing(value: Any, label: Hashable, options: LoaderOptions) -> bool:
    """Whether NaN of a value of a dict is null, as that of a series of pandas."""
    framework = registry.by_type(type(value))
    if options.nulls is None or framework is None or not framework.tables:
        return False
    described = framework.table(value)
    return described is not None and counts_missing(described.columns[0], options.nulls, str(label))


def without_nan(table: Any, names: Iterable[str]) -> Any:
    """Return an Arrow table with nulls in place of NaN in some columns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in names:
        place = table.schema.get_field_index(name)
        if place >= 0 and pa.types.is_floating(table.schema.field(place).type):
            column = table.column(place)
            nulls = pa.scalar(None, column.type)
            table = table.set_column(place, name, pc.if_else(pc.is_nan(column), nulls, column))
    return table


def _rows_of(label: Hashable, value: Any, options: LoaderOptions, place: str) -> Array:
    """Return an array on the host, without a copy where possible; one that is read by chunks unchanged."""
    if chunk_rows(value) and not value.dtype.hasobject:
        return value  # type: ignore[no-any-return]
    with opening(options, f"{{{label!r}: ...}}", place, label):
        array: Any = value if isinstance(value, np.ndarray) else convert(value, "numpy")
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        why = "it is an array of Python objects" if isinstance(array, np.ndarray) else "it is not an array"
        fix = "pass numbers, booleans, times, or a table with columns of text"
        fits = isinstance(array, np.ndarray) and explain({label: array}, "pyarrow.Table").error is None
        table = f'zc.convert({place}, "pyarrow.Table")'.replace("{", "{{").replace("}", "}}")
        fixes, asked = [Fix(table)] * fits, f"loader(...)[{label!r}]"
        raise UnsupportedConversionError(asked, why, "" if fits else fix, code="python-objects", fixes=fixes)
    if array.ndim == 0:
        why, fix = "it has no dimension, and so no rows", "pass an array of at least one dimension"
        raise UnsupportedConversionError(f"loader(...)[{label!r}]", why, fix, code="too-few-dimensions")
    return array


def open_array(array: Array, options: LoaderOptions, name: str, place: str) -> Dataset:
    """Return the fields of a structured array, or another array as one column; `place` is its expression."""
    columns = fields_of(array)
    names = f"{{k: {place}[k] for k in {place}.dtype.names}}"
    return open_arrays(columns, options, name, names if array.dtype.names else f"{{'data': {place}}}")


def fields_of(array: Array, name: str = "data") -> dict[Hashable, Array]:
    """Return the fields of a structured array as columns, or another array under one name."""
    if array.dtype.names and array.ndim == 1:
        return {field: array[field] for field in array.dtype.names}
    return {name: array}


def open_numpy_file(files: Files, options: LoaderOptions) -> Dataset:
    """Return a ``.npy`` or ``.npz`` file; its arrays are memory maps unless they are compressed."""
    path = files.paths[0]
    if len(files) != 1 or not files.is_local:
        why = "a loader reads only one .npy or .npz file" if files.is_local else "the file is remote"
        fix = 'load arrays yourself: {"x": numpy.load("x.npy", mmap_mode="r"), "y": ...}'
        raise ReadError(files.asked, why, fix, code="several-files", file=path)
    name = os.path.basename(path)
    try:
        opened = WeightFile(path)
        tensors, _ = (npy.read_archive if path.endswith(".npz") else npy.read)(opened)
        arrays: dict[Hashable, Array] = {}
        for each in tensors:
            try:
                arrays[each.name] = opened.array(each, writable=False)
            except ReadError:
                if options.columns is None or each.name in options.columns:
                    raise
    except ReadError as error:
        raise error.with_context(asked=f"reading {path}") from error.__cause__
    if path.endswith(".npy"):
        ((stem, array),) = arrays.items()
        arrays = fields_of(array, str(stem))
    return _NumpyFile(open_arrays(arrays, options, name), files)


class _NumpyFile(DerivedDataset):
    """Arrays of a file, which `read` checks for changes."""

    def __init__(self, arrays: Dataset, files: Files) -> None:
        super().__init__(arrays, arrays.schema, partial(_checked, files))
        self._files = files

    def fingerprint(self) -> str:
        return self._files.fingerprint()


def _checked(files: Files, rows: Any, place: str) -> Any:
    files.check(0)
    return rows
