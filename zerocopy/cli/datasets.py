"""Files of data to convert, for ``--input``, read as `zerocopy.open_weights` and `zerocopy.loader` read them.

A file's numeric columns become one array each, or one 2-D array if they have one dtype. The other
columns are left out with the reason. All columns of a table are kept as Arrow columns too.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from zerocopy.dtype import from_numpy
from zerocopy.errors import FrameworkNotInstalledError, ReadError, ZeroCopyError
from zerocopy.loading.dataset import Stream, concatenate
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.sources.opening import open_source
from zerocopy.pairs.attempt import first_line
from zerocopy.pairs.samples import Data
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.source import Array
from zerocopy.weights.open_weights import open_weights

#: Default of ``--max-bytes``: 1 GiB, of the file and of its content.
MAX_BYTES = 1 << 30

_ARRAYS = (".npy", ".npz")
_SUFFIXES = (*_ARRAYS, ".csv", ".parquet", ".arrow", ".feather")

#: A child that reads may use this many times `max_bytes`: for pages, decompressed values and a copy.
_MEMORY_FACTOR, _MEMORY_EXTRA = 4, 64 << 20
_REFUSED = 3  # the child's exit code if it prints a message
_CHILD = """
import sys
from contextlib import suppress
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

    A child process reads the file first: a file of kilobytes can hold terabytes, and wrong content can
    end the process that reads it.
    """
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise DataError(f"{path}: unknown suffix {path.suffix!r}; known: {', '.join(_SUFFIXES)}")
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
    """Read a file in this process, without a limit on its memory; raise DataError as `load` does."""
    left_out: dict[str, str] = {}
    columns: dict[str, Any] = {}
    try:
        if path.suffix.lower() in _ARRAYS:
            arrays = _arrays(path, left_out, max_bytes)
        else:
            columns = _columns(path, max_bytes)
            arrays = _number_columns(columns, left_out)
    except MemoryError as error:
        why = f"reading it needs more memory than {_memory(max_bytes):,} bytes ({first_line(str(error))})"
        raise DataError(f"{path}: {why}: pass a larger --max-bytes") from error
    except FrameworkNotInstalledError as error:
        raise DataError(f"{path}: {error.why}: {error.remedy}") from error
    except ZeroCopyError as error:
        raise DataError(f"{path}: {first_line(error.why)}") from error
    if len(arrays) > 1 and columns and len({array.dtype for array in arrays.values()}) == 1:
        arrays = {path.stem: np.column_stack(list(arrays.values()))}
    if not arrays and not columns:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise DataError(f"{path}: it has no array of numbers" + (f" ({why})" if why else ""))
    aligned = {name: aligned_copy(array) for name, array in arrays.items()}
    return Data(path.name, aligned, left_out, columns=columns)


def _check_size(path: Path, nbytes: int, max_bytes: int) -> None:
    if nbytes > max_bytes:
        why = f"it has {nbytes:,} bytes, more than the limit of {max_bytes:,}"
        raise DataError(f"{path}: {why}: pass a larger --max-bytes")


def _arrays(path: Path, left_out: dict[str, str], max_bytes: int) -> dict[str, Array]:
    """Return the arrays of numbers in native byte order; add the others to `left_out`."""
    opened = open_weights(path)
    _check_size(path, opened.nbytes, max_bytes)
    numbers = {}
    for name in opened:
        try:
            array = opened[name]
        except ReadError as error:
            left_out[name] = first_line(error.why)
            continue
        native = array.dtype.newbyteorder("=")
        if from_numpy(native) is not None:
            numbers[name] = array.astype(native, copy=False)
        elif array.dtype.names:
            left_out[name] = "structured: convert its fields one by one"
        else:
            left_out[name] = f"{array.dtype} is not a numeric type"
    return numbers


def _columns(path: Path, max_bytes: int) -> dict[str, Any]:
    """Return all columns of a table in a file."""
    source = open_source(path, LoaderOptions("pyarrow"))
    tables, nbytes = [source.empty()], 0
    for table in source.batches() if isinstance(source, Stream) else source.all_groups():
        nbytes += table.nbytes
        _check_size(path, nbytes, max_bytes)
        tables.append(table)
    whole = concatenate(tables).combine_chunks()
    try:
        whole.validate(full=True)  # readers of Parquet do not check text
    except ValueError as error:
        raise DataError(f"{path}: malformed: {first_line(str(error))}") from error
    return dict(zip(whole.column_names, whole.columns, strict=True))


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
    if Path(path).suffix.lower() not in _ARRAYS:
        with suppress(ImportError):  # the readers that need it report it
            import pyarrow.dataset
            import pyarrow.parquet  # noqa: F401
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
