"""Checks of ``struct ArrowArray`` against its type, in time that does not depend on the number of rows.

The C data interface has no sizes of buffers, so the end of a buffer cannot be checked here, and a
pointer that is not NULL cannot be checked at all.
"""

from __future__ import annotations

import ctypes
from typing import Any

from zerocopy.protocols.arrow_schema import Field
from zerocopy.protocols.exporter_errors import malformed

#: Buffers of one array, so that a wrong count ends in an error instead of a read of billions of pointers.
MAX_BUFFERS = 1 << 20
_MAX_BYTES = 1 << 63
_VIEWS = ("string_view", "binary_view")
_RUN_ENDS = {"s": ctypes.c_int16, "i": ctypes.c_int32, "l": ctypes.c_int64}


def check_array(asked: str, field: Field, array: Any, on_host: bool) -> None:
    """Check one level of an array, and the lengths of its children; `array` is a ``struct ArrowArray``.

    Raises
    ------
    UnsupportedConversionError
        It violates the specification, and reading it could go out of bounds.
    """
    _check_counts(asked, field, array)
    if array.length < 0 or array.offset < 0 or not -1 <= array.null_count <= array.length:
        counts = f"length {array.length}, offset {array.offset} and null count {array.null_count}"
        raise malformed(asked, f"{counts} are inconsistent")
    if not array.length:
        return
    why = _missing_buffer(field, array) or _wrong_rows(field, array)
    if not why and on_host:
        why = _wrong_offsets(field, array)
    if why:
        raise malformed(asked, f"the {field} array is wrong: {why}")


def _check_counts(asked: str, field: Field, array: Any) -> None:
    has = int(array.n_buffers)
    # View types have one more buffer for each block of text. polars exports null arrays with a
    # bitmap, although they have no buffers ("Null Layout"); pyarrow accepts one.
    spare = field.kind in _VIEWS or (field.kind == "null" and has == 1)
    for part, expected, count in (
        ("children", len(field.children), int(array.n_children)),
        ("buffers", field.buffers, min(has, field.buffers) if spare else has),
        ("dictionaries", int(field.dictionary is not None), int(bool(array.dictionary))),
    ):
        if expected != count:
            why = f"the schema is {field} with {expected} {part}, and the array has {count}"
            raise malformed(asked, why)
    if has > MAX_BUFFERS:
        raise malformed(asked, f"the {field} array has {has:,} buffers, and at most {MAX_BUFFERS:,} are read")
    if has and not array.buffers:
        raise malformed(asked, f"the {field} array has {has} buffers, and the list of them is NULL")
    children = array.n_children
    if children and not (array.children and all(bool(array.children[i]) for i in range(children))):
        raise malformed(asked, f"the {field} array is wrong: one of its children is NULL")
    inner = [array.children[i].contents for i in range(children)]
    if not all(part.release for part in [*inner, *([array.dictionary.contents] if array.dictionary else [])]):
        raise malformed(asked, f"the {field} array is wrong: a part of it was released already")


def _missing_buffer(field: Field, array: Any) -> str:
    kind = field.kind
    if kind in ("union", "run_end_encoded") and array.null_count > 0:
        return f"its null count is {array.null_count}, and such an array has nulls in its children only"
    if kind in ("null", "run_end_encoded"):
        return ""
    if kind == "union":
        required = range(field.buffers)
    else:
        if array.null_count > 0 and not array.buffers[0]:
            return f"{array.null_count} of its rows are null and it has no bitmap"
        required = range(1, {"list_view": 3, "struct": 1, "fixed_list": 1}.get(kind, 2))
    if any(not array.buffers[i] for i in required):
        return f"its length is {array.length} and its buffer is NULL"
    return ""


def _wrong_rows(field: Field, array: Any) -> str:
    kind, stop = field.kind, array.offset + array.length
    lengths = [array.children[i].contents.length for i in range(array.n_children)]
    size = field.list_size if kind == "fixed_list" else 1
    if kind not in ("null", "run_end_encoded") and stop * max(field.width, 16, size) >= _MAX_BYTES:
        return f"it ends at row {stop}, which has no address"
    sparse = kind == "union" and not field.format.startswith("+ud")
    if (kind in ("struct", "fixed_list") or sparse) and any(length < stop * size for length in lengths):
        return f"it needs {stop * size} rows of each child, and they have {lengths}"
    if kind == "run_end_encoded" and not 0 < lengths[0] <= lengths[1]:
        return f"it has {lengths[0]} run ends and {lengths[1]} values for {array.length} rows"
    if kind == "dictionary" and array.null_count == 0 and not array.dictionary.contents.length:
        return f"its dictionary is empty, and none of its {array.length} rows is null"
    return ""


def _wrong_offsets(field: Field, array: Any) -> str:
    """Return the fault of the first and last offset, or of the sizes of the blocks of a view type."""
    kind, stop = field.kind, array.offset + array.length
    if kind in ("string", "binary", "list", "map"):
        item = ctypes.c_int64 if field.wide else ctypes.c_int32
        first, last = (_item(item, array.buffers[1], row) for row in (array.offset, stop))
        if first < 0 or last < first:
            return f"its first offset is {first} and its last {last}"
        if kind in ("list", "map"):
            count = array.children[0].contents.length
            return f"its lists end at {last}, and their elements are {count}" if last > count else ""
        if last and not array.buffers[2]:
            return f"its text ends at byte {last} and its buffer is NULL"
    elif kind in _VIEWS:
        return _wrong_blocks([array.buffers[i] for i in range(2, array.n_buffers)])
    elif kind == "run_end_encoded":
        return _wrong_runs(field.children[0], array.children[0].contents, stop)
    return ""


def _wrong_blocks(buffers: list[int | None]) -> str:
    """Check a view's blocks of text; the last buffer has their sizes."""
    *blocks, sizes = buffers
    if blocks and not sizes:
        return f"it has {len(blocks)} blocks of text and the buffer with their sizes is NULL"
    for i, block in enumerate(blocks):
        size = _item(ctypes.c_int64, sizes, i)
        if size < 0 or (size and not block):
            where = "and its buffer is NULL" if size > 0 else ""
            return f"the size of its block {i} of text is {size} {where}".rstrip()
    return ""


def _wrong_runs(field: Field, ends: Any, stop: int) -> str:
    if ends.offset < 0 or ends.n_buffers != 2 or not ends.buffers or not ends.buffers[1] or ends.null_count:
        return "its run ends have nulls, or their buffer is NULL"
    item = _RUN_ENDS[field.format]
    first, last = (_item(item, ends.buffers[1], ends.offset + row) for row in (0, ends.length - 1))
    if first < 1 or last < stop:
        return f"its runs end at {first} to {last}, and it has {stop} rows"
    return ""


def _item(kind: Any, address: int | None, index: int) -> int:
    value: int = kind.from_address((address or 0) + index * ctypes.sizeof(kind)).value
    return value
