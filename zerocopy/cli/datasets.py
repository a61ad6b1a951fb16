"""Data for trying conversions on: the measurements that we ship, or a file.

A file's numeric columns become one array each, or one 2-D array where all have
one type. What is no array of numbers is left out, and why is kept beside it. With
pyarrow all columns of a table are kept beside the arrays, as Arrow has them.
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

from zerocopy.dtype import from_numpy
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.source import Array

_NPY_MAGIC = b"\x93NUMPY"  # numpy.lib.format, "Format Version 1.0"
_ARROW_MAGIC = b"ARROW1"


class DataError(ValueError):
    """A file cannot be read as arrays: one line that says which and why."""


@dataclass(frozen=True, slots=True)
class Data:
    """Arrays by name, and where they come from.

    Attributes
    ----------
    name : str
        The file's name, or the data set's.
    arrays : dict of str to numpy.ndarray
        Row-major, native byte order, at a multiple of 64 bytes.
    left_out : dict of str to str
        What is in the file and no array of numbers, with the reason.
    note : str
        What else to know of it.
    columns : dict of str to pyarrow.ChunkedArray, or None
        All columns of a table's file, text, dates and nulls too; None of a file of
        arrays, and of one that was read without pyarrow.
    """

    name: str
    arrays: dict[str, Array]
    left_out: dict[str, str] = field(default_factory=dict)
    note: str = ""
    columns: dict[str, Any] | None = None


#: What a reader returns: the arrays, the reasons for what is none, and all columns of a table.
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


def load(path: str | Path) -> Data:
    """Read a file's arrays of numbers.

    Parameters
    ----------
    path : str or Path
        ``.npy``, ``.npz``, ``.csv``; with pyarrow ``.parquet``, ``.arrow`` and
        ``.feather``. Object arrays are refused: reading them runs the file's code.

    Raises
    ------
    DataError
        The file does not exist, is malformed, has another suffix, or holds neither
        arrays of numbers nor columns.
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise DataError(f"{path}: unknown suffix {path.suffix!r}; it can be {known}")
    try:
        found, left_out, columns = reader(path)
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:  # a folder, no permission; also what pyarrow and NumPy call malformed
        raise DataError(f"{path}: cannot be read: {error.strerror or _first_line(error)}") from error
    except MemoryError as error:
        raise DataError(f"{path}: needs more memory than there is ({_first_line(error)})") from error
    except Exception as error:  # of bytes that anyone wrote, four libraries raise anything
        raise DataError(f"{path}: malformed: {_first_line(error)}") from error
    arrays = {name: aligned_copy(array) for name, array in _numbers(found, left_out)}
    if not arrays and not columns:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise DataError(f"{path}: no array of numbers in it" + (f" ({why})" if why else ""))
    return Data(path.name, _together(arrays, path), left_out, columns=columns)


def _first_line(error: BaseException) -> str:
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _numbers(found: dict[str, Array], left_out: dict[str, str]) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of numbers in native order; note the others."""
    for name, array in found.items():
        native = array.dtype.newbyteorder("=")
        if from_numpy(native) is not None:
            yield name, array.astype(native, copy=False)
        elif array.dtype.names:
            left_out[name] = "structured: a table in rows, and its fields are the arrays"
        else:
            left_out[name] = f"{array.dtype} is no type of number"


def _together(arrays: dict[str, Array], path: Path) -> dict[str, Array]:
    """Return columns of one type as one 2-D array; the columns of arrays' files stay apart."""
    columns = list(arrays.values())
    if path.suffix.lower() in (".npy", ".npz") or len(columns) < 2:
        return arrays
    if len({c.dtype for c in columns}) > 1:
        return arrays
    return {path.stem: aligned_copy(np.column_stack(columns))}


# -- NumPy's own files ------------------------------------------------------------


def _npy(path: Path) -> _Read:
    # numpy.load goes by the content and takes whatever it does not know for a
    # pickle: its message would be about pickles.
    with path.open("rb") as file:
        if file.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
            raise DataError(f"{path}: malformed: it does not begin as a .npy file does")
    return {path.stem: _no_pickle(path, path.stem, lambda: np.load(path, allow_pickle=False))}, {}, None


def _npz(path: Path) -> _Read:
    if path.is_file() and not zipfile.is_zipfile(path):
        raise DataError(f"{path}: malformed: it is no whole zip archive, as an .npz file is")
    with np.load(path, allow_pickle=False) as archive:
        found: dict[str, Array] = {}
        left_out: dict[str, str] = {}
        for name in archive.files:
            value = _no_pickle(path, name, lambda name=name: archive[name])  # type: ignore[misc]
            if isinstance(value, np.ndarray):
                found[name] = value
            else:  # a member that is no .npy comes back as its bytes
                left_out[name] = "no .npy in the archive"
    return found, left_out, None


