"""Generates loaders from seeds: ``python -m tests.helpers.loader_generator --count 1000``.

`convert` of the whole source is the oracle: the batches have its rows and its types, in the order of the
column ``id``, or both refuse. A finding names its seed.
"""

from __future__ import annotations

import argparse
import datetime
import random
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import zerocopy as zc  # noqa: E402 - after the path is set

SOURCES = ("pyarrow", "polars", "pandas", "pandas of Arrow types", "dict", "dict", "parquet")
TARGETS = ("numpy", "torch", "torch", "pyarrow", "polars", "pandas")

#: Codes of refusals by the loader alone, as docs/loader.md states: keys of `nulls` that `columns` lacks.
DOCUMENTED = frozenset({"unknown-name"})


def _column(rng: random.Random, kind: str, rows: int, has_nulls: bool) -> Any:
    """Return a column of a kind; without nulls, a dict of NumPy arrays can hold the same values."""
    one: Any = {
        "int64": lambda: rng.randrange(-(2**40), 2**40),
        "int32": lambda: rng.randrange(-(2**31), 2**31),
        "uint8": lambda: rng.randrange(256),
        "float64": lambda: float("nan") if rng.random() < 0.2 else rng.randrange(-999, 999) / 4,
        "float32": lambda: rng.randrange(-999, 999) / 4,
        "bool": lambda: rng.random() < 0.5,
        "string": lambda: rng.choice(["Bern", "Oslo", "", "\u00e4\u00f6", "a longer word"]),
        "date": lambda: datetime.date(1970, 1, 1) + datetime.timedelta(rng.randrange(-9999, 9999)),
        "timestamp": lambda: datetime.datetime(1970, 1, 1) + datetime.timedelta(0, rng.randrange(10**9)),
        "category": lambda: rng.choice(["low", "mid", "high"]),
        "fixed": lambda: [rng.randrange(-99, 99) / 2 for _ in range(3)],
        "same length": lambda: [rng.randrange(-99, 99) for _ in range(2)],
        "ragged": lambda: [rng.randrange(-99, 99) for _ in range(rng.randrange(4))],
    }[kind]
    values = [None if has_nulls and rng.random() < 0.2 else one() for _ in range(rows)]
    return pa.array(values, _TYPES[kind])


_TYPES: dict[str, Any] = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "uint8": pa.uint8(),
    "float64": pa.float64(),
    "float32": pa.float32(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "category": pa.dictionary(pa.int32(), pa.string()),
    "fixed": pa.list_(pa.float32(), 3),
    "same length": pa.list_(pa.int64()),
    "ragged": pa.list_(pa.int32()),
}
_NUMBERS = ("int64", "int32", "uint8", "float64", "float32", "bool")


def generated_table(rng: random.Random) -> pa.Table:
    """Return a table of 1 to 40 rows in 1 to 3 chunks; the first column, ``id``, has their numbers."""
    rows = rng.choice((1, 2, 5, 17, 40))
    kinds = _NUMBERS if rng.random() < 0.4 else tuple(_TYPES)
    columns: dict[str, Any] = {"id": pa.array(range(rows), pa.int64())}
    for place in range(rng.randrange(1, 5)):
        kind = rng.choice(kinds)
        columns[f"{kind} {place}"] = _column(rng, kind, rows, rng.random() < 0.3)
    table = pa.table(columns)
    cuts = sorted(rng.randrange(rows + 1) for _ in range(rng.randrange(3)))
    return pa.concat_tables(
        [table.slice(low, high - low) for low, high in zip([0, *cuts], [*cuts, rows], strict=True)]
    )


def source_of(rng: random.Random, kind: str, table: pa.Table, folder: str) -> tuple[Any, Any]:
    """Return the source of a loader, and the object that `convert` takes for the same rows."""
    if kind == "parquet":
        pq.write_table(table, f"{folder}/a.parquet", row_group_size=rng.choice((3, 16, 100)))
        return f"{folder}/a.parquet", pq.read_table(f"{folder}/a.parquet")
    if kind == "polars":
        frame: Any = zc.convert(table, "polars")
    elif kind == "pandas":
        frame = table.to_pandas()
    elif kind == "pandas of Arrow types":
        import pandas

        frame = table.to_pandas(types_mapper=pandas.ArrowDtype)
    elif kind == "dict":
        plain = [name for name in table.column_names if name.split()[0] in ("id", *_NUMBERS)]
        plain = [name for name in plain if not table[name].null_count]
        frame = {name: _strided(rng, table[name].to_numpy()) for name in plain}
        frame["rows"] = _strided(rng, np.arange(table.num_rows * 3.0).reshape(-1, 3))
    else:
        frame = table
    return frame, frame


