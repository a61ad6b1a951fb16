"""Columns of nested Arrow types of every layout, in sliced chunks, against the rows of ``to_pylist``."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from random import Random
from typing import Any

from helpers.hostile.case import Built
from helpers.hostile.tables import random_value

_EPOCH = dt.datetime(1970, 1, 1)
_UNITS = {"D": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
TARGETS = ("pyarrow", "polars", "pandas", "duckdb", "nanoarrow", "numpy", "torch")


# -- types ----------------------------------------------------------------------


def _leaves(rng: Random) -> Any:
    import pyarrow as pa

    numbers = [getattr(pa, f"{sign}int{n}")() for sign in ("", "u") for n in (8, 16, 32, 64)]
    numbers += [pa.float16(), pa.float32(), pa.float64(), pa.bool_()]
    times = [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
    times += [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
    times += [pa.duration(unit) for unit in ("s", "ms", "us", "ns")]
    text = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary()]
    text += [pa.binary_view(), pa.binary(3)]
    decimals = [pa.decimal32(7, 2), pa.decimal64(12, 3), pa.decimal128(20, 2), pa.decimal256(40, 3)]
    return rng.choice(rng.choice([numbers, numbers, times, text, [*decimals, pa.null(), pa.bool8()]]))


def nested_type(rng: Random, depth: int) -> Any:
    """Return an Arrow type, nested at most `depth` deep."""
    import pyarrow as pa

    if not depth or rng.random() < 0.08:
        return _leaves(rng)
    way = rng.randrange(22)
    if way < 3:
        index = rng.choice([pa.int8(), pa.uint8(), pa.int32(), pa.int64()])
        words = rng.choice([pa.string(), pa.large_string(), pa.string(), pa.int64(), _leaves(rng)])
        ok = not isinstance(words, pa.BaseExtensionType) and words != pa.null()
        return pa.dictionary(index, words if ok else pa.string())
    if way == 3:
        names = rng.sample("abcd", rng.choice([1, 2]))
        children = [pa.field(name, nested_type(rng, depth - 1)) for name in names]
        return pa.union(children, rng.choice(["sparse", "dense"]))
    if way < 8:
        names = rng.sample("abcd", rng.choice([1, 2, 3]))
        return pa.struct([pa.field(name, nested_type(rng, depth - 1)) for name in names])
    inner = nested_type(rng, depth - 1)
    if way == 8:
        # pyarrow 26 cannot import runs of runs, and to_pylist crashes for null lists of runs of such types.
        if has(
            inner, lambda part: isinstance(part, pa.BaseExtensionType) or pa.types.is_run_end_encoded(part)
        ):
            inner = pa.bool8() if rng.random() < 0.5 else pa.int8()
        return pa.run_end_encoded(rng.choice([pa.int16(), pa.int32(), pa.int64()]), inner)
    if way == 9:
        return pa.map_(pa.string(), inner)
    if way < 14:
        return pa.list_(inner, rng.choice([0, 1, 2, 2, 3]))
    return rng.choice([pa.list_, pa.list_, pa.large_list, pa.list_view, pa.large_list_view])(inner)


def parts(kind: Any) -> list[Any]:
    """Return a type and all types inside it."""
    import pyarrow as pa

    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        inner = [kind.value_type]
    return [kind, *(part for each in inner for part in parts(each))]


def has(kind: Any, test: Callable[[Any], bool]) -> bool:
    """Whether a type, or one inside it, passes a test."""
    return any(map(test, parts(kind)))


# -- arrays ---------------------------------------------------------------------


def nested_array(rng: Random, kind: Any, count: int, nulls: float) -> Any:
    """Return an array of `count` rows: a slice, whose null rows have items."""
    start = rng.choice([0, 0, 1, 3])
    whole = _whole(rng, kind, start + count + rng.choice([0, 0, 2]), nulls)
    return whole.slice(start, count)


def _whole(rng: Random, kind: Any, count: int, nulls: float) -> Any:
    import pyarrow as pa

    t = pa.types
    hidden = [rng.random() < nulls for _ in range(count)]
    mask = pa.array(hidden, pa.bool_()) if nulls else None
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(
            kind, _whole(rng, kind.storage_type, count, nulls).cast(pa.int8())
        )
    if t.is_dictionary(kind):
        words = _whole(rng, kind.value_type, rng.choice([1, 3]), 0)
        codes = [None if null else rng.randrange(len(words)) for null in hidden]
        return pa.DictionaryArray.from_arrays(pa.array(codes, kind.index_type), words)
    if t.is_union(kind):
        ids = [rng.randrange(kind.num_fields) for _ in range(count)]
        types, names = pa.array(ids, pa.int8()), [kind.field(i).name for i in range(kind.num_fields)]
        children = [nested_array(rng, kind.field(i).type, count, nulls) for i in range(kind.num_fields)]
        if kind.mode == "sparse":
            return pa.UnionArray.from_sparse(types, children, names)
        places = [ids[:row].count(of) for row, of in enumerate(ids)]
        return pa.UnionArray.from_dense(types, pa.array(places, pa.int32()), children, names)
    if t.is_struct(kind):
        children = [nested_array(rng, field.type, count, nulls) for field in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if t.is_run_end_encoded(kind):
        ends = sorted({*rng.sample(range(1, count + 1), min(count, 3)), *([count] if count else [])})
        values = nested_array(rng, kind.value_type, len(ends), nulls)
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, kind.run_end_type), values, type=kind)
    if t.is_fixed_size_list(kind):
        items = nested_array(rng, kind.value_type, count * kind.list_size, nulls)
        if not kind.list_size:
            bitmap = pa.array([not null for null in hidden], pa.bool_()).buffers()[1]
            return pa.Array.from_buffers(kind, count, [bitmap], children=[items])
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=mask)
    if kind.num_fields:
        return _lists(rng, kind, count, nulls, mask)
    return pa.array([random_value(rng, kind, nulls) for _ in range(count)], kind)


def _lists(rng: Random, kind: Any, count: int, nulls: float, mask: Any) -> Any:
    import pyarrow as pa

    same = rng.choice([None, None, 2, 0])
    sizes = [rng.randrange(4) if same is None else same for _ in range(count)]
    total, first = sum(sizes), rng.choice([0, 0, 2])
    offsets = [first + sum(sizes[:row]) for row in range(count + 1)]
    if pa.types.is_map(kind):
        keys = pa.array([f"k{i}" for i in range(first + total)], pa.string())
        items = nested_array(rng, kind.item_type, first + total, nulls)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind, mask=mask)
    items = nested_array(rng, kind.value_type, first + total, nulls)
    of, width = {
        "list": (pa.ListArray, pa.int32()),
        "large_list": (pa.LargeListArray, pa.int64()),
        "list_view": (pa.ListViewArray, pa.int32()),
        "large_list_view": (pa.LargeListViewArray, pa.int64()),
    }[str(kind).partition("<")[0]]
    if "view" not in str(kind).partition("<")[0]:
        return of.from_arrays(pa.array(offsets, width), items, type=kind, mask=mask)
    starts = offsets[:-1]
    if rng.random() < 0.6:
        starts = [rng.randrange(len(items) - size + 1) for size in sizes]
    return of.from_arrays(pa.array(starts, width), pa.array(sizes, width), items, type=kind, mask=mask)


# -- values ---------------------------------------------------------------------


def plain(value: Any, kind: Any, numbers: bool) -> Any:
    """Return a value of a type in one form for all frameworks; with `numbers`, times as Arrow's integers."""
    import pyarrow as pa

    t = pa.types
    if value is None:
        return None
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return plain(value, kind.value_type, numbers)
    if t.is_struct(kind):
        return {field.name: plain(value[field.name], field.type, numbers) for field in kind}
    if t.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        pairs = [tuple(pair.values()) if isinstance(pair, dict) else tuple(pair) for pair in pairs]
        return [(key, plain(item, kind.item_type, numbers)) for key, item in pairs]
    if t.is_union(kind):
        return repr(value)
    if kind.num_fields:
        return [plain(item, kind.value_type, numbers) for item in value]
    return _plain_leaf(value, kind, numbers)


