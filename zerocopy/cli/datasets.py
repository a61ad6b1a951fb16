"""Data to convert: the iris measurements that zerocopy ships, or a file.

A file's numeric columns become one array each, or one 2-D array if they have one dtype. The other
columns are left out with the reason. With pyarrow, all columns of a table are kept as Arrow columns too.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from zerocopy.cli.input_limits import (
    MAX_BYTES,
    LimitError,
    check_archive,
    check_file,
    check_messages,
    check_parquet,
    check_size,
)
from zerocopy.dtype import from_numpy
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array

_NPY_MAGIC = b"\x93NUMPY"  # numpy.lib.format, "Format Version 1.0"
_ARROW_MAGIC = b"ARROW1"
_PARQUET_ROWS = 4096  # in one batch


class DataError(ValueError):
    """A file cannot be read as arrays; the message is one line."""


@dataclass(frozen=True, slots=True)
class Data:
    """Arrays by name, and their origin; all are row-major, in native byte order and 64-byte aligned."""

    name: str
    arrays: dict[str, Array]
    left_out: dict[str, str] = field(default_factory=dict)  # the reason, by column
    note: str = ""
    #: All columns of a table, as ``pyarrow.ChunkedArray``. None for arrays, and without pyarrow.
    columns: dict[str, Any] | None = None


#: A reader's result: the arrays, the reasons for columns that are left out, and all columns of a table.
_Read = tuple[dict[str, Array], dict[str, str], dict[str, Any] | None]


def iris() -> Data:
    """Return Fisher's iris measurements: 150 x 4 lengths in cm, float32.

    Examples
    --------
    >>> iris().arrays["iris"].shape
    (150, 4)
    """
    text = (files("zerocopy.cli") / "data" / "iris.csv").read_text(encoding="utf-8")
    rows = [[float(x) for x in line.split(",")] for line in text.splitlines()[1:]]
    array = aligned_copy(np.array(rows, np.float32))
    return Data("iris", {"iris": array}, note="Fisher's flowers, 1936")


def load(path: str | Path, max_bytes: int = MAX_BYTES) -> Data:
    """Read a file's arrays and columns; raise DataError if it has none or cannot be read.

    `max_bytes` limits the file and its decompressed content. Arrow data is validated in full.

    The suffix is ``.npy``, ``.npz``, ``.csv``, or with pyarrow ``.parquet``, ``.arrow`` or
    ``.feather``. Object arrays are refused, because loading them runs the file's code.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: unknown suffix {path.suffix!r}; known: {', '.join(_READERS)}")
    try:
        check_file(path, max_bytes)
        raw, left_out, columns = reader(path, max_bytes)
    except DataError:
        raise
    except LimitError as error:
        raise DataError(f"{path}: {error}") from error
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:  # a folder, no permission; pyarrow and NumPy raise it for malformed files too
        raise DataError(f"{path}: cannot be read: {error.strerror or _first_line(error)}") from error
    except MemoryError as error:
        raise DataError(f"{path}: does not fit into memory ({_first_line(error)})") from error
    except BaseException as error:  # the libraries raise anything for malformed bytes
        if not is_error(error):
            raise
        raise DataError(f"{path}: malformed: {_first_line(error)}") from error
    arrays = {name: aligned_copy(array) for name, array in _select_numbers(raw, left_out)}
    if not arrays and not columns:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise DataError(f"{path}: it has no array of numbers" + (f" ({why})" if why else ""))
    return Data(path.name, _join_columns(arrays, path), left_out, columns=columns)


