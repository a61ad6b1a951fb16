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
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from zerocopy.dtype import from_numpy
from zerocopy.pairs.samples import Data
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.source import Array

#: Default of ``--max-bytes``: 1 GiB, of the file and of its content.
MAX_BYTES = 1 << 30

_NPY_MAGIC = b"\x93NUMPY"  # numpy.lib.format, "Format Version 1.0"
_ZIP_MAGIC = b"PK\x03\x04"
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
        if not isinstance(content, dict):
            # Readers check neither the sizes of buffers nor their content: frameworks would crash.
            content.validate(full=True)
    except Exception as error:  # the libraries raise anything for malformed bytes
        raise DataError(f"{path}: {_why(error, max_bytes)}") from error
    columns: dict[str, Any] = {}
    if isinstance(content, dict):
        _check_size(path, sum(array.nbytes for array in content.values()), max_bytes)
        arrays = _numbers(content, left_out)
    else:
        _check_size(path, content.nbytes, max_bytes)
        columns = dict(zip(_make_distinct(content.column_names), content.columns, strict=True))
        arrays = _number_columns(columns, left_out)
        if len(arrays) > 1 and len({array.dtype for array in arrays.values()}) == 1:
            arrays = {path.stem: np.column_stack(list(arrays.values()))}
    if not arrays and not columns:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise DataError(f"{path}: it has no array of numbers" + (f" ({why})" if why else ""))
    aligned = {name: aligned_copy(array) for name, array in arrays.items()}
    return Data(path.name, aligned, left_out, columns=columns)


def _reader(path: Path) -> Callable[[Path, dict[str, str]], Any]:
    if path.suffix.lower() not in _READERS:
        raise DataError(f"{path}: unknown suffix {path.suffix!r}; known: {', '.join(_READERS)}")
    return _READERS[path.suffix.lower()]


def _check_size(path: Path, nbytes: int, max_bytes: int) -> None:
    if nbytes > max_bytes:
        why = f"it has {nbytes:,} bytes, more than the limit of {max_bytes:,}"
        raise DataError(f"{path}: {why}: pass a larger --max-bytes")


def _why(error: BaseException, max_bytes: int) -> str:
    """Return why a file cannot be read, on one line."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    line = (text.strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, ImportError):
        return f"reading it needs pyarrow ({line}): pip install pyarrow"
    if isinstance(error, MemoryError):
        limit = f"{_memory(max_bytes):,} bytes"
        return f"reading it needs more memory than {limit} ({line}): pass a larger --max-bytes"
    if isinstance(error, UnicodeDecodeError):
        return f"malformed: it is not UTF-8 text (byte {error.start})"
    if isinstance(error, OSError):  # no permission; pyarrow and NumPy raise it for malformed files too
        return f"cannot be read: {error.strerror or line}"
    if "allow_pickle" in line:
        return "it holds Python objects: loading them would run the file's code"
    return f"malformed: {line}"


def _make_distinct(names: list[str]) -> list[str]:
    """Return the names with repeated and empty ones made distinct."""
    counts: Counter[str] = Counter()
    distinct = []
    for i, name in enumerate(names):
        base = name.strip() or f"column {i}"
        counts[base] += 1
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


def _numbers(arrays: dict[str, Array], left_out: dict[str, str]) -> dict[str, Array]:
    """Return the arrays of numbers in native byte order; add the others to `left_out`."""
    numbers = {}
    for name, array in arrays.items():
        native = array.dtype.newbyteorder("=")
        if from_numpy(native) is not None:
            numbers[name] = array.astype(native, copy=False)
        elif array.dtype.names:
            left_out[name] = "structured: convert its fields one by one"
        else:
            left_out[name] = f"{array.dtype} is not a numeric type"
    return numbers


# -- the child process ------------------------------------------------------------


def _try_in_child(path: Path, max_bytes: int) -> None:
    """Read a file in a child process of limited memory; raise DataError if that fails."""
    # A wrong ZEROCOPY_POOL is an error at import. `-c` adds the working directory to sys.path, where a
    # file could replace a module: the child gets the path of this process.
    environment = {k: v for k, v in os.environ.items() if k != "ZEROCOPY_POOL"} | _CHILD_VARIABLES
    command = [sys.executable, "-c", _CHILD, str(path), str(max_bytes), *sys.path]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="surrogateescape", env=environment, check=False
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
    """Read a file with limited memory, print the message if that fails, and exit."""
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
        print(error, end="", flush=True)
        os._exit(_REFUSED)
    # Without finalizers: threads of pyarrow's readers can abort a process while it ends.
    os._exit(0)


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


def _read_numpy(path: Path, left_out: dict[str, str]) -> dict[str, Array]:
    suffix = path.suffix.lower()
    # numpy.load treats unknown bytes as a pickle, and its error is about pickles.
    with path.open("rb") as file:
        if not file.read(len(_NPY_MAGIC)).startswith(_NPY_MAGIC if suffix == ".npy" else _ZIP_MAGIC):
            raise ValueError(f"it does not begin as {suffix} files do")
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {path.stem: loaded}
    with loaded:
        members = dict(loaded)
    # For members that are not .npy files, NumPy returns bytes.
    left_out |= {name: "not an .npy file" for name, x in members.items() if not isinstance(x, np.ndarray)}
    return {name: x for name, x in members.items() if isinstance(x, np.ndarray)}


def _read_csv(path: Path, left_out: dict[str, str]) -> Any:
    from pyarrow import csv

    text = path.read_text(encoding="utf-8-sig")
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
    from pyarrow import OSFile, ipc

    with OSFile(str(path)) as file:
        # Files and streams have one suffix (Arrow Columnar Format, "IPC File Format").
        is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
        file.seek(0)
        return (ipc.open_file(file) if is_file else ipc.open_stream(file)).read_all()


def _read_parquet(path: Path, left_out: dict[str, str]) -> Any:
    from pyarrow import parquet

    # Not read_table, which looks for a partitioned data set around the file.
    with parquet.ParquetFile(path) as file:
        return file.read().combine_chunks()


_READERS: dict[str, Callable[[Path, dict[str, str]], Any]] = {
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}