def _no_pickle(path: Path, name: str, read: Callable[[], Array]) -> Array:
    try:
        return read()
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path}: {name!r} holds Python objects, which are not loaded: "
                "loading them would run the file's code"
            ) from error
        raise


# -- text -------------------------------------------------------------------------


def _csv(path: Path) -> _Read:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: malformed: it is no UTF-8 text (byte {error.start})") from error
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows = [(reader.line_num, row) for row in reader if row]
    if not rows:
        raise DataError(f"{path}: malformed: it is empty")
    head = rows[0][1]
    named = not all(_is_number(x) for x in head)
    names = _distinct(head if named else [f"column {i}" for i in range(len(head))])
    for line, row in rows:
        if len(row) != len(head):
            raise DataError(
                f"{path}: malformed: line {line} has {len(row)} fields, the first one has {len(head)}"
            )
    body = [row for _, row in rows[named:]]
    found: dict[str, Array] = {}
    left_out = {}
    for name, *values in zip(names, *body, strict=True):
        parsed = _column(values)
        if isinstance(parsed, str):
            left_out[name] = parsed
        else:
            found[name] = parsed
    return found, left_out, _csv_columns(text, delimiter, names, named, len(body))


def _csv_columns(
    text: str, delimiter: str, names: list[str], named: bool, count: int
) -> dict[str, Any] | None:
    """Return a text's columns with the types that pyarrow finds; None without it."""
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
        return None  # it is stricter than we are, and the arrays are there without it
    # It counts lines otherwise than we do where some are empty: then it has lost one.
    return dict(zip(names, table.columns, strict=True)) if table.num_rows == count else None


def _column(values: list[str]) -> Array | str:
    """Return a column's numbers, as int64 if all are integers, or why it has none."""
    missing = sum(not v.strip() for v in values)
    other = next((v for v in values if v.strip() and not _is_number(v)), None)
    if other is not None:
        shown = other if len(other) <= 24 else other[:21] + "..."
        return f"not numeric: {shown!r}"
    if missing:
        return f"{missing:,} of {len(values):,} values are missing, and an array has no place for that"
    try:
        return np.array([int(v) for v in values], np.int64)
    except ValueError:
        return np.array([float(v) for v in values], np.float64)
    except OverflowError:
        return "integers beyond 64 bits"


def _is_number(text: str) -> bool:
    if "_" in text:  # Python's float takes 1_000; no data file means that
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True


def _distinct(names: list[str]) -> list[str]:
    """Return the names with the repeated and the empty ones made distinct."""
    seen: dict[str, int] = {}
    distinct = []
    for i, name in enumerate(names):
        base = name.strip() or f"column {i}"
        seen[base] = seen.get(base, 0) + 1
        distinct.append(base if seen[base] == 1 else f"{base} ({seen[base]})")
    return distinct


# -- Arrow's files ------------------------------------------------------------------


def _arrow(path: Path) -> _Read:
    pyarrow = _pyarrow(path)
    import pyarrow.ipc as ipc

    with pyarrow.OSFile(str(path)) as file:
        # The file format begins so; the stream format has the same suffix (Arrow
        # Columnar Format, "IPC File Format").
        whole = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        file.seek(0)
        reader = ipc.open_file(file) if whole else ipc.open_stream(file)
        table = reader.read_all()
    # Reading checks no lengths: a buffer shorter than its column would be read past its end.
    table.validate()
    return _columns(pyarrow, table)


def _parquet(path: Path) -> _Read:
    pyarrow = _pyarrow(path)
    import pyarrow.parquet as parquet

    # ParquetFile and not read_table: no data set is to be looked for in the folders around it.
    with parquet.ParquetFile(path) as file:
        table = file.read()
    return _columns(pyarrow, table)


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise DataError(
            f"{path}: reading it needs pyarrow ({_first_line(error)}): pip install pyarrow"
        ) from error
    if not path.exists():
        raise FileNotFoundError(path)
    if path.is_dir():
        raise IsADirectoryError(21, "Is a directory", str(path))
    return pyarrow


def _columns(pyarrow: Any, table: Any) -> _Read:
    types = pyarrow.types
    found, left_out = {}, {}
    columns = dict(zip(_distinct(table.column_names), table.columns, strict=True))
    for name, column in columns.items():
        kind = column.type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            left_out[name] = f"not numeric: {kind}"
        elif column.null_count:
            left_out[name] = f"{column.null_count:,} of {len(column):,} values are null"
        else:
            found[name] = column.to_numpy()
    return found, left_out, columns


_READERS: dict[str, Callable[[Path], _Read]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
}
