"""Stubs of cuDF and pylibcudf over host memory, for tests without a GPU.

The stubs have the functions that zerocopy calls, as cuDF's documentation describes them, and use the
stubs of CuPy and the driver in ``cuda_stubs``. A function aliases or copies as in cuDF; a function that
zerocopy must not call raises. tests/gpu checks that cuDF and pylibcudf behave in this way.
"""

from __future__ import annotations

import ctypes
import enum
import sys
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from helpers import cuda_stubs
from zerocopy.protocols import cuda_driver

TypeId = enum.IntEnum(
    "TypeId",
    "EMPTY INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FLOAT32 FLOAT64 BOOL8 TIMESTAMP_DAYS "
    "TIMESTAMP_SECONDS TIMESTAMP_MILLISECONDS TIMESTAMP_MICROSECONDS TIMESTAMP_NANOSECONDS DURATION_DAYS "
    "DURATION_SECONDS DURATION_MILLISECONDS DURATION_MICROSECONDS DURATION_NANOSECONDS DICTIONARY32 STRING "
    "LIST DECIMAL32 DECIMAL64 DECIMAL128 STRUCT",
    start=0,
)
_UNITS = {"s": "SECONDS", "ms": "MILLISECONDS", "us": "MICROSECONDS", "ns": "NANOSECONDS"}
_WIDTHS = {"DECIMAL32": 4, "DECIMAL64": 8, "DECIMAL128": 16, "TIMESTAMP_DAYS": 4, "BOOL8": 1}


class DataType:
    def __init__(self, kind, scale=0):
        self._id, self._scale = kind, scale

    def id(self):
        return self._id

    def scale(self):
        return self._scale


class Span:
    """A buffer of cuDF 26.x: its address and its owner, the only attributes that zerocopy may use."""

    def __init__(self, block):
        self.ptr, self.owner = block.ctypes.data, block


class gpumemoryview:
    def __init__(self, data):
        entry = data.__cuda_array_interface__
        assert entry["strides"] is None or len(entry["shape"]) == 1
        if entry["typestr"][1] not in "uifbMm" or entry["typestr"] == "<f2":
            raise ValueError("Unsupported dtype")
        self.owner, self.ptr = data, entry["data"][0]
        self.__cuda_array_interface__ = entry  # its stream is ignored


class Column:
    def __init__(self, data_type, size, data, mask, null_count, offset, children):
        self._type, self._size, self._data, self._mask = data_type, size, data, mask
        self._nulls, self._offset, self._children = null_count, offset, list(children)

    def type(self):
        return self._type

    def size(self):
        return self._size

    def data(self):
        return self._data

    def null_mask(self):
        return self._mask

    def null_count(self):
        return self._nulls

    def offset(self):
        return self._offset

    def num_children(self):
        return len(self._children)

    def child(self, index):
        return self._children[index]

    def copy(self):
        return Column.from_arrow(self.to_arrow())

    def to_arrow(self):
        machine.log.append("to_arrow")
        return to_arrow(self)

    @staticmethod
    def from_arrow(array):
        machine.log.append("from_arrow")
        return upload(array)

    @classmethod
    def from_cuda_array_interface(cls, obj):
        entry = obj.__cuda_array_interface__
        dtype = np.dtype(entry["typestr"])
        (size,) = entry["shape"]
        assert tuple(entry["strides"]) == (dtype.itemsize,)
        assert entry.get("mask") is None
        kind = TypeId.BOOL8 if dtype.kind == "b" else TypeId[dtype.name.upper()]
        return cls(DataType(kind), size, gpumemoryview(obj), None, 0, 0, [])

    def to_dlpack(self):
        raise AssertionError("to_dlpack copies")


Column.__module__ = "pylibcudf.column"


class Table:
    def __init__(self, columns):
        self._columns = tuple(columns)

    def columns(self):
        return self._columns

    def num_rows(self):
        return self._columns[0].size() if self._columns else 0


Table.__module__ = "pylibcudf.table"