def _strided(rng: random.Random, array: Any) -> Any:
    """Return the same values in a random layout: unchanged, Fortran order, reversed, or with a step."""
    how, reverse = rng.randrange(4), (slice(None, None, -1),) * array.ndim
    if how == 1:
        return np.asfortranarray(array)
    if how == 2:
        return array[reverse].copy()[reverse]
    return np.repeat(array, 2, axis=-1)[..., ::2] if how == 3 else array


def options_of(rng: random.Random, names: list[str], to: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options of the conversion, and those of the loader alone; most suit the columns."""
    conversion: dict[str, Any] = {}
    if rng.random() < 0.3:
        chosen = ["id", *rng.sample(names[1:], rng.randrange(len(names)))]
        conversion["columns"] = rng.sample(chosen, len(chosen))
    if to in ("numpy", "torch"):  # table targets take none of these options
        kinds = {name.split()[0] for name in conversion.get("columns", names)}
        if rng.random() < (0.2 if "rows" in names else 0.7):  # which converts arrays to a table
            conversion["nulls"] = rng.choice((0, -1, "mask", "mask", "mask", {names[-1]: 7}))
        if rng.random() < (0.1 if kinds <= {"id", "rows", *_NUMBERS} else 0.8):
            conversion["encode"] = True
        if rng.random() < 0.4:
            conversion["lists"] = "pad" if "ragged" in kinds else rng.choice(("dense", "pad"))
        if rng.random() < 0.2:
            conversion["dtype"] = rng.choice(("float32", "float64", "int64"))
        if rng.random() < (0.3 if kinds <= {"id", *_NUMBERS} else 0.03):
            conversion["layout"] = "matrix"
    own = {
        "batch_size": rng.choice((1, 3, 8, 64)),
        "shuffle": rng.choice((False, False, True, 7, "full")),
        "seed": rng.randrange(4),
        "drop_last": rng.random() < 0.2,
    }
    return conversion, own


def check(seed: int) -> Counter[str]:
    """Check the loader of a seed; raise AssertionError. Returns the outcome."""
    rng = random.Random(seed)
    table, kind = generated_table(rng), rng.choice(SOURCES)
    to: Any = rng.choice(TARGETS)
    with tempfile.TemporaryDirectory() as folder:
        source, whole = source_of(rng, kind, table, folder)
        names = list(whole) if isinstance(whole, dict) else table.column_names
        conversion, own = options_of(rng, names, to)
        if to == "pandas":  # the loader reads columns as Arrow's, so batches have Arrow's types
            whole = zc.convert(whole, "pyarrow")
        elif kind == "pandas":
            whole = _without_objects(whole, table.schema)
        try:
            expected: Any = zc.convert(whole, to, **_for_convert(conversion, to))
        except (zc.ZeroCopyError, ValueError) as error:  # an option that the target lacks
            expected = error
        try:
            loader = zc.loader(source, to=to, **conversion, **own)
            batches: Any = list(loader)
        except (zc.ZeroCopyError, ValueError) as error:
            batches = error
    what = (kind, to, conversion, own)
    if isinstance(batches, Exception) or isinstance(expected, Exception):
        partial = own["drop_last"] and table.num_rows % own["batch_size"] > 0
        return _refused(batches, expected, partial, what)
    _compare(batches, expected, conversion, own, what)
    return Counter({f"{to}: equal": 1})


def _without_objects(frame: Any, schema: pa.Schema) -> Any:
    """Return a frame with Arrow's booleans and dates, as which the loader reads objects."""
    import pandas

    plain = [f for f in schema if frame[f.name].dtype == object and not hasattr(f.type, "value_type")]
    return frame.astype({field.name: pandas.ArrowDtype(field.type) for field in plain})


def _for_convert(conversion: dict[str, Any], to: str) -> dict[str, Any]:
    """Return the options of the same conversion by `convert`: a dict of arrays is columns."""
    options = dict(conversion)
    if to in ("numpy", "torch") and "layout" not in options:
        options["layout"] = "columns"
    return options


def _refused(batches: Any, expected: Any, partial: bool, what: Any) -> Counter[str]:
    """Return the outcome if both refuse, or if one of them refuses as documented."""
    for outcome in (batches, expected):
        if isinstance(outcome, Exception) and "please report" in str(outcome):
            raise AssertionError("please report", str(outcome), what)
        if isinstance(outcome, Exception) and not isinstance(outcome, zc.ZeroCopyError):
            raise AssertionError("raw error", repr(outcome), what)
    if isinstance(batches, zc.ZeroCopyError) and isinstance(expected, Exception):
        return Counter({f"both refuse: {batches.code}": 1})
    side = "loader" if isinstance(batches, Exception) else "convert"
    error: Any = batches if side == "loader" else expected
    # Rows that `drop_last` leaves out may have the values that `convert` refuses.
    if (side == "loader" and error.code in DOCUMENTED) or (partial and side == "convert"):
        return Counter({f"{side} alone refuses: {error.code}": 1})
    raise AssertionError(f"{side} alone refuses", error.code, str(error)[:400], what)


def columns_of(result: Any, padded: bool = False) -> Any:
    """Return the rows of each column of a result as Python objects."""
    if isinstance(result, pa.Table):
        return result.to_pydict()
    if hasattr(result, "to_arrow"):
        return result.to_arrow().to_pydict()
    if hasattr(result, "iloc"):
        return {name: [_plain(row) for row in result[name]] for name in result.columns}
    if not isinstance(result, dict):
        result, padded = {"matrix": result}, False  # zeros in a matrix are values of columns, not padding
    return {name: [_plain(row, padded) for row in _rows(part)] for name, part in result.items()}


def _rows(part: Any) -> Any:
    """Return the rows of an array, `Masked` or `Encoded`."""
    return part.to_pylist() if hasattr(part, "to_pylist") else part.tolist()


def _plain(row: Any, padded: bool = False) -> Any:
    if hasattr(row, "tolist"):
        row = row.tolist()
    if isinstance(row, (list, tuple)):
        row = [_plain(item) for item in row]
        while padded and row and row[-1] in (0, None):
            row.pop()
        # The loader's mask has the shape of the values, and that of `convert` one bool per list. A batch of
        # empty lists has no items that could be masked.
        return None if (padded or row) and all(item is None for item in row) else row
    return None if row is None or type(row).__name__ in ("NAType", "NaTType") else row


def types_of(result: Any) -> dict[str, str]:
    """Return the type of each column of a result."""
    if isinstance(result, pa.Table):
        return {field.name: str(field.type) for field in result.schema}
    if hasattr(result, "iloc"):
        return {name: str(result[name].dtype) for name in result.columns}
    if hasattr(result, "to_arrow"):
        return {name: str(kind) for name, kind in result.schema.items()}
    if not isinstance(result, dict):
        result = {"matrix": result}
    return {name: _type(part) for name, part in result.items()}


def _type(part: Any) -> str:
    if isinstance(part, zc.Masked):
        return f"Masked {_type(part.values)}"
    return f"Encoded {part.unit} {part.timezone}" if isinstance(part, zc.Encoded) else str(part.dtype)


def _compare(
    batches: list[Any], expected: Any, conversion: dict[str, Any], own: dict[str, Any], what: Any
) -> None:
    padded = conversion.get("lists") == "pad"
    whole, parts = columns_of(expected, padded), [columns_of(batch, padded) for batch in batches]
    count = len(next(iter(whole.values())))
    sizes = [own["batch_size"]] * (count // own["batch_size"])
    sizes += [count % own["batch_size"]] * (count % own["batch_size"] > 0 and not own["drop_last"])
    got = [len(next(iter(part.values()))) for part in parts]
    assert got == sizes, ("rows of batches", got, sizes, what)
    for batch, part in zip(batches, parts, strict=True):
        assert list(part) == list(whole), ("names", list(part), list(whole), what)
        assert types_of(batch) == types_of(expected), ("types", types_of(batch), types_of(expected), what)
    joined = {name: [row for part in parts for row in part[name]] for name in whole}
    order = _order(joined, conversion)
    if own["shuffle"] is False:
        assert order == list(range(len(order))), ("order", order, what)
    assert len(set(order)) == len(order), ("rows twice", order, what)
    for name, rows in whole.items():
        wanted = [rows[place] for place in order]
        assert repr(joined[name]) == repr(wanted), ("values", name, joined[name], wanted, what)


def _order(joined: dict[str, list[Any]], conversion: dict[str, Any]) -> list[int]:
    """Return the numbers of the delivered rows: the column ``id``, also of a matrix."""
    if "matrix" not in joined:
        return [int(number) for number in joined["id"]]
    place = conversion["columns"].index("id") if "columns" in conversion else 0
    return [int(row[place]) for row in joined["matrix"]]


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
            print(f"seed {seed}:", "".join(traceback.format_exception_only(error))[:900])
    print(dict(outcomes.most_common()))
    print(f"{findings} findings in {options.count} loaders")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
