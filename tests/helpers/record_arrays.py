"""Structured arrays that a seed makes: ``python -m tests.helpers.record_arrays --count 1000``.

NumPy is the oracle: the fields of the records, one by one, are the columns. A finding names its seed.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import zerocopy as zc  # noqa: E402 - after the path is set

_SCALARS = (
    *("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"),
    *(
        "S1",
        "S3",
        "S8",
        "S0",
        "U1",
        "U3",
        "U0",
        "V1",
        "V5",
        "M8[D]",
        "M8[ms]",
        "M8[ns]",
        "m8[s]",
        "m8[us]",
        "M8[Y]",
    ),
)
_SHAPES = ((1,), (2,), (3,), (2, 2), (1, 3), (0,), (2, 0))
#: Frameworks that hold columns, and the options that are tried with each.
TARGETS = ("dict of numpy", "torch", "pyarrow", "polars", "pandas")


def record_dtype(rng: random.Random, depth: int = 0, overlaps: bool = True) -> np.dtype[Any]:
    """Return a record type: packed, aligned, with gaps, overlapping, in another order, or without fields."""
    count = rng.choice((0, 1, 1, 2, 2, 3, 4, 6)) if depth == 0 else rng.choice((1, 2, 3))
    formats = [_format(rng, depth, overlaps) for _ in range(count)]
    names = rng.sample(["a", "b", "c", "d e", "f" * 40, "\u00e4", "0", "x.y"], count)
    how = rng.choice(
        ("packed", "packed", "aligned", "gaps", "reversed", *(["overlapping"] if overlaps else []))
    )
    if how == "aligned":
        return np.dtype({"names": names, "formats": formats}, align=True)
    offsets, end = [], 0
    for kind in formats:
        end = rng.randrange(12) if how == "overlapping" else end + (rng.randrange(6) if how == "gaps" else 0)
        offsets.append(end)
        end += kind.itemsize
    size = max((at + kind.itemsize for at, kind in zip(offsets, formats, strict=True)), default=0)
    if how == "reversed":
        offsets = [size - at - kind.itemsize for at, kind in zip(offsets, formats, strict=True)]
    spec: dict[str, Any] = {"names": names, "formats": formats, "offsets": offsets}
    spec["itemsize"] = size + (rng.randrange(9) if how == "gaps" else 0)
    if rng.random() < 0.2:
        spec["titles"] = [f"title {name}" if rng.random() < 0.5 else None for name in names]
    return np.dtype(spec)


def _format(rng: random.Random, depth: int, overlaps: bool) -> np.dtype[Any]:
    if depth < 2 and rng.random() < 0.2:
        kind = record_dtype(rng, depth + 1, overlaps)
    else:
        kind = np.dtype(rng.choice(_SCALARS))
        kind = kind.newbyteorder(">") if rng.random() < 0.25 else kind
    shaped = rng.random() < 0.25 and kind.itemsize  # NumPy has no sub-arrays of types without bytes
    return np.dtype((kind, rng.choice(_SHAPES))) if shaped else kind


def records(seed: int) -> np.ndarray[Any, Any]:
    """Return the structured array of a seed, over random bytes with valid text and booleans."""
    rng = random.Random(seed)
    dtype = record_dtype(rng)
    shape = rng.choice(((0,), (1,), (5,), (5,), (64,), (130,), (), (3, 4), (2, 0), (1, 1, 7)))
    step = rng.choice((1, 1, 1, 2, -1, -3))
    base = np.zeros((*(n * abs(step) for n in shape[:1]), *shape[1:]), dtype)
    fill(base, np.random.default_rng(seed))
    array = base[::step] if shape else base
    if rng.random() < 0.2 and dtype.itemsize:  # at an odd address
        memory = np.zeros(array.nbytes + 1, np.uint8)
        moved = memory[1 : 1 + array.nbytes].view(dtype).reshape(array.shape)
        moved[...] = array
        array = moved
    if rng.random() < 0.1:
        array.flags.writeable = False
    return array


def fill(array: np.ndarray[Any, Any], random: np.random.Generator) -> None:
    """Fill each field: text of letters without trailing NULs, booleans of 0 and 1, numbers of random bits."""
    if array.dtype.names is not None:
        for name in array.dtype.names:
            fill(array[name], random)
        return
    kind, shape = array.dtype.kind, array.shape
    if not array.dtype.itemsize:
        return
    if kind in "SU":
        width = array.dtype.itemsize // (4 if kind == "U" else 1)
        letters = random.integers(97, 123, (*shape, width))
        words = np.array(["".join(map(chr, row)) for row in letters.reshape(-1, width)], f"U{width}")
        array[...] = words.reshape(shape).astype(array.dtype.newbyteorder("="))
    elif kind == "?" or kind == "b":
        array[...] = random.integers(0, 2, shape)
    elif kind in "Mm":
        array[...] = random.integers(-1000, 1000, shape).astype(array.dtype.newbyteorder("="))
    elif kind in "fc":
        array[...] = random.integers(-1000, 1000, shape) / 4
    elif kind == "V":
        raw = random.integers(0, 256, (*shape, array.dtype.itemsize), np.uint8)
        array[...] = np.ascontiguousarray(raw).view(array.dtype).reshape(shape)
    else:
        info = np.iinfo(array.dtype)
        array[...] = random.integers(info.min, info.max, shape, array.dtype.newbyteorder("="), endpoint=True)


def leaves(
    array: Any, columns: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield each field without fields: its path, the field of the records, and the column."""
    for name in array.dtype.names:
        field, column = array[name], columns[name]
        if field.dtype.names is not None:
            yield from leaves(field, column, (*path, name))
        else:
            yield (*path, name), field, column