class Scalar:
    @staticmethod
    def from_py(value, dtype):
        scalar = Scalar()
        scalar.value, scalar.dtype = value, dtype
        return scalar


# -- host and "device" ---------------------------------------------------------

machine: cuda_stubs.Machine


def put(array):
    """Return a copy of host bytes in device memory."""
    raw = np.frombuffer(array, np.uint8) if not isinstance(array, np.ndarray) else array.view(np.uint8)
    block = machine.allocate(raw.nbytes)
    block[:] = raw
    return Span(block)


def upload(array) -> Column:
    """Return a new column of an Arrow array in libcudf's layout."""
    array = pa.concat_arrays([array]) if not isinstance(array, pa.ChunkedArray) else array.combine_chunks()
    kind, size = array.type, len(array)
    if pa.types.is_dictionary(kind):
        codes = array.indices.cast(pa.uint8())
        return upload(codes)
    valid = np.array(array.is_valid()) if size else np.zeros(0, bool)
    padded = np.zeros((size + 7) // 8 + 64, np.uint8)
    packed = np.packbits(valid, bitorder="little")
    padded[: len(packed)] = packed
    mask, nulls = (put(padded), array.null_count) if array.null_count else (None, 0)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        _, ends, text = array.buffers()
        wide = pa.types.is_large_string(kind)
        ends = np.frombuffer(ends, "i8" if wide else "i4")[array.offset : array.offset + size + 1]
        of = Column(
            DataType(TypeId.INT64 if wide else TypeId.INT32), size + 1, put(ends.copy()), None, 0, 0, []
        )
        return Column(DataType(TypeId.STRING), size, put(bytes(text or b"")), mask, nulls, 0, [of])
    if pa.types.is_list(kind):
        ends = np.asarray(array.offsets, "i4")
        of = Column(DataType(TypeId.INT32), size + 1, put(ends - ends[0]), None, 0, 0, [])
        return Column(DataType(TypeId.LIST), size, None, mask, nulls, 0, [of, upload(array.flatten())])
    if pa.types.is_struct(kind):
        parts = [upload(array.field(i)) for i in range(kind.num_fields)]
        return Column(DataType(TypeId.STRUCT), size, None, mask, nulls, 0, parts)
    if pa.types.is_decimal(kind):
        name = f"DECIMAL{kind.bit_width}"
        width = kind.bit_width // 8
        raw = np.frombuffer(array.buffers()[1], np.uint8)[
            array.offset * width : (array.offset + size) * width
        ]
        return Column(DataType(TypeId[name], -kind.scale), size, put(raw.copy()), mask, nulls, 0, [])
    if pa.types.is_boolean(kind):
        name, values = "BOOL8", np.array([bool(v) for v in array.to_pylist()], np.uint8)
    elif pa.types.is_timestamp(kind):
        name, values = f"TIMESTAMP_{_UNITS[kind.unit]}", _raw(array, "i8")
    elif pa.types.is_duration(kind):
        name, values = f"DURATION_{_UNITS[kind.unit]}", _raw(array, "i8")
    elif pa.types.is_date32(kind):
        name, values = "TIMESTAMP_DAYS", _raw(array, "i4")
    else:
        dtype = np.dtype(kind.to_pandas_dtype())
        name, values = dtype.name.upper(), _raw(array, dtype)
    return Column(DataType(TypeId[name]), size, put(values.copy()), mask, nulls, 0, [])


def _raw(array, dtype):
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _host(span, nbytes):
    return pa.py_buffer(ctypes.string_at(span.ptr, nbytes)) if span is not None else pa.py_buffer(b"")


def to_arrow(col: Column, dtype=None):
    """Return a copy of a column as a host array."""
    name, rows, size = col.type().id().name, col.offset() + col.size(), col.size()
    mask = _host(col.null_mask(), (rows + 7) // 8) if col.null_count() else None
    if name == "STRING":
        of = col.child(0)
        wide = of.type().id() is TypeId.INT64
        ends = _host(of.data(), (rows + 1) * (8 if wide else 4))
        text = _host(col.data(), int(np.frombuffer(ends, "i8" if wide else "i4")[-1]))
        kind = pa.large_string() if wide else pa.string()
        return pa.Array.from_buffers(kind, size, [mask, ends, text], col.null_count(), col.offset())
    if name == "LIST":
        inner = to_arrow(col.child(1))
        ends = _host(col.child(0).data(), (rows + 1) * 4)
        kind = pa.list_(inner.type)
        return pa.Array.from_buffers(kind, size, [mask, ends], col.null_count(), col.offset(), [inner])
    if name == "STRUCT":
        parts = [to_arrow(col.child(i)) for i in range(col.num_children())]
        names = list(dtype.fields) if dtype is not None else [str(i) for i in range(len(parts))]
        kind = pa.struct([pa.field(n, p.type) for n, p in zip(names, parts, strict=True)])
        return pa.Array.from_buffers(kind, size, [mask], col.null_count(), col.offset(), parts)
    if name == "BOOL8":
        values = np.frombuffer(_host(col.data(), rows), bool)
        values = np.packbits(values, bitorder="little").tobytes()
        return pa.Array.from_buffers(
            pa.bool_(), size, [mask, pa.py_buffer(values)], col.null_count(), col.offset()
        )
    zone = getattr(dtype, "tz", None)
    kind = _arrow_type(name, col.type().scale(), zone)
    width = kind.bit_width // 8
    return pa.Array.from_buffers(
        kind, size, [mask, _host(col.data(), rows * width)], col.null_count(), col.offset()
    )


def _arrow_type(name, scale, zone):
    units = {v: k for k, v in _UNITS.items()}
    family, _, unit = name.partition("_")
    if name == "TIMESTAMP_DAYS":
        return pa.date32()
    if family == "TIMESTAMP":
        return pa.timestamp(units[unit], str(zone) if zone is not None else None)
    if family == "DURATION":
        return pa.duration(units[unit])
    if family.startswith("DECIMAL"):
        bits = int(family[7:])
        make = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128}[bits]
        return make({32: 9, 64: 18, 128: 38}[bits], -scale)
    return pa.from_numpy_dtype(np.dtype(name.lower()))


# -- cudf -----------------------------------------------------------------------


class CategoricalDtype:
    def __init__(self, categories, ordered):
        self.categories, self.ordered = categories, ordered


class StructDtype:
    def __init__(self, fields):
        self.fields = fields


class Series:
    def __init__(self, data=None, index=None, name=None, dtype=None):
        if isinstance(data, Index):
            data, dtype = data._col, data.dtype
        self._col, self.name = data, name
        self.dtype = dtype if dtype is not None else types.SimpleNamespace()
        self.index = index if index is not None else RangeIndex(data.size())

    def __len__(self):
        return self._col.size()

    def to_pylibcudf(self):
        return self._col, {"name": self.name, "index": self.index}

    @classmethod
    def from_pylibcudf(cls, col, metadata=None):
        return cls(col)

    @classmethod
    def from_arrow(cls, array):
        machine.log.append("from_arrow")
        return cls(upload(array), dtype=_dtype_of(array))

    def to_arrow(self):
        machine.log.append("to_arrow")
        values = to_arrow(self._col, self.dtype)
        if isinstance(self.dtype, CategoricalDtype):
            names = to_arrow(self.dtype.categories._col)
            return pa.DictionaryArray.from_arrays(values.cast(pa.int8()), names, ordered=self.dtype.ordered)
        return values

    def memory_usage(self, index):
        assert index is False
        return to_arrow(self._col).nbytes

    def to_frame(self, name):
        return DataFrame({name: self}, self.index)

    def reset_index(self, drop):
        assert drop
        return type(self)(self._col, None, self.name, self.dtype)

    def copy(self, deep):
        return type(self)(self._col.copy() if deep else self._col, self.index, self.name, self.dtype)

    def __getitem__(self, rows):
        start, stop, step = rows.indices(len(self))
        assert step == 1
        col = self._col
        nulls = to_arrow(col)[start:stop].null_count
        part = Column(
            col.type(), stop - start, col.data(), col.null_mask(), nulls, col.offset() + start, col._children
        )
        return type(self)(part, None, self.name, self.dtype)

    @property
    def __cuda_array_interface__(self):
        raise AssertionError("the mask of this interface begins at the wrong row")

    def to_dlpack(self):
        raise AssertionError("to_dlpack copies")

    @property
    def values(self):
        raise AssertionError("values copies if there are nulls, and converts integers to floats")


def _dtype_of(array):
    kind = array.type
    if pa.types.is_dictionary(kind):
        names = array.dictionary if isinstance(array, pa.Array) else array.combine_chunks().dictionary
        return CategoricalDtype(Index(upload(names)), kind.ordered)
    if pa.types.is_timestamp(kind) and kind.tz:
        return pd.DatetimeTZDtype(kind.unit, kind.tz)
    if pa.types.is_struct(kind):
        return StructDtype({f.name: types.SimpleNamespace() for f in kind})
    return types.SimpleNamespace()


class Index:
    def __init__(self, data, names=(None,), dtype=None):
        if isinstance(data, Series):
            data, dtype = data._col, data.dtype
        self._col, self.names = data, list(names)
        self.dtype = dtype if dtype is not None else types.SimpleNamespace()

    def __len__(self):
        return self._col.size()

    def to_pylibcudf(self):
        return self._col, {"name": self.names[0]}


class RangeIndex(Index):
    def __init__(self, stop, start=0, step=1, names=(None,)):
        self.start, self.step, self.names = start, step, list(names)
        self._rows = range(start, stop if step == 1 else start + stop * step, step)

    def __len__(self):
        return len(self._rows)

    def to_pylibcudf(self):
        raise AssertionError("a RangeIndex has no column")

    def to_frame(self, index):
        assert index is False
        label = self.names[0] if self.names[0] is not None else 0
        return DataFrame({label: Series(upload(pa.array(self._rows, pa.int64())))})


class MultiIndex(Index):
    @classmethod
    def from_frame(cls, frame):
        index = cls.__new__(cls)
        index._frame, index.names = frame, list(frame)
        return index

    def __len__(self):
        return len(self._frame)

    def to_frame(self, index):
        assert index is False
        return self._frame


class DataFrame:
    def __init__(self, data=None, index=None):
        self._data = dict(data or {})
        self.index = index if index is not None else RangeIndex(len(next(iter(self._data.values()))))

    def __iter__(self):
        return iter(self._data)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, label):
        if isinstance(label, list):
            return DataFrame({name: self._data[name] for name in label}, self.index)
        return self._data[label]

    def __contains__(self, label):
        return label in self._data

    def reset_index(self):
        [name] = self.index.names
        return DataFrame({"index" if name is None else name: Series(self.index)} | self._data)

    @property
    def dtypes(self):
        return [series.dtype for series in self._data.values()]

    @property
    def iloc(self):
        frame = self

        class _Iloc:
            def __getitem__(self, rows):
                if rows == slice(None, 0):
                    return _Empty(frame)
                part = DataFrame({label: series[rows] for label, series in frame._data.items()})
                start, stop, _ = rows.indices(len(frame))
                part.index = RangeIndex(stop, start)
                return part

        return _Iloc()

    def to_pylibcudf(self):
        return Table([s._col for s in self._data.values()]), {"index": self.index, "columns": list(self)}

    @classmethod
    def from_pylibcudf(cls, table, metadata):
        if not isinstance(metadata, dict) or "columns" not in metadata:
            raise ValueError("Must at least pass metadata dict with column names")
        return cls({n: Series(c) for n, c in zip(metadata["columns"], table.columns(), strict=True)})

    @classmethod
    def from_arrow(cls, table):
        if not isinstance(table, pa.Table):
            raise TypeError("data must be an instance of pyarrow.Table")
        machine.log.append("from_arrow")
        names = table.column_names
        frame = cls(
            {n: Series(upload(c), dtype=_dtype_of(c)) for n, c in zip(names, table.columns, strict=True)}
        )
        frame.pandas_metadata = table.schema.pandas_metadata
        return frame

    def to_dlpack(self):
        raise AssertionError("to_dlpack copies")


