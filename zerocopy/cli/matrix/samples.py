"""Columns of every type to try conversions on, and whether what came back says the same.

The measure is Arrow, whose types are the most: an array of it is made by hand for each
type, and compared with what a framework gives back. All of it needs pyarrow.
"""

from __future__ import annotations

import itertools
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import zerocopy
from zerocopy import registry
from zerocopy.tables.result import Encoded, Masked

#: What a table of one column calls it.
LABEL = "x"

_HUB = "pyarrow"
_ROWS = 96  # of the samples: in three chunks, a whole number of bytes of bits each
_TEXTS = ("", "a", "Zürich", "longer than the twelve bytes that a view holds", "b")


def missing() -> str | None:
    """Return what to install for columns, or None where they can be had."""
    hub = registry.by_name(_HUB)
    return None if hub.installed() else f"Columns by type need pyarrow: pip install {hub.distribution}"


def samples() -> dict[str, Any]:
    """Return a column of each type, as ``pyarrow.ChunkedArray``, by the type's common name.

    The first word of a name is the type; what follows says how the column lies.
    """
    pa = registry.by_name(_HUB).module()
    rows = range(_ROWS)

    def some(values: list[Any]) -> list[Any]:
        return [None if i % 7 == 3 else value for i, value in enumerate(values)]

    integers = [i * 1_000_003 - 40_000_000 for i in rows]
    texts = [_TEXTS[i % 5] for i in rows]
    days = [date(1969, 12, 1) + timedelta(i) for i in rows]
    moments = [datetime(1969, 12, 1, 23, 59, 59, i) for i in rows]
    third = _ROWS // 3
    chunks = [pa.array(integers[i : i + third]) for i in range(0, _ROWS, third)]
    pairs = pa.struct([("a", pa.int32()), ("b", pa.float64())])
    found = {
        "int64": pa.array(integers),
        "int64 nulls": pa.array(some(integers)),
        "int64 chunks": pa.chunked_array(chunks),
        "float32": pa.array([i / 4 - 3 for i in rows], pa.float32()),
        "bool": pa.array([i % 3 == 0 for i in rows]),
        "bool nulls": pa.array(some([i % 3 == 0 for i in rows])),
        "date": pa.array(days, pa.date32()),
        "timestamp": pa.array(moments, pa.timestamp("us")),
        "timestamp zone": pa.array(moments, pa.timestamp("us", "Europe/Paris")),
        "time": pa.array([time(i % 24, 59, 59, i) for i in rows], pa.time64("us")),
        "duration": pa.array([timedelta(microseconds=i - 5) for i in rows], pa.duration("us")),
        "decimal": pa.array([Decimal(i - 50).scaleb(-2) for i in rows], pa.decimal128(12, 2)),
        "string": pa.array(texts),
        "string nulls": pa.array(some(texts)),
        "binary": pa.array([text.encode() for text in texts]),
        "categorical": pa.array(texts).dictionary_encode(),
        "list": pa.array([list(range(i % 4)) for i in rows], pa.list_(pa.int32())),
        "fixed-size list": pa.array([[i, i + 0.5] for i in rows], pa.list_(pa.float32(), 2)),
        "struct": pa.array([{"a": i, "b": i / 2} for i in rows], pairs),
    }
    return {name: _chunked(pa, column) for name, column in found.items()}


