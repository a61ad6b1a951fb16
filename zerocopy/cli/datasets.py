"""Files of data to convert, for ``--input``.

A file's numeric columns become one array each, or one 2-D array if they have one dtype. The other
columns are left out with the reason. All columns of a table are kept as Arrow columns too.
"""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zerocopy.dtype import from_numpy
from zerocopy.pairs.samples import Data
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array

#: Default of ``--max-bytes``: 1 GiB, of the file and of its content.
MAX_BYTES = 1 << 30

_NPY_MAGIC = b"\x93NUMPY"  # numpy.lib.format, "Format Version 1.0"
_ARROW_MAGIC = b"ARROW1"

#: A child that reads may use this many times `max_bytes`: for pages, decompressed values and a copy.
_MEMORY_FACTOR, _MEMORY_EXTRA = 4, 64 << 20
_REFUSED = 3  # the child's exit code if it prints a message
_CHILD = """
import sys
path, max_bytes, *sys.path = sys.argv[1:]
from zerocopy.cli import datasets
datasets.read_in_child(path, int(max_bytes))
"""
#: Threads' stacks, and memory that other allocators reserve, would count as used.
_CHILD_VARIABLES = {"ARROW_DEFAULT_MEMORY_POOL": "system", "ARROW_IO_THREADS": "1", "OMP_NUM_THREADS": "1"}


class DataError(ValueError):
    """A file cannot be read as arrays; the message is one line."""


def load(path: str | Path, max_bytes: int = MAX_BYTES) -> Data:
    """Read a file's arrays and columns; raise DataError if it has none or cannot be read.

    The suffix is ``.npy`` or ``.npz``, or with pyarrow ``.csv``, ``.parquet``, ``.arrow`` or
    ``.feather``. A child process reads the file first: a file of kilobytes can hold terabytes, and
    wrong content can end the process that reads it.
    """
    path = Path(path)
    _reader(path)
    try:
        status = path.stat()
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):  # a pipe or a device may never end
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise DataError(f"{path}: it is {kind}")
    _check_size(path, status.st_size, max_bytes)
    _try_in_child(path, max_bytes)
    return read(path, max_bytes)


def read(path: Path, max_bytes: int = MAX_BYTES) -> Data:
    """Read a file in this process, without a limit on its memory; raise DataError as `load` does.

    Object arrays are refused, because loading them runs the file's code. Arrow data is validated in full.
    """
    left_out: dict[str, str] = {}
    reader = _reader(path)
    try:
        content = reader(path, left_out)
    except DataError:
        raise
    except OSError as error:  # no permission; pyarrow and NumPy raise it for malformed files too
        raise DataError(f"{path}: cannot be read: {error.strerror or _first_line(error)}") from error
    except MemoryError as error:
        why = f"reading it needs more memory than {_memory(max_bytes):,} bytes ({_first_line(error)})"
        raise DataError(f"{path}: {why}: pass a larger --max-bytes") from error
    except BaseException as error:  # the libraries raise anything for malformed bytes
        if not is_error(error):
            raise
        raise DataError(f"{path}: malformed: {_first_line(error)}") from error
    is_table = not isinstance(content, dict)
    _check_size(path, content.nbytes if is_table else sum(x.nbytes for x in content.values()), max_bytes)
    columns = (
        dict(zip(_make_distinct(content.column_names), content.columns, strict=True)) if is_table else None
    )
    raw = content if columns is None else _number_columns(columns, left_out)
    arrays = {name: aligned_copy(array) for name, array in _select_numbers(raw, left_out)}
    if not arrays and not columns:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise DataError(f"{path}: it has no array of numbers" + (f" ({why})" if why else ""))
    if is_table and len(arrays) > 1 and len({array.dtype for array in arrays.values()}) == 1:
        arrays = {path.stem: aligned_copy(np.column_stack(list(arrays.values())))}
    return Data(path.name, arrays, left_out, columns=columns)


def _reader(path: Path) -> Callable[[Path, dict[str, str]], Any]:
    if path.suffix.lower() not in _READERS:
        raise DataError(f"{path}: unknown suffix {path.suffix!r}; known: {', '.join(_READERS)}")
    return _READERS[path.suffix.lower()]


def _check_size(path: Path, nbytes: int, max_bytes: int) -> None:
    if nbytes > max_bytes:
        why = f"it has {nbytes:,} bytes, more than the limit of {max_bytes:,}"
        raise DataError(f"{path}: {why}: pass a larger --max-bytes")


