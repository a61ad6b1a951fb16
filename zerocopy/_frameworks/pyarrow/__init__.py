"""pyarrow: arrays, tensors and tables in Arrow memory, which is immutable.

Columns also pass as pyarrow arrays between table frameworks without a common interface: ``hub``
creates such arrays over any memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.pyarrow.columns import (
    ArrowExchange,
    allocation_of,
    column_of,
    field_of,
    field_of_type,
    flat_array,
)
from zerocopy._frameworks.pyarrow.fast_path import (
    LISTS,
    column_exporter,
    flat_importer,
    native_exporter,
    native_importer,
    one_array,
    one_chunk_each,
    plain_column,
    plain_table,
    table_exporter,
    times_of,
    without_nulls,
)
from zerocopy._frameworks.pyarrow.kernels import items_of, own_items, take, whole_array
from zerocopy._native import core
from zerocopy.device import HOST, Device
from zerocopy.dtype import BOOL8, REAL_NAMES, DType, by_name, from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import refuse_dtype
from zerocopy.protocols.array_interface import address, host_view, tidy_strides
from zerocopy.source import Array, Source
from zerocopy.strided_view import MAX_NDIM, StridedView
from zerocopy.tables.arrow_column import ArrowColumn, UnreadColumn
from zerocopy.tables.column import Column, Columns, Table
from zerocopy.tables.decode import as_tensor
from zerocopy.tables.labels import RENAME, duplicates, listed, text_warnings
from zerocopy.tables.lists import memory_order, permuted_tensors

_NUMBERS = frozenset(REAL_NAMES) - {"bool"}
_PACKED = obstacles.packed_bits("Arrow")
_TENSORS = ("Array", "Tensor", "FixedShapeTensorArray")
_TABLES = ("Table", "RecordBatch", "RecordBatchReader", "ChunkedArray")


class PyArrow(ArrowExchange):
    """``pyarrow.Array`` for one dimension, ``pyarrow.Tensor`` for more, ``pyarrow.Table`` for columns.

    ``to="pyarrow.Tensor"``, ``"pyarrow.Array"``, ``"pyarrow.FixedShapeTensorArray"`` (a
    column of tensors), ``"pyarrow.Table"``, ``"pyarrow.RecordBatch"``,
    ``"pyarrow.RecordBatchReader"`` and ``"pyarrow.ChunkedArray"`` name a form.
    """

    name = "pyarrow"
    aliases = ("pa", "arrow")
    kinds: Mapping[str, Any] = {
        **dict.fromkeys(("Table", "RecordBatch", "RecordBatchReader"), "table"),
        **dict.fromkeys(("Array", "ChunkedArray"), "column"),
        "Scalar": None,
    }
    root_modules = ("pyarrow",)
    distribution = "pyarrow"
    max_ndim = MAX_NDIM  # NumPy's, which passes the memory on
    mutable = False
    packs_booleans = True
    actions: Mapping[str, Fix] = {
        "column": Fix("{x}[{label}]"),
        "replace": Fix("{x}.set_column({table}.schema.get_field_index({label}), {label}, {value})"),
        "cast": Fix("{x}.cast('{type}')"),
        "cast:bool8": Fix("{x}.cast(pyarrow.bool8())"),
        "milliseconds": Fix("{x}.cast({type})"),
        "objects": Fix("{x}.to_pylist()"),
        "split-interval": Fix(
            "pyarrow.array([v and dict(zip(('months', 'days', 'nanoseconds'), v)) for v in {x}.to_pylist()])",
            "gives months, days and nanoseconds",
        ),
        "truncate:us": Fix("{x}.cast('duration[us]', safe=False)"),
        "fill-nulls": Fix("{x}.fill_null({type})"),
        "drop-nulls": Fix("{x}.drop_null()"),
        "decode-runs": Fix("pyarrow.compute.run_end_decode({x})"),
        "decode-dictionary": Fix("{x}.cast({x}.type.value_type)"),
        "lists": Fix("pyarrow.array({x}.to_pylist(), pyarrow.large_list({x}.type.value_type))"),
        "join-lists": Fix("pyarrow.compute.list_flatten({x})"),
        "combine-chunks": Fix("{x}.combine_chunks()"),
        "unify-dictionaries": Fix("{x}.unify_dictionaries().combine_chunks()"),
        "read": Fix("{x}.read_all()"),
        "rename-columns": Fix(
            "{x}.rename_columns([f'{{name}}_{{i}}' for i, name in enumerate({x}.schema.names)])",
            "numbers the names",
        ),
    }
    forms = (*_TENSORS, *_TABLES)

    @property
    def kind(self) -> str:  # type: ignore[override]
        return {None: "both", "Array": "column"}.get(self.form, "table" if self.form in _TABLES else "tensor")

    def has_hook(self, name: str) -> bool:
        return super().has_hook(name) and (name != "compound" or self.form in (None, "Array"))

    def owns(self, cls: type) -> bool:
        pa = self.module()
        kinds = (pa.Array, pa.ChunkedArray, pa.Table, pa.RecordBatch, pa.Tensor, pa.Scalar)
        return issubclass(cls, (*kinds, pa.RecordBatchReader))

    # -- source ---------------------------------------------------------------

    def source(self, obj: Any) -> Source:
        pa = self.module()
        name = f"pyarrow.{type(obj).__name__}"
        if isinstance(obj, pa.Tensor):
            return _tensor(obj, name)
        if isinstance(obj, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
            raise obstacles.refuse_table(name)
        if isinstance(obj, pa.Scalar):
            fixes = [Fix("pyarrow.array([{x}])", "makes an array of it")]
            why = "a pyarrow scalar is not an array"
            raise obstacles.refuse_source(name, Reason(why, code="not-an-array", fixes=fixes))
        return as_tensor(column_of(pa, obj, name))

    def allocation(self, obj: Any, address: int) -> tuple[int, int] | None:
        return allocation_of(obj, address)

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        pa = self.module()
        name = f"pyarrow.{type(obj).__name__}"
        if isinstance(obj, (pa.Array, pa.ChunkedArray)):
            return Table(name, [""], [column_of(pa, obj, name)], len(obj), single=True, obj=obj)
        if isinstance(obj, pa.RecordBatchReader):
            unread: list[Column] = [UnreadColumn(name, field_of_type(field)) for field in obj.schema]
            return Table(
                name, obj.schema.names, unread, 0, read=lambda: self._read(obj, name), once=True, obj=obj
            )
        if not isinstance(obj, (pa.Table, pa.RecordBatch)):
            return None
        schema = obj.schema
        columns = Columns(
            range(len(schema)), lambda at: column_of(pa, obj.column(at), name, schema.field(at))
        )
        return Table(name, schema.names, columns, obj.num_rows, metadata=schema.metadata or {}, obj=obj)

    def _read(self, reader: Any, name: str) -> Table:
        table = self.table(self.read_all(reader))
        assert table is not None
        return replace(table, name=name)

    def fast_exporters(self, cls: type) -> dict[str, Callable[..., Any]]:
        import numpy as np

        pa = self.module()
        if cls is pa.Tensor:
            return {"ndarray": cls.to_numpy}  # type: ignore[attr-defined]  # read-only if the tensor is
        if cls in (pa.Table, pa.RecordBatch):
            tables = {"columns": one_chunk_each, "native_table": table_exporter(pa, cls)}
            tables["matrix"] = one_array(pa, cls)
            return tables | ({"hub": plain_table(pa, self.plain_types)} if cls is pa.Table else {})
        if not issubclass(cls, (pa.Array, pa.ChunkedArray)):
            return {}  # readers and scanners are read by the plan
        column: dict[str, Any] = {"hub": plain_column(self.plain_types)}
        native_column = {"native_column": column_exporter(pa, cls)}
        if cls is pa.ChunkedArray or cls.__name__ in LISTS:
            return native_column | (column if cls is pa.ChunkedArray else {})
        if cls in (pa.StringArray, pa.LargeStringArray, pa.BooleanArray):
            return column
        # Each type has a class. These hold numbers, and their exporter refuses nulls.
        if cls not in {getattr(pa, f"{t}Array") for t in _CLASS_NAMES}:
            return {}
        numbers = {"ndarray": without_nulls(np.from_dlpack), "native": native_exporter(pa, cls)}
        return column | native_column | numbers

    def parse_dtype(self, spec: Any) -> DType | None:
        if str(spec) == "extension<arrow.bool8>":
            return BOOL8
        name = _ARROW_NAMES.get(str(spec))
        return None if name is None else by_name(name)

    # -- target ---------------------------------------------------------------

    def copy_reasons(self, view: StridedView, label: str = "") -> list[Reason]:
        ndim = len(view.shape)
        form = self._form(ndim)
        if form == "Array" and ndim == 1 and view.dtype.name in _NUMBERS:  # columns: tables have thousands
            size = view.dtype.itemsize
            if (view.strides[0] == size or view.shape[0] < 2) and not view.ptr % size:
                return []
        label = label or f"pyarrow.{form}"  # in reasons
        is_bool, is_bool8 = view.dtype.name == "bool", view.dtype is BOOL8
        if view.dtype.name not in _NUMBERS and not (form == "Array" and (is_bool or is_bool8)):
            fixes = obstacles.pairs(view.dtype)
            if is_bool or is_bool8:
                array = [Fix(to="pyarrow.Array", effect="has booleans")] if view.ndim == 1 else []
                fixes = [*array, Fix("zc.convert({x}, 'numpy').view('uint8')", "gives bytes", action="bytes")]
            raise refuse_dtype(label, view.dtype, fixes=fixes)
        if form == "Array" and view.ndim != 1:
            raise UnsupportedConversionError(
                "to='pyarrow.Array'",
                f"the array has {view.ndim} dimensions and a pyarrow.Array has one",
                code="too-many-dimensions",
                fixes=[Fix(to="pyarrow.Tensor")],
            )
        if form == "FixedShapeTensorArray" and (view.ndim < 2 or 0 in view.shape):
            raise UnsupportedConversionError(
                "to='pyarrow.FixedShapeTensorArray'",
                f"a column of tensors needs two or more dimensions, none of size 0, not {view.shape}",
                code="too-few-dimensions",
                fixes=[Fix(to="pyarrow.Tensor")],
            )
        self.check_view(view)
        if is_bool:
            return [_PACKED]
        reasons = []
        if form == "Tensor":
            if view.has_negative_strides:
                why = "pyarrow.Tensor does not support negative strides"
                reasons.append(Reason(why, code="negative-strides", fixes=[obstacles.CONTIGUOUS]))
            if view.has_fractional_strides:
                reasons.append(obstacles.FRACTIONAL_STRIDES)
        elif form == "FixedShapeTensorArray" and memory_order(view) is not None:
            pass  # the dimensions after the first may be permuted: the type says how
        elif not view.c_contiguous:
            odd = view.has_negative_strides or view.has_fractional_strides or is_bool8
            tensor = [] if odd else [Fix(to="pyarrow.Tensor", effect="keeps the strides")]
            order = "" if view.ndim == 1 else ", in row-major order or with dimensions exchanged in pairs"
            why, fixes = f"{label} requires memory without gaps{order}", [obstacles.CONTIGUOUS, *tensor]
            reasons.append(Reason(why, code="not-contiguous", fixes=fixes))
        if not view.is_aligned(view.dtype.itemsize):
            # Arrow's kernels load whole elements; its format requires 8 bytes (Columnar Format, "Buffer
            # Alignment and Padding").
            reasons.append(obstacles.MISALIGNED)
        return reasons

    def _form(self, ndim: int) -> str:
        return self.form or ("Array" if ndim == 1 else "Tensor")

    def from_host(self, array: Array, dtype: DType, device: Device, stream: int | None) -> Any:
        pa = self.module()
        form = self._form(array.ndim)
        if form == "Tensor":
            return pa.Tensor.from_numpy(tidy_strides(array))
        if form == "FixedShapeTensorArray":
            # Not from_numpy_ndarray, which refuses arrays with odd strides in dimensions of size 1.
            order = memory_order(host_view(array, dtype))
            assert order is not None
            return permuted_tensors(array, order, pa)
        return flat_array(pa, array, dtype)

    def from_table(self, table: Table) -> Any:
        pa = self.module()
        arrays = [column.arrow() for column in table.columns]
        if self.form == "Array":
            return {label: whole_array(array) for label, array in zip(table.labels, arrays, strict=True)}
        fields = [
            field_of(pa, str(label), array.type, column.field)
            for label, array, column in zip(table.labels, arrays, table.columns, strict=True)
        ]
        schema = pa.schema(fields, metadata=table.metadata or None)
        if arrays:
            result = pa.Table.from_arrays(arrays, schema=schema)
        else:  # pa.Table.from_arrays([]) would lose the number of rows
            field = pa.field("rows", pa.null())
            schema = pa.schema([field], metadata=table.metadata or None)
            result = pa.Table.from_arrays([pa.nulls(table.length)], schema=schema).select([])
        if self.form == "RecordBatch" and arrays:
            whole = [whole_array(array) for array in arrays]
            return pa.RecordBatch.from_arrays(whole, schema=schema)
        if self.form == "RecordBatch":
            return result.to_batches()[0] if table.length else pa.RecordBatch.from_pylist([], result.schema)
        return result.to_reader() if self.form == "RecordBatchReader" else result

    def from_column(self, table: Table) -> Any:
        pa = self.module()
        if self.form not in (None, "ChunkedArray", "Array"):
            return self.from_table(replace(table, labels=[str(table.labels[0]) or "column_0"]))
        array = table.columns[0].arrow()
        chunked = isinstance(array, pa.ChunkedArray)
        if self.form == "ChunkedArray":
            return array if chunked else pa.chunked_array([array])
        if self.form == "Array":
            return whole_array(array)
        return array.chunk(0) if chunked and array.num_chunks == 1 else array

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        if not table.single:  # an array has no name
            obstacles.check_utf8(table.labels, "pyarrow")
        if self.form == "ChunkedArray" and not table.single:
            raise obstacles.refuse_column(
                f"a table of {len(table.columns)} columns is not a pyarrow.ChunkedArray",
                "pick one: x['name']",
                code="not-an-array",
            )
        if self.form == "Array" and (twice := duplicates(table.labels)):
            why = f"several columns are called {listed(twice)}, and a dict has each key once"
            raise obstacles.refuse_column(why, code="duplicate-names", fixes=[RENAME])
        return super().table_reasons(table)

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        plain = table.single or self.form == "Array"  # the labels are not names, or keys of a dict
        return () if plain else text_warnings("pyarrow", table.labels)

    def column_reasons(self, column: Column) -> list[Reason]:
        reasons = column.arrow_reasons()
        if self.form in ("RecordBatch", "Array") and column.length:
            chunks = getattr(column, "chunk_count", None)
            if chunks is None:
                chunks = len(column.chunks) if isinstance(column, ArrowColumn) else 1
            other = "Table" if self.form == "RecordBatch" else "ChunkedArray"
            if chunks != 1 and column.field is not None and column.field.kind in ("string", "binary"):
                column.text()  # refuses more bytes than the offsets of one array can count
            why = f"it has {chunks} chunks, and a pyarrow.{self.form} has one"
            fixes = [Fix(to=f"pyarrow.{other}")]
            reasons += [Reason(why, code="chunks", fixes=fixes)] if chunks != 1 else []
        return reasons

    def take(self, array: Any, rows: Any) -> Any:
        """Return a copy of rows, an array of integers, of an array or of a column."""
        return take(self.module(), array, rows)

    def items(self, lists: Any) -> Any:
        """Return the items of lists, or of views of lists, that are not null."""
        return items_of(self.module(), lists)

    def own_items(self, table: Any) -> Any:
        """Return a table whose lists and text have the items of its rows alone."""
        pa = self.module()
        columns = [own_items(pa, column) for column in table.columns]
        return pa.Table.from_arrays(columns, schema=table.schema)

    @cached_property
    def plain_types(self) -> frozenset[Any]:
        """The types that pass between tables without a plan: numbers, booleans and text."""
        pa = self.module()
        numbers = {getattr(pa, name)() for name in _NUMBERS if name != "float16"}
        return frozenset((*numbers, pa.bool_(), pa.string(), pa.large_string()))

    def as_array(self, obj: Any) -> Any:
        """Return an object that exports an array of Arrow data as a ``pyarrow.Array``."""
        pa = self.module()
        return obj if isinstance(obj, pa.Array) else pa.array(obj)

    def as_table(self, obj: Any, schema: Any = None) -> Any:
        """Return an object that exports a table of Arrow data as a ``pyarrow.Table``.

        If `schema` is that of the single array that the object exports, only the array is imported: 300
        columns of polars take 300 us instead of 430.
        """
        pa = self.module()
        if isinstance(obj, pa.RecordBatch):
            return pa.Table.from_batches([obj])
        if isinstance(obj, pa.Table):
            return obj
        # Of the type: a lookup in a frame of polars, which lacks it, takes 3 us.
        by_array = getattr(type(obj), "__arrow_c_array__", None)
        if schema is None or core is None:
            table = pa.table(obj)
        else:
            array = core.read_single_array((by_array or type(obj).__arrow_c_stream__)(obj))
            batch = array.import_by(pa.RecordBatch._import_from_c, schema)
            table = pa.Table.from_batches([batch], schema)
        if by_array is not None:  # it may have the caller's buffers, or be a part of a struct
            table.validate()
        return table

    def fast_importers(self) -> dict[str, Callable[..., Any]]:
        pa = self.module()
        if self.form not in (None, "Table"):
            return {}

        def of_hub(named: tuple[str | None, Any, Any]) -> Any:
            name, arrow, schema = named
            if name is not None and self.form is not None:
                raise ValueError("a column: the slow path makes a table of it")
            return self.as_table(arrow, schema) if name is None else self.as_array(arrow)

        if self.form is not None:
            return {"hub": of_hub}

        from zerocopy.tables.object_column import only_text

        def of_nonnumeric(array: Array) -> Any:
            if array.ndim != 1 or array.dtype.kind not in "SOmM" or not array.flags.c_contiguous:
                return None
            if array.dtype.kind in "mM":
                return times_of(pa, array)
            if array.dtype.kind == "O":
                return only_text(pa, array)
            return self.binary_from_padded(array.view("u1").reshape(len(array), -1)) if array.size else None

        forms: dict[str, Any] = {
            "native": native_importer(pa, _NUMBERS),
            "hub": of_hub,
            "nonnumeric": of_nonnumeric,
        }
        if not hasattr(pa.Array, "from_dlpack"):  # pyarrow 24
            return {"ndarray": flat_importer(pa)} | forms
        flat, tensor, refused = pa.Array.from_dlpack, pa.Tensor.from_dlpack, pa.ArrowInvalid

        def ndarray(array: Any) -> Any:
            if not array.flags.aligned:
                raise BufferError("not aligned to its item size")
            try:
                return flat(array)  # refuses gaps, reversals, booleans and other dimensions
            except refused:
                if array.ndim == 1 or not array.flags.c_contiguous:
                    raise
                return tensor(array)

        return {"ndarray": ndarray} | forms


# The classes of numeric arrays.
#: Arrow's names of types that have another standard name.
_ARROW_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}
_CLASS_NAMES = (
    *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    *("HalfFloat", "Float", "Double"),
)


def _tensor(tensor: Any, name: str) -> Source:
    array = tensor.to_numpy()
    array.flags.writeable = array.flags.writeable and tensor.is_mutable
    dtype = from_numpy(array.dtype)
    if dtype is None:
        raise obstacles.refuse_source_dtype(name, array.dtype, "cast it first")
    view = StridedView(
        address(array), array.shape, array.strides, dtype, HOST, not array.flags.writeable, array
    )
    return Source(name, view, lambda: array, "arrow-buffer")


FRAMEWORK = PyArrow()