def same(field: Any, column: Any) -> bool:
    """Whether a column has the values of a field, bit for bit in native byte order."""
    if not field.dtype.itemsize:  # NumPy casts to one byte
        return column.shape == field.shape and not column.dtype.itemsize
    native = field.dtype.newbyteorder("=")
    return (
        column.shape == field.shape
        and column.dtype == native
        and np.ascontiguousarray(field.astype(native)).tobytes() == np.ascontiguousarray(column).tobytes()
    )


def equal_records(left: Any, right: Any) -> bool:
    """Whether all fields are the same, whatever the padding holds."""
    if left.dtype.names != right.dtype.names:
        return False
    return all(
        same(field, other.astype(other.dtype.newbyteorder("=")) if other.dtype.itemsize else other)
        for _, field, other in leaves(left, right)
    )


def check(seed: int) -> Counter[str]:
    """Check the array of a seed; raise AssertionError. Returns the outcomes of conversions to tables."""
    array, codes = records(seed), Counter[str]()
    before = [field.tobytes() for _, field, _ in leaves(array, array)] if array.dtype.names else []
    _check_columns(array)
    _check_round_trip(array)
    for target in TARGETS:
        codes[f"{target}: {_check_table(array, target)}"] += 1
    after = [field.tobytes() for _, field, _ in leaves(array, array)] if array.dtype.names else []
    assert after == before, "the source was written to"
    return codes


def _require(holds: object, *detail: Any) -> None:
    if not holds:
        raise AssertionError(*detail)


def _check_columns(array: Any) -> None:
    try:
        columns = zc.aos_to_soa(array)
    except zc.ZeroCopyError as error:
        _require(error.code == "no-fields" and not array.dtype.names, error)
        return
    for path, field, column in leaves(array, columns):
        assert same(field, column), ("aos_to_soa", path, field, column)
    names = array.dtype.names[::-1]
    for name in names[:1]:
        part = zc.aos_to_soa(array, fields=[name])
        assert list(part) == [name]
    try:
        views = zc.aos_to_soa(array, copy=False)
    except zc.CopyRequiredError:
        _require(not _is_native(array.dtype), "copy=False of native records")
        return
    for path, field, column in leaves(array, views):
        assert same(field, column), ("copy=False", path)
        assert not field.nbytes or np.shares_memory(field, column), ("copy=False aliases", path)