class _Empty:
    """A frame without rows, used only for pandas' metadata about the index."""

    def __init__(self, frame):
        self._frame = frame

    def to_arrow(self, preserve_index):
        assert preserve_index is True
        names = [
            n if n is not None else f"__index_level_{i}__" for i, n in enumerate(self._frame.index.names)
        ]
        columns = {str(n): pd.Series(dtype="f8") for n in self._frame}
        empty = pd.DataFrame(columns)
        levels = [pd.Index([], dtype="i8", name=n) for n in self._frame.index.names]
        empty.index = levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels)
        levels = pa.Table.from_pandas(empty, preserve_index=True)
        assert levels.schema.names[-len(names) :] == names
        return levels


for _cls, _module in (
    (Series, "cudf.core.series"),
    (DataFrame, "cudf.core.dataframe"),
    (Index, "cudf.core.index"),
    (RangeIndex, "cudf.core.index"),
    (MultiIndex, "cudf.core.multiindex"),
):
    _cls.__module__ = _module


def install(monkeypatch) -> cuda_stubs.Machine:
    """Install the stubs of CuPy, Numba, cuDF, pylibcudf and the driver's copies."""
    global machine
    machine = cuda_stubs.install(monkeypatch)
    plc, cudf = types.ModuleType("pylibcudf"), types.ModuleType("cudf")
    for cls in (Column, Table, gpumemoryview, DataType, TypeId, Scalar):
        setattr(plc, cls.__name__, cls)
    for cls in (DataFrame, Series, Index, RangeIndex, MultiIndex):
        setattr(cudf, cls.__name__, cls)

    def read_parquet(path, columns, row_groups, use_pandas_metadata, dataset_kwargs):
        assert use_pandas_metadata is False
        assert dataset_kwargs == {"partitioning": None}
        machine.log.append(("read_parquet", path, columns, row_groups, machine.current))
        [numbers] = row_groups
        frame = DataFrame.from_arrow(pq.ParquetFile(path).read_row_groups(numbers, columns=columns))
        levels = (frame.pandas_metadata or {}).get("index_columns", [])
        if levels and levels[0] in columns:
            [label] = levels
            name = None if label.startswith("__index_level_") else label
            frame.index = Index(frame._data.pop(label), names=[name])
        return frame

    def concat(frames, ignore_index):
        assert ignore_index is True
        parts = [pa.table({n: f[n].to_arrow() for n in f}) for f in frames]
        return DataFrame.from_arrow(pa.concat_tables(parts))

    cudf.read_parquet, cudf.concat = read_parquet, concat

    def is_null(col):
        machine.log.append("is_null")
        return upload(to_arrow(col).is_null())

    def replace_nulls(col, scalar):
        assert scalar.dtype.id() is col.type().id()
        machine.log.append("replace_nulls")
        return upload(to_arrow(col).fill_null(scalar.value))

    def mask_to_bools(ptr, begin, end):
        machine.log.append("mask_to_bools")
        packed = np.frombuffer(ctypes.string_at(ptr, (end + 7) // 8), np.uint8)
        return upload(pa.array(np.unpackbits(packed, bitorder="little")[begin:end].astype(bool)))

    plc.unary = types.SimpleNamespace(is_null=is_null)
    plc.replace = types.SimpleNamespace(replace_nulls=replace_nulls)
    plc.transform = types.SimpleNamespace(mask_to_bools=mask_to_bools)
    for name, module in (("pylibcudf", plc), ("cudf", cudf)):
        monkeypatch.setitem(sys.modules, name, module)

    def fetch(to, ptr, nbytes, device, stream):
        machine.log.append(("fetch", nbytes, stream))
        ctypes.memmove(to, ptr, nbytes)

    monkeypatch.setattr(cuda_driver, "fetch", fetch)
    for name in ("wait", "finish", "order"):
        monkeypatch.setattr(cuda_driver, name, lambda *args, name=name: machine.log.append((name, *args)))
    return machine