def _chunked(pa: Any, column: Any) -> Any:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def pick(columns: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """Return the columns that have one of the names; the first word of a name or the type will do.

    Raises
    ------
    LookupError
        A name that fits none, with the nearest.
    """
    found: dict[str, Any] = {}
    for word in wanted:
        fits = {
            name: column
            for name, column in columns.items()
            if word in (name, name.partition(" ")[0], str(column.type))
        }
        if not fits:
            import difflib

            near = difflib.get_close_matches(word, columns, n=2)
            hint = (
                f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {', '.join(columns)}"
            )
            raise LookupError(f"no column or type is called {word!r}; {hint}")
        found |= fits
    return {name: column for name, column in columns.items() if name in found}


def made_of(column: Any) -> Any:
    """Return a column as a table of one, called `LABEL`."""
    return registry.by_name(_HUB).module().table({LABEL: column})


def column_of(obj: Any) -> Any:
    """Return the one column of an object of any framework, as ``pyarrow.ChunkedArray``.

    Raises
    ------
    ValueError
        It came back as something else than a table of one column that is called `LABEL`.
    """
    back = zerocopy.convert(obj, to=_HUB)
    names = getattr(back, "column_names", None)
    if names != [LABEL]:
        said = type(back).__name__ if names is None else f"a table of the columns {', '.join(names)}"
        raise ValueError(f"it comes back as {said}")
    return back.column(0)


def told(obj: Any) -> bool:
    """Whether the plan of looking at an object says that something about it changes."""
    plan = zerocopy.explain(obj, _HUB)
    return bool(plan.warnings or plan.reasons or any(leaf.reasons for leaf in plan.leaves.values()))


def compare(expected: Any, found: Any, told: bool) -> list[str]:
    """Return in what a column differs from the one that it was made of.

    Parameters
    ----------
    expected, found : pyarrow.ChunkedArray
    told : bool
        Whether a plan said that the type changes; else a change is a difference.
    """
    if len(found) != len(expected):
        return [f"it has {len(found):,} rows, not {len(expected):,}"]
    wrong = []
    if family(found.type) != family(expected.type) and not told:
        wrong.append(f"the type is {found.type}, not {expected.type}, and no plan says so")
    ours, theirs = _plain(expected), _plain(found)
    if ours.type == theirs.type and ours.equals(theirs):
        return wrong
    if ours.type != theirs.type:
        theirs = _as(theirs, ours.type)
        if ours.type == theirs.type and ours.equals(theirs):
            return wrong
    return wrong + unlike(ours.to_pylist(), theirs.to_pylist())


def unlike(ours: list[Any], theirs: list[Any]) -> list[str]:
    """Return how many rows differ, where some do; NaN is like NaN."""
    if len(ours) != len(theirs):
        return [f"it has {len(theirs):,} rows, not {len(ours):,}"]
    count = sum(a != b and repr(a) != repr(b) for a, b in zip(ours, theirs, strict=True))
    return [f"{count:,} of {len(ours):,} values differ"] if count else []


def family(kind: Any) -> str:
    """Return a type's name without the widths in which the same values can be laid out.

    Text is text with offsets of 32 and of 64 bits, and as views; codes may have any width;
    a boolean is one in a bit and in a byte.
    """
    name = str(kind)
    if hasattr(kind, "extension_name"):
        if kind.extension_name == "arrow.bool8":
            return "bool"
        return family(kind.storage_type)
    if name.startswith("dictionary"):
        return f"dictionary<{family(kind.value_type)}>"
    if name.startswith("struct"):
        return f"struct<{', '.join(f'{f.name}: {family(f.type)}' for f in kind)}>"
    if name.startswith("fixed_size_list"):
        return f"fixed_size_list<{family(kind.value_type)}>[{kind.list_size}]"
    if name.startswith(("list", "large_list")):
        return f"list<{family(kind.value_type)}>"
    return name.removeprefix("large_").removesuffix("_view")


def _plain(column: Any) -> Any:
    """Return a column as it is stored, and floats as their bits: NaN is no reason to differ."""
    pa = registry.by_name(_HUB).module()
    kind, chunks = column.type, column.chunks
    if hasattr(kind, "extension_name"):
        flag = kind.extension_name == "arrow.bool8"
        kind, chunks = kind.storage_type, [chunk.storage for chunk in chunks]
        if flag:
            kind, chunks = pa.bool_(), [chunk.cast(pa.bool_()) for chunk in chunks]
    if str(kind) in ("halffloat", "float", "double"):
        bits = getattr(pa, f"int{kind.bit_width}")()
        kind, chunks = bits, [chunk.view(bits) for chunk in chunks]
    return pa.chunked_array(chunks, type=kind)


def _as(column: Any, kind: Any) -> Any:
    """Return a column in another type, or as it is where Arrow has no way there."""
    pa = registry.by_name(_HUB).module()
    if str(column.type) == "month_day_nano_interval" and str(kind).startswith("duration"):
        rows = [None if row is None else _spans(row) for row in column.to_pylist()]
        return column if "months" in rows else pa.chunked_array([pa.array(rows, kind)])
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return column


def _spans(interval: Any) -> timedelta | str:
    """Return an interval as a duration, or the word for what makes it none."""
    months, days, nanoseconds = interval
    return "months" if months else timedelta(days, microseconds=nanoseconds / 1000)


# -- what tensors say ---------------------------------------------------------------


def stored(column: Any) -> list[Any]:
    """Return a column's rows as tensors have them: integers for dates, times and decimals."""
    pa = registry.by_name(_HUB).module()
    kind, types = column.type, pa.types
    if hasattr(kind, "storage_type") or types.is_floating(kind):
        plain = _plain(column)
        return list(column.to_pylist() if types.is_floating(kind) else plain.to_pylist())
    if types.is_temporal(kind) and not types.is_interval(kind):
        return list(column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist())
    rows = column.to_pylist()
    if types.is_decimal(kind):
        return [None if row is None else int(row.scaleb(kind.scale)) for row in rows]
    return list(rows)


def decoded(result: Any) -> list[Any]:
    """Return the rows of a tensor, a :class:`zerocopy.Masked` or a :class:`zerocopy.Encoded`.

    A row that a mask hides is None. The opposite of what ``nulls=`` and ``encode=`` do.
    """
    if isinstance(result, Masked):
        hidden = decoded(result.mask)
        return [None if h else v for h, v in zip(hidden, decoded(result.values), strict=True)]
    if not isinstance(result, Encoded):
        return list(zerocopy.convert(result, "numpy").tolist())
    if isinstance(result.values, dict):
        fields = {name: decoded(part) for name, part in result.values.items()}
        return [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
    inner = decoded(result.values)
    if result.categories is not None:
        names = decoded(result.categories)
        return [None if code is None else names[code] for code in inner]
    if result.scale is not None:
        return [_integer(limbs) for limbs in inner]
    if result.offsets is None:
        return [bytes(row) if isinstance(row, list) else row for row in inner]
    starts = decoded(result.offsets)
    if result.sizes is None:
        rows = [inner[a:b] for a, b in itertools.pairwise(starts)]
    else:
        rows = [inner[a : a + n] for a, n in zip(starts, decoded(result.sizes), strict=True)]
    if result.type.startswith("map"):
        return [[(pair["key"], pair["value"]) for pair in row] for row in rows]
    if result.type.startswith(("list", "large_list")):
        return rows
    return [bytes(row).decode() if "string" in result.type else bytes(row) for row in rows]


def _integer(limbs: Any) -> Any:
    """Put a decimal's limbs of 64 bits together, the lowest first, two's complement."""
    if not isinstance(limbs, list):
        return limbs
    whole = sum(limb << (64 * i) for i, limb in enumerate(limbs))
    return whole - (1 << (64 * len(limbs))) if limbs[-1] >> 63 else whole