def _first_line(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return (text.strip() or type(error).__name__).splitlines()[0]


def _make_distinct(names: list[str]) -> list[str]:
    """Return the names with repeated and empty ones made distinct."""
    counts: dict[str, int] = {}
    distinct = []
    for i, name in enumerate(names):
        base = name.strip() or f"column {i}"
        counts[base] = counts.get(base, 0) + 1
        distinct.append(base if counts[base] == 1 else f"{base} ({counts[base]})")
    return distinct


def _number_columns(columns: dict[str, Any], left_out: dict[str, str]) -> dict[str, Array]:
    """Return the columns of numbers without nulls; add the others to `left_out`."""
    from pyarrow import types

    arrays = {}
    for name, column in columns.items():
        if not any(test(column.type) for test in (types.is_integer, types.is_floating, types.is_boolean)):
            left_out[name] = f"not numeric: {column.type}"
        elif column.null_count:
            left_out[name] = f"{column.null_count:,} of {len(column):,} values are null"
        else:
            arrays[name] = column.to_numpy()
    return arrays


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


# -- the child process ------------------------------------------------------------


def _try_in_child(path: Path, max_bytes: int) -> None:
    """Read a file in a child process of limited memory; raise DataError if that fails."""
    # A wrong ZEROCOPY_POOL is an error at import. `-c` adds the working directory to sys.path, where a
    # file could replace a module: the child gets the path of this process.
    environment = {k: v for k, v in os.environ.items() if k != "ZEROCOPY_POOL"} | _CHILD_VARIABLES
    command = [sys.executable, "-c", _CHILD, str(path), str(max_bytes), *sys.path]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment, check=False
    )
    if done.returncode == _REFUSED:
        raise DataError(done.stdout)
    if done.returncode:
        how = f"exit code {done.returncode}"
        if done.returncode < 0:
            how = signal.Signals(-done.returncode).name
        why = f"a process that read it ended with {how}"
        cause = f"it is malformed, or needs more memory than {_memory(max_bytes):,} bytes"
        raise DataError(f"{path}: {why}: {cause}: pass a larger --max-bytes")


def read_in_child(path: str, max_bytes: int) -> None:
    """Read a file with limited memory; print the message and exit if that fails."""
    try:
        import pyarrow.csv
        import pyarrow.ipc
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        pass  # the readers that need it report it
    _limit_memory(_memory(max_bytes))
    try:
        read(Path(path), max_bytes)
    except DataError as error:
        sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # of the path
        print(error, end="")
        sys.exit(_REFUSED)


def _memory(max_bytes: int) -> int:
    return _MEMORY_FACTOR * max_bytes + _MEMORY_EXTRA


def _limit_memory(nbytes: int) -> None:
    """Limit the memory that this process allocates from now on; only Linux has such a limit."""
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
        import resource

        # Not RLIMIT_AS: that counts shared libraries and mapped files too.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = used + nbytes if most == resource.RLIM_INFINITY else min(used + nbytes, most)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    except (OSError, ImportError, ValueError, StopIteration):
        return


# -- readers: each returns arrays by name, or a pyarrow.Table ----------------------


def _read_npy(path: Path, left_out: dict[str, str]) -> dict[str, Array]:
    # numpy.load treats unknown bytes as a pickle, and its error is about pickles.
    with path.open("rb") as file:
        if file.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
            raise DataError(f"{path}: malformed: it does not begin as a .npy file does")
    return {path.stem: _no_pickle(path, path.stem, lambda: np.load(path, allow_pickle=False))}


def _read_npz(path: Path, left_out: dict[str, str]) -> dict[str, Array]:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: malformed: it is not a complete zip archive, as .npz files are")
    arrays: dict[str, Array] = {}
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            value = _no_pickle(path, name, lambda name=name: archive[name])  # type: ignore[misc]
            if isinstance(value, np.ndarray):
                arrays[name] = value
            else:  # for other members, NumPy returns bytes
                left_out[name] = "not an .npy file"
    return arrays


def _no_pickle(path: Path, name: str, read: Callable[[], Array]) -> Array:
    try:
        return read()
    except ValueError as error:
        if "allow_pickle" in str(error):
            why = f"{name!r} holds Python objects: loading them would run the file's code"
            raise DataError(f"{path}: {why}") from error
        raise


def _read_csv(path: Path, left_out: dict[str, str]) -> Any:
    _import_pyarrow(path)
    from pyarrow import csv

    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: malformed: it is not UTF-8 text (byte {error.start})") from error
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    fields = first.split(delimiter)
    # Names that are all numbers are the first row.
    names = [f"column {i}" for i in range(len(fields))] if all(map(_is_number, fields)) else None
    return csv.read_csv(
        io.BytesIO(text.encode()),
        csv.ReadOptions(column_names=names),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        csv.ConvertOptions(strings_can_be_null=True, null_values=[""]),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_arrow(path: Path, left_out: dict[str, str]) -> Any:
    pyarrow = _import_pyarrow(path)
    import pyarrow.ipc as ipc

    with pyarrow.OSFile(str(path)) as file:
        # Files and streams have one suffix (Arrow Columnar Format, "IPC File Format").
        is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        file.seek(0)
        reader = ipc.open_file(file) if is_file else ipc.open_stream(file)
        return _validated(reader.read_all())


def _read_parquet(path: Path, left_out: dict[str, str]) -> Any:
    _import_pyarrow(path)
    import pyarrow.parquet as parquet

    # Not read_table, which looks for a partitioned data set around the file.
    with parquet.ParquetFile(path) as file:
        return _validated(file.read().combine_chunks())


def _import_pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ImportError as error:
        why = f"reading it needs pyarrow ({_first_line(error)}): pip install pyarrow"
        raise DataError(f"{path}: {why}") from error
    return pyarrow


def _validated(table: Any) -> Any:
    # Readers check neither the sizes of buffers nor their content: frameworks would crash.
    table.validate(full=True)
    return table


_READERS: dict[str, Callable[[Path, dict[str, str]], Any]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}
