"""Valid tables and columns of every framework with columns, with their Python values."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
from random import Random
from typing import Any

import numpy as np

from helpers.hostile.arrow_content import wrong_content
from helpers.hostile.case import Built


def _types() -> list[Any]:
    import pyarrow as pa

    numbers = [
        pa.int8(),
        pa.uint16(),
        pa.int32(),
        pa.int64(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
        pa.float64(),
    ]
    times = [
        pa.date32(),
        pa.date64(),
        pa.time32("ms"),
        pa.time64("us"),
        pa.timestamp("us"),
        pa.duration("ns"),
    ]
    times += [pa.timestamp("ns", "UTC"), pa.timestamp("s", "Europe/Zurich")]
    text = [pa.string(), pa.large_string(), pa.binary(), pa.string_view(), pa.binary_view(), pa.binary(3)]
    other = [pa.bool_(), pa.null(), pa.decimal128(9, 2), pa.decimal256(40, 3)]
    return numbers * 2 + times + text + other


def random_type(rng: Random, depth: int = 2) -> Any:
    """Return an Arrow type, nested at most `depth` deep."""
    import pyarrow as pa

    way = rng.random() if depth else 0.0
    if way < 0.7:
        return rng.choice(_types())
    inner = random_type(rng, depth - 1)
    if way < 0.76:
        return pa.list_(inner)
    if way < 0.79:
        return pa.large_list(inner)
    if way < 0.83:
        return pa.list_(inner, rng.choice([1, 2, 3]))
    if way < 0.92:
        return pa.struct(
            {name: random_type(rng, depth - 1) for name in rng.sample("abcd", rng.choice([1, 2, 3]))}
        )
    if way < 0.96:
        return pa.dictionary(
            rng.choice([pa.int8(), pa.int32(), pa.int64()]), rng.choice([pa.string(), pa.int64()])
        )
    if way < 0.98:
        return pa.map_(pa.string(), inner)
    return pa.list_view(inner)


def random_value(rng: Random, kind: Any, nulls: float) -> Any:
    """Return a Python value of an Arrow type."""
    import pyarrow as pa

    if rng.random() < nulls or pa.types.is_null(kind):
        return None
    t = pa.types
    if t.is_floating(kind):
        return rng.choice([0.0, -1.5, 2.25, float("inf")])
    if t.is_integer(kind):
        return rng.randrange(0, 100)
    if t.is_boolean(kind):
        return rng.random() < 0.5
    if t.is_fixed_size_binary(kind) and not t.is_decimal(kind):
        return rng.randbytes(kind.byte_width)
    if t.is_binary(kind) or t.is_large_binary(kind) or t.is_binary_view(kind):
        return rng.choice([b"", b"abc", b"\xff\x00"])
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return rng.choice(["", "abc", "é😀", "a text of more than twelve bytes"])
    if t.is_decimal(kind):
        return decimal.Decimal(rng.randrange(-99999, 99999)).scaleb(-kind.scale)
    if t.is_date(kind):
        return dt.date(2000, 1, 1) + dt.timedelta(days=rng.randrange(9999))
    if t.is_time(kind):
        return dt.time(rng.randrange(24), 5, 6)
    if t.is_duration(kind):
        return dt.timedelta(seconds=rng.randrange(9999))
    if t.is_timestamp(kind):
        return dt.datetime(2000, 1, 2, 3, 4, 5) + dt.timedelta(hours=rng.randrange(9999))
    return _nested_value(rng, kind, nulls)


def _nested_value(rng: Random, kind: Any, nulls: float) -> Any:
    import pyarrow as pa

    t = pa.types
    if t.is_struct(kind):
        return {f.name: random_value(rng, f.type, nulls) for f in kind}
    if t.is_dictionary(kind):
        return random_value(rng, kind.value_type, 0)
    if t.is_map(kind):
        return [
            (key, random_value(rng, kind.item_type, nulls)) for key in rng.sample("abc", rng.randrange(3))
        ]
    count = kind.list_size if t.is_fixed_size_list(kind) else rng.randrange(4)
    return [random_value(rng, kind.value_type, nulls) for _ in range(count)]


def random_array(rng: Random) -> Any:
    """Return a valid pyarrow array of at most nine rows, which may be a slice."""
    import pyarrow as pa

    kind = random_type(rng)
    nulls = rng.choice([0, 0, 0.3, 1])
    array = pa.array([random_value(rng, kind, nulls) for _ in range(rng.choice([0, 1, 3, 9]))], kind)
    if rng.random() < 0.3 and len(array) > 1:
        array = array.slice(rng.randrange(len(array)), rng.randrange(len(array)))
    return array


def arrow_values(array: Any) -> list[Any] | None:
    """Return an array's Python values, or None for types whose values frameworks represent in other ways."""
    import pyarrow as pa

    t, kind = pa.types, array.type
    if t.is_integer(kind) or t.is_boolean(kind) or t.is_string(kind) or t.is_large_string(kind):
        return list(array.to_pylist())
    return None