def _plain_leaf(value: Any, kind: Any, numbers: bool) -> Any:
    import pyarrow as pa

    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if isinstance(value, dt.timedelta):
        value = value // dt.timedelta(microseconds=1)
    elif isinstance(value, dt.datetime):
        value = (value - _EPOCH) // dt.timedelta(microseconds=1)
    elif isinstance(value, dt.time):
        value = ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
    elif numbers and pa.types.is_temporal(kind):
        unit = "ms" if kind == pa.date64() else "D" if kind == pa.date32() else kind.unit
        value = value // 1000 if unit == "ns" else value * _UNITS[unit]
    if isinstance(value, list) and pa.types.is_fixed_size_binary(kind):
        value = bytes(value)
    if isinstance(value, decimal.Decimal):
        return value.normalize()
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def _rows_of(result: Any, to: str) -> list[Any] | None:
    """Return the Python values of a column of a table framework."""
    import pyarrow as pa

    if to == "polars":
        return list((result if hasattr(result, "to_list") else result.to_series(0)).to_list())
    if to == "duckdb":
        return [row[0] for row in result.fetchall()]
    if to == "pandas":
        series = result if hasattr(result, "to_list") else result.iloc[:, 0]
        if not hasattr(series.array, "__arrow_array__"):
            return list(series)  # booleans of NumPy
        return pa.chunked_array(series.array.__arrow_array__()).to_pylist() if len(series) else []
    column = result.column(0) if isinstance(result, (pa.Table, pa.RecordBatch)) else result
    if to == "nanoarrow":
        column = pa.chunked_array(result)
        if pa.types.is_struct(column.type) and [f.name for f in column.type] == ["x"]:
            return [row["x"] for row in column.to_pylist()]
    return list(column.to_pylist())


