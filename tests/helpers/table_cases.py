"""Columns of every type in every shape, and an oracle for results."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy import registry

pa = pytest.importorskip("pyarrow")

#: Installed table frameworks, and installed frameworks with tensors on the host.
TABLES = [n for n, i in registry.frameworks().items() if i.installed and registry.by_name(n).tables]
TENSORS = [
    n
    for n, i in registry.frameworks().items()
    if i.installed and i.kind == "tensor" and "cpu" in registry.by_name(n).device_kinds
]

_NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double")


def values(kind: Any, count: int = 6) -> Any:
    """Return an array of a type with distinct values, none of them null."""
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(count)
    if types.is_boolean(kind):
        return pa.array([i % 3 == 0 for i in range(count)])
    if types.is_floating(kind):
        return pa.array(np.arange(count) * 0.5 - 1).cast(kind)
    if types.is_integer(kind):
        return pa.array(range(count)).cast(kind)
    if types.is_temporal(kind) and not types.is_interval(kind):
        storage = pa.int32() if kind.bit_width == 32 else pa.int64()
        step = 86_400_000 if kind == pa.date64() else 1
        return pa.array([i * step for i in range(count)], storage).view(kind)
    if types.is_decimal(kind):
        return pa.array([Decimal(i).scaleb(-kind.scale) for i in range(count)], kind)
    if types.is_dictionary(kind):
        return pa.array([f"c{i % 3}" for i in range(count)]).dictionary_encode().cast(kind)
    if types.is_fixed_size_binary(kind):
        return pa.array([bytes([65 + i % 26]) * kind.byte_width for i in range(count)], kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, values(kind.storage_type, count))
    if types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(values(kind.value_type, count * kind.list_size), type=kind)
    if types.is_struct(kind):
        return pa.StructArray.from_arrays([values(f.type, count) for f in kind], fields=list(kind))
    if types.is_map(kind):
        return pa.array([[(f"k{i}", i)] for i in range(count)], kind)
    if types.is_list(kind) or types.is_large_list(kind) or "list_view" in str(kind):
        return pa.array([list(range(i % 4)) for i in range(count)], kind)
    texts = ["", "a", "bb", "a text longer than a view holds", "ü", "c"]
    binary = "binary" in str(kind)
    return pa.array([(texts[i % 6].encode() if binary else texts[i % 6]) for i in range(count)], kind)


KINDS = {
    str(kind): kind
    for kind in (
        *(getattr(pa, {"float": "float32", "double": "float64"}.get(n, n))() for n in _NUMBERS),
        *(pa.float16(), pa.bool_(), pa.bool8(), pa.null()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
        *(pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "Europe/Paris"), pa.timestamp("ns")),
        *(pa.duration("s"), pa.duration("us"), pa.binary(5)),
        *(pa.decimal128(20, 3), pa.decimal256(50, 2), pa.decimal32(5, 1), pa.decimal64(12, 4)),
        *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()),
        *(pa.list_(pa.int16()), pa.large_list(pa.int64()), pa.list_(pa.int8(), 3), pa.list_view(pa.int32())),
        *(pa.list_(pa.list_(pa.float32(), 2), 2), pa.struct([("x", pa.int8()), ("y", pa.string())])),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string(), True)),
        *(pa.map_(pa.string(), pa.int64()), pa.fixed_shape_tensor(pa.float32(), [2, 3])),
    )
}

SHAPES = ("plain", "nulls", "slice", "null slice", "chunks", "null chunks", "one row", "empty", "no chunks")


def shaped(kind: Any, shape: str) -> Any:
    """Return a chunked column of a type: with nulls, sliced, in chunks, empty."""
    whole = values(kind, 12)
    if "null" in shape and not pa.types.is_null(kind):
        hidden = pa.array([None if i % 4 == 1 else i for i in range(12)], pa.int64())
        if isinstance(kind, pa.BaseExtensionType):
            whole = pa.ExtensionArray.from_storage(kind, whole.storage.take(hidden))
        else:  # pyarrow has no take() for views
            plain = pa.string() if kind == pa.string_view() else kind
            whole = whole.cast(plain).take(hidden).cast(kind)
    if "slice" in shape:
        whole = whole.slice(3, 7)
    if "chunks" in shape:
        if shape == "no chunks":
            return pa.chunked_array([], type=kind)
        return pa.chunked_array([whole.slice(0, 5), whole.slice(5, 0), whole.slice(5)])
    if shape == "one row":
        whole = whole.slice(2, 1)
    if shape == "empty":
        whole = whole.slice(4, 0)
    return pa.chunked_array([whole])


def storage(column: Any) -> Any:
    """Return the rows of a column's storage: integers for dates, times and decimals."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([c.storage for c in column.chunks], type=kind.storage_type)
        if kind == pa.bool8():
            return [None if v is None else v != 0 for v in column.to_pylist()]
        kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    if pa.types.is_decimal(kind):
        return [None if v is None else int(v.scaleb(kind.scale)) for v in column.to_pylist()]
    return column.to_pylist()


def rows(result: Any) -> list[Any]:
    """Return a result's rows, None where its mask is True."""
    if isinstance(result, zc.Masked):
        hidden = zc.convert(result.mask, "numpy").tolist()
        return [None if h else v for h, v in zip(hidden, rows(result.values), strict=True)]
    if not isinstance(result, zc.Encoded):
        return list(zc.convert(result, "numpy").tolist())
    if isinstance(result.values, dict):
        fields = {name: rows(part) for name, part in result.values.items()}
        return [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
    inner = rows(result.values)
    if result.categories is not None:
        names = rows(result.categories)
        return [names[code] if code is not None and code < len(names) else None for code in inner]
    if result.scale is not None:
        return [_integer(v) for v in inner]
    if result.offsets is None:
        return [bytes(v) if isinstance(v, list) else v for v in inner]
    starts = zc.convert(result.offsets, "numpy").tolist()
    if result.sizes is not None:
        sizes = zc.convert(result.sizes, "numpy").tolist()
        return [inner[s : s + n] for s, n in zip(starts, sizes, strict=True)]
    converted = [inner[a:b] for a, b in itertools.pairwise(starts)]
    if result.type.startswith(("string", "large_string")):
        return [bytes(row).decode() for row in converted]
    if result.type.startswith("map"):
        return [[(row["key"], row["value"]) for row in each] for each in converted]
    return (
        [bytes(row) for row in converted] if result.type.startswith(("binary", "large_binary")) else converted
    )


def _integer(limbs: Any) -> Any:
    """Return a decimal's integer from its limbs, in two's complement."""
    if not isinstance(limbs, list):
        return limbs
    whole = sum(limb << (64 * i) for i, limb in enumerate(limbs))
    return whole - (1 << (64 * len(limbs))) if limbs[-1] >> 63 else whole