def build_table(rng: Random) -> Built:
    """Return a valid table or column of pyarrow, polars, pandas, DuckDB or nanoarrow, or a dict."""
    import pyarrow as pa

    own = Random()
    own.setstate(rng.getstate())
    if own.random() < 0.25:
        array, text = wrong_content(own)
        obj = own.choice([array, pa.chunked_array([array, array])])
        with contextlib.suppress(pa.ArrowException):  # a table is validated, but not in full
            obj = own.choice([obj, pa.table({"a": array})])
        return Built(obj, f"{type(obj).__name__} with wrong {text}", options={"validate": "full"})
    count = rng.choice([0, 1, 5])
    kinds = [random_type(rng) for _ in range(rng.choice([0, 1, 1, 2, 4]))]
    if rng.random() < 0.3:
        kinds = kinds[:1] * 3
    labels = [rng.choice(["a", "b", "", "a b", "é", "index", "__index_level_0__", "0"]) for _ in kinds]
    if rng.random() < 0.85:
        labels = [f"{label}{i}" for i, label in enumerate(labels)]
    nulls = rng.choice([0, 0, 0.4])
    columns = [pa.array([random_value(rng, kind, nulls) for _ in range(count)], kind) for kind in kinds]
    table = pa.table(columns, labels) if kinds else pa.table({})
    if rng.random() < 0.2 and count:
        table = pa.concat_tables([table, table])
    obj, text = _in_framework(rng, table)
    once = text in ("reader", "nanoarrow")
    return Built(obj, f"{text} {table.schema.types} x {table.num_rows} {labels}", once=once)


def _in_framework(rng: Random, table: Any) -> tuple[Any, str]:
    """Return the table as another framework's, made by that framework itself, or unchanged."""
    import nanoarrow
    import pandas as pd
    import polars as pl

    way = rng.choice(
        ["pyarrow", "polars", "lazy", "pandas", "reader", "nanoarrow", "dict", "batch", "column"]
    )
    try:
        if way == "polars":
            return pl.DataFrame(table), way
        if way == "lazy":
            return pl.DataFrame(table).lazy(), way
        if way == "pandas":
            frame = table.to_pandas()
            if rng.random() < 0.3 and len(frame.columns):
                frame = frame.set_index(frame.columns[0])
            return frame, way
        if way == "reader":
            return table.to_reader(), way
        if way == "nanoarrow":
            return nanoarrow.ArrayStream(table), way
        if way == "dict":
            return dict(zip(table.column_names, table.columns, strict=True)), way
        if way == "batch" and table.num_rows:
            return table.combine_chunks().to_batches()[0], way
        if way == "column" and table.num_columns:
            column = table.column(0)
            return rng.choice(
                [column, column.combine_chunks(), pl.Series(column), pd.Series(column.to_pandas())]
            ), way
    except BaseException as error:  # noqa: BLE001 - the framework refuses the table; polars panics
        return table, f"pyarrow (not {way}: {type(error).__name__})"
    return table, "pyarrow"


def structured(rng: Random) -> np.ndarray:
    """Return a structured array with odd but valid fields."""
    kinds = ["f4", "i8", "S3", "U2", "?", "M8[s]", ">i4", ("f4", (2,)), "V2", "S0"]
    names = rng.sample(["a", "b", "c d", "é"], rng.choice([1, 2, 3]))
    dtype = np.dtype([(name, rng.choice(kinds)) for name in names], align=rng.random() < 0.5)
    x = np.zeros(rng.choice([0, 1, 5]), dtype)
    return x[:: rng.choice([1, -1, 2])]