# -- cases ----------------------------------------------------------------------


def build(rng: Random) -> Built:
    """Return a column, a table of it, and its target and options, with a check of the values."""
    import pyarrow as pa

    kind = nested_type(rng, rng.choice([1, 2, 3, 4]))
    nulls = rng.choice([0, 0, 0.3, 0.3, 0.9])
    counts = rng.choice([[3], [3], [2, 3], [2, 0, 3], [1, 2, 2], [0], []])
    chunks = [nested_array(rng, kind, count, nulls) for count in counts]
    source = pa.chunked_array(chunks, kind)
    to = rng.choice(TARGETS)
    options: dict[str, Any] = {}
    if to in ("numpy", "torch"):
        options["lists"] = rng.choice([None, None, "dense", "pad", "ragged"])
        options["encode"] = rng.choice([None, True, True])
        options["nulls"] = rng.choice([None, "mask", "mask", 0, "nan"])
        if options["lists"] == "pad":
            options["pad_value"] = rng.choice([None, 0, 1])
            options["max_length"] = rng.choice([None, 0, 2])
    options["copy"] = rng.choice([None, None, None, True, False])
    options = {name: value for name, value in options.items() if value is not None}
    obj: Any = source
    form = rng.choice(["column", "table", "array"])
    if form == "array" and len(chunks) == 1:
        obj = chunks[0]
    elif form == "table" or (to == "torch" and not options.get("encode")):
        obj = pa.table({"x": source})
    text = f"{type(obj).__name__} of {kind} x {counts}, nulls {nulls}"
    rows = source.to_pylist()

    def verify(result: Any) -> str:
        """Return the difference between a result and the rows of Arrow."""
        if to in ("numpy", "torch"):
            if isinstance(result, dict):
                result = result["x"]
            return _tensor_difference(result, rows, kind, options)
        made = _rows_of(result, to)
        if has(kind, pa.types.is_union) and to in ("duckdb", "polars"):
            return ""
        ours, theirs = ([plain(row, kind, False) for row in each] for each in (made, rows))
        return "" if _alike(ours, theirs) else f"rows {ours!r}, expected {theirs!r}"

    return Built(obj, text, target=to, options=options, verify=verify)