def _first_line(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return (text.strip() or type(error).__name__).splitlines()[0]


def _select_numbers(arrays: dict[str, Array], left_out: dict[str, str]) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of numbers in native byte order; add the others to `left_out`."""
    for name, array in arrays.items():
        native = array.dtype.newbyteorder("=")
        if from_numpy(native) is not None:
            yield name, array.astype(native, copy=False)
        elif array.dtype.names:
            left_out[name] = "structured: convert its fields one by one"
        else:
            left_out[name] = f"{array.dtype} is not a numeric type"


def _join_columns(arrays: dict[str, Array], path: Path) -> dict[str, Array]:
    """Return the columns of a table as one 2-D array if they have one dtype."""
    is_table = path.suffix.lower() not in (".npy", ".npz")
    if not is_table or len(arrays) < 2 or len({array.dtype for array in arrays.values()}) > 1:
        return arrays
    return {path.stem: aligned_copy(np.column_stack(list(arrays.values())))}


# -- NumPy's files ----------------------------------------------------------------


def _read_npy(path: Path, max_bytes: int) -> _Read:
    # numpy.load treats unknown bytes as a pickle, and its error is about pickles.
    with path.open("rb") as file:
        if file.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
            raise DataError(f"{path}: malformed: it does not begin as a .npy file does")
    return {path.stem: _no_pickle(path, path.stem, lambda: np.load(path, allow_pickle=False))}, {}, None


def _read_npz(path: Path, max_bytes: int) -> _Read:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: malformed: it is not a complete zip archive, as .npz files are")
    check_archive(path, max_bytes)
    with np.load(path, allow_pickle=False) as archive:
        arrays: dict[str, Array] = {}
        left_out: dict[str, str] = {}
        for name in archive.files:
            value = _no_pickle(path, name, lambda name=name: archive[name])  # type: ignore[misc]
            if isinstance(value, np.ndarray):
                arrays[name] = value
            else:  # for other members, NumPy returns bytes
                left_out[name] = "not an .npy file"
    return arrays, left_out, None


def _no_pickle(path: Path, name: str, read: Callable[[], Array]) -> Array:
    try:
        return read()
    except ValueError as error:
        if "allow_pickle" in str(error):
            why = f"{name!r} holds Python objects: loading them would run the file's code"
            raise DataError(f"{path}: {why}") from error
        raise


# -- text -------------------------------------------------------------------------


def _read_csv(path: Path, max_bytes: int) -> _Read:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: malformed: it is not UTF-8 text (byte {error.start})") from error
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = [(reader.line_num, row) for row in reader if row]
    if not rows:
        raise DataError(f"{path}: malformed: it is empty")
    head = rows[0][1]
    named = not all(_is_number(x) for x in head)
    names = _make_distinct(head if named else [f"column {i}" for i in range(len(head))])
    for line, row in rows:
        if len(row) != len(head):
            why = f"line {line} has {len(row)} fields, the first one has {len(head)}"
            raise DataError(f"{path}: malformed: {why}")
    body = [row for _, row in rows[named:]]
    arrays: dict[str, Array] = {}
    left_out = {}
    for name, *values in zip(names, *body, strict=True):
        parsed = _parse_column(values)
        if isinstance(parsed, str):
            left_out[name] = parsed
        else:
            arrays[name] = parsed
    return arrays, left_out, _csv_columns(text, delimiter, names, named, len(body))


def _csv_columns(
    text: str, delimiter: str, names: list[str], named: bool, count: int
) -> dict[str, Any] | None:
    """Return a text's columns with the types that pyarrow infers; None without pyarrow."""
    try:
        from pyarrow import ArrowInvalid, csv
    except ImportError:
        return None
    options = csv.ReadOptions(column_names=names, skip_rows_after_names=int(named))
    try:
        table = csv.read_csv(
            io.BytesIO(text.encode()),
            options,
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            csv.ConvertOptions(strings_can_be_null=True, null_values=[""]),
        )
    except ArrowInvalid:
        return None  # pyarrow's parser is stricter, and the arrays do not need it
    # The row counts differ if pyarrow treats empty lines differently.
    return dict(zip(names, table.columns, strict=True)) if table.num_rows == count else None


def _parse_column(values: list[str]) -> Array | str:
    """Return a column's numbers, as int64 if all are integers, or the reason to leave it out."""
    other = next((v for v in values if v.strip() and not _is_number(v)), None)
    if other is not None:
        shown = other if len(other) <= 24 else other[:21] + "..."
        return f"not numeric: {shown!r}"
    if missing := sum(not v.strip() for v in values):
        return f"{missing:,} of {len(values):,} values are missing, which an array cannot represent"
    try:
        return np.array([int(v) for v in values], np.int64)
    except ValueError:
        return np.array([float(v) for v in values], np.float64)
    except OverflowError:
        return "integers beyond 64 bits"


def _is_number(text: str) -> bool:
    if "_" in text:  # float() takes 1_000, which is not a number in a data file
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def _make_distinct(names: list[str]) -> list[str]:
    """Return the names with repeated and empty ones made distinct."""
    counts: dict[str, int] = {}
    distinct = []
    for i, name in enumerate(names):
        base = name.strip() or f"column {i}"
        counts[base] = counts.get(base, 0) + 1
        distinct.append(base if counts[base] == 1 else f"{base} ({counts[base]})")
    return distinct


# -- Arrow's files ------------------------------------------------------------------


def _read_arrow(path: Path, max_bytes: int) -> _Read:
    pyarrow = _import_pyarrow(path)
    import pyarrow.ipc as ipc

    check_messages(path, max_bytes)
    with pyarrow.OSFile(str(path)) as file:
        # Files and streams have one suffix (Arrow Columnar Format, "IPC File Format").
        is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        file.seek(0)
        reader = ipc.open_file(file) if is_file else ipc.open_stream(file)
        table = reader.read_all()
    return _split_table(pyarrow, table)


def _read_parquet(path: Path, max_bytes: int) -> _Read:
    pyarrow = _import_pyarrow(path)
    import pyarrow.parquet as parquet

    # Not read_table, which looks for a partitioned data set around the file.
    with parquet.ParquetFile(path) as file:
        check_parquet(file, max_bytes)
        batches, total = [], 0
        # In small batches, because one text of a dictionary can have any number of rows.
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
            total += batch.nbytes
            check_size(total, max_bytes, "uncompressed it has at least")
            batches.append(batch)
        table = pyarrow.Table.from_batches(batches, file.schema_arrow).combine_chunks()
    return _split_table(pyarrow, table)


def _import_pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        why = f"reading it needs pyarrow ({_first_line(error)}): pip install pyarrow"
        raise DataError(f"{path}: {why}") from error
    return pyarrow


def _split_table(pyarrow: Any, table: Any) -> _Read:
    # Readers check neither the sizes of buffers nor their content: frameworks would crash.
    table.validate(full=True)
    types = pyarrow.types
    arrays, left_out = {}, {}
    columns = dict(zip(_make_distinct(table.column_names), table.columns, strict=True))
    for name, column in columns.items():
        kind = column.type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            left_out[name] = f"not numeric: {kind}"
        elif column.null_count:
            left_out[name] = f"{column.null_count:,} of {len(column):,} values are null"
        else:
            arrays[name] = column.to_numpy()
    return arrays, left_out, columns


_READERS: dict[str, Callable[[Path, int], _Read]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}