def _is_native(dtype: np.dtype[Any]) -> bool:
    if dtype.names is None:
        return dtype.isnative if dtype.subdtype is None else _is_native(dtype.subdtype[0])
    return all(_is_native(dtype[name]) for name in dtype.names)


def _overlaps(dtype: np.dtype[Any]) -> bool:
    """Whether fields share bytes: a later one then overwrites an earlier one."""
    if dtype.subdtype is not None:
        return _overlaps(dtype.subdtype[0])
    if dtype.names is None:
        return False
    used = np.zeros(dtype.itemsize, bool)
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]  # type: ignore[index]
        if used[offset : offset + kind.itemsize].any() or _overlaps(kind):
            return True
        used[offset : offset + kind.itemsize] = True
    return False


def _check_round_trip(array: Any) -> None:
    flat = array.reshape(-1)
    if not array.dtype.names or _overlaps(array.dtype):
        return
    columns = zc.aos_to_soa(flat, copy=True)
    back = zc.soa_to_aos(columns, array.dtype)
    assert back.dtype == array.dtype, (back.dtype, array.dtype)
    assert equal_records(flat, back), "soa_to_aos"
    out = np.zeros_like(flat)
    assert zc.soa_to_aos(columns, out=out) is out
    assert equal_records(flat, out), "soa_to_aos(out=)"
    try:
        packed = zc.soa_to_aos(columns)
    except zc.UnsupportedConversionError as error:
        _require(error.code == "missing-dtype", error)  # NumPy has no sub-arrays of types without bytes
    else:
        assert equal_records(flat, packed), "soa_to_aos without a dtype"


def _check_table(array: Any, target: str) -> str:
    """Convert to a table and back; returns the code of a refusal, or 'equal'."""
    to = "numpy" if target == "dict of numpy" else target
    options = {"layout": "columns"} if to == "numpy" else {}
    plan = zc.explain(array, to, **options)
    try:
        table = zc.convert(array, to, **options)
    except zc.ZeroCopyError as error:
        _require(not plan.possible, "explain: possible", target, error)
        _require("please report" not in str(error), error)
        return error.code
    assert plan.possible, ("explain: refused", target, plan.reasons)
    if not array.dtype.names or (not isinstance(table, dict) and array.ndim != 1):
        return "other"
    if isinstance(table, dict):
        for path, field, column in leaves(array, table):
            column = column.numpy() if to == "torch" else column
            if field.dtype.kind in "mM":  # columns have four units
                field = field.astype(column.dtype)
            assert same(field, column), (target, path, field, column)
    back = None
    if array.ndim == 1 and not _overlaps(array.dtype):
        plan = zc.explain(table, "numpy", layout="records", dtype=array.dtype)
        try:
            back = zc.convert(table, "numpy", layout="records", dtype=array.dtype)
        except zc.ZeroCopyError as error:
            _require(not plan.possible, "explain of records: possible", target, error)
            _require("please report" not in str(error), error)
            return f"back {error.code}"
        assert plan.possible, ("explain of records: refused", target, plan.reasons)
        assert equal_records(array, back), (target, "records", array[:3], back[:3])
    return "equal"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes, findings = Counter[str](), 0
    for seed in range(options.seed, options.seed + options.count):
        try:
            outcomes += check(seed)
        except Exception as error:  # noqa: BLE001 - each finding is printed
            findings += 1
            print(f"seed {seed}: {records(seed).dtype} {records(seed).shape}")
            print("   ", "".join(traceback.format_exception_only(error))[:600])
    print(dict(outcomes.most_common()))
    print(f"{findings} findings in {options.count} arrays")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