def _alike(a: Any, b: Any) -> bool:
    return bool(a == b)


def _tensor_difference(result: Any, rows: list[Any], kind: Any, options: dict[str, Any]) -> str:
    import numpy as np
    import pyarrow as pa

    import zerocopy as zc

    if options.get("nulls") in (0, "nan") and str(None) in str(rows):
        return ""  # values that are filled are tested by tests/tables
    own = isinstance(result, (zc.Masked, zc.Encoded))
    if not own and "encode" not in options and has(kind, pa.types.is_temporal):
        return ""  # NumPy's dates
    if getattr(result, "is_nested", False):
        made = [row.tolist() for row in result.unbind()]
    else:
        made = result.to_pylist() if own else zc.convert(result, "numpy").tolist()
    expected: Any = [_of_items(row, kind) for row in rows] if own else rows
    if isinstance(result, zc.Masked) and not isinstance(result.values, zc.Encoded):
        shape = tuple(np.asarray(zc.convert(result.mask, "numpy")).shape)
    elif not own:
        shape = tuple(result.shape)
    else:
        shape = ()
    if len(shape) > 1 and not own and options.get("lists") != "pad":
        expected = rows
    if options.get("lists") == "pad" and (not own or len(shape) > 1):
        fill = None if own else options.get("pad_value", 0)
        expected = [_padded(row, shape[1:], fill) for row in rows]
    elif len(shape) > 1 and own:
        expected = [_padded(row, shape[1:], None) for row in rows]
    if has(kind, pa.types.is_union):
        return ""
    if own and options.get("lists") == "pad" and has(kind, pa.types.is_struct):
        made = [_without_padding(*pair) for pair in zip(made, expected, strict=True)]
    ours, theirs = (
        [plain(row, kind, numbers) for row in each] for each, numbers in ((made, True), (expected, False))
    )
    return "" if _alike(ours, theirs) else f"rows {ours!r}, expected {theirs!r}"


def _of_items(value: Any, kind: Any) -> Any:
    """Return a value whose null fixed-size lists inside other lists have null items, as masks have."""
    import pyarrow as pa

    if value is None or not kind.num_fields or pa.types.is_union(kind):
        return value
    if pa.types.is_map(kind):
        return [(key, _of_items([item], pa.list_(kind.item_type))[0]) for key, item in value]
    if pa.types.is_struct(kind):
        return {field.name: _of_items(value[field.name], field.type) for field in kind}
    if pa.types.is_run_end_encoded(kind):
        return _of_items(value, kind.value_type)
    inner = kind.value_type
    if pa.types.is_fixed_size_list(inner):
        value = [[None] * inner.list_size if item is None else item for item in value]
    return [_of_items(item, inner) for item in value]


def _without_padding(made: Any, expected: Any) -> Any:
    """Return a row without the padding of lists in structs, which have the length of the longest row."""
    if isinstance(made, dict) and isinstance(expected, dict):
        return {name: _without_padding(item, expected.get(name)) for name, item in made.items()}
    if isinstance(made, list) and isinstance(expected, list) and len(made) >= len(expected):
        return [_without_padding(*pair) for pair in zip(made, expected, strict=False)]
    return made


def _padded(row: Any, shape: tuple[int, ...], fill: Any) -> Any:
    if not shape:
        return row
    items = list(row or [])[: shape[0]]
    return [_padded(item, shape[1:], fill) for item in items] + [
        _filled(shape[1:], fill) for _ in range(shape[0] - len(items))
    ]


def _filled(shape: tuple[int, ...], fill: Any) -> Any:
    return fill if not shape else [_filled(shape[1:], fill) for _ in range(shape[0])]
