"""Dicts of arrays, and NumPy's ``.npy`` and ``.npz`` files."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from zerocopy._engine.convert import convert
from zerocopy._engine.target import resolve
from zerocopy.errors import UnsupportedConversionError
from zerocopy.loading.dataset import Dataset
from zerocopy.loading.messages import opening
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.read_error import ReadError
from zerocopy.loading.sources.files import Files
from zerocopy.loading.sources.fitting import choose, fitted
from zerocopy.loading.sources.table import ArrayDataset, TableDataset
from zerocopy.source import Array

#: The name of the one array of a source without names.
_NAME = "data"


def open_arrays(arrays: Mapping[Hashable, Any], options: LoaderOptions, name: str) -> Dataset:
    """Return arrays of any framework whose first dimension is the rows.

    Raises
    ------
    UnsupportedConversionError
        A value is not an array of at least one dimension, or the arrays differ in length.
    """
    chosen = choose(options.columns, list(arrays)) if options.schema is None else list(arrays)
    if not chosen:
        raise UnsupportedConversionError(
            "loader({})", "the dict has no arrays", 'pass arrays: {"x": x, "y": y}', code="not-an-array"
        )
    columns = {label: _rows_of(label, arrays[label], options) for label in chosen}
    lengths = {label: len(array) for label, array in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{label!r} has {count:,}" for label, count in list(lengths.items())[:8])
        why = f"the arrays differ in their number of rows: {listed}"
        fix = "pass arrays with the same length of the first dimension"
        raise UnsupportedConversionError(f"loader({name})", why, fix, code="different-lengths")
    needs_table = options.is_matrix or any(
        option is not None for option in (options.nulls, options.dtype, options.encode, options.schema)
    )
    if not needs_table and resolve(options.to).kind == "tensor":
        return ArrayDataset(columns, name)
    with opening(options, name):
        table = convert({str(label): array for label, array in columns.items()}, "pyarrow")
    opened = fitted(TableDataset(table, None, name), options.columns, options.schema)
    assert isinstance(opened, Dataset)
    return opened


def _rows_of(label: Hashable, value: Any, options: LoaderOptions) -> Array:
    """Return an array on the host, without a copy where possible."""
    with opening(options, f"{{{label!r}: ...}}", is_whole=False):
        array: Array = value if isinstance(value, np.ndarray) else convert(value, "numpy")
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        why = "it is an array of Python objects" if isinstance(array, np.ndarray) else "it is not an array"
        fix = "pass numbers, booleans, times, or a table with columns of text"
        raise UnsupportedConversionError(f"loader(...)[{label!r}]", why, fix, code="python-objects")
    if array.ndim == 0:
        why, fix = "it has no dimension, and so no rows", "pass an array of at least one dimension"
        raise UnsupportedConversionError(f"loader(...)[{label!r}]", why, fix, code="too-few-dimensions")
    return array


def fields_of(array: Array, name: str = _NAME) -> dict[Hashable, Array]:
    """Return the fields of a structured array as columns, or another array under one name."""
    if array.dtype.names and array.ndim == 1:
        return {field: array[field] for field in array.dtype.names}
    return {name: array}


def open_numpy_file(files: Files, options: LoaderOptions) -> Dataset:
    """Return a ``.npy`` or ``.npz`` file; its arrays are memory maps unless they are compressed.

    Raises
    ------
    ReadError
        The file cannot be read, or has Python objects.
    """
    path = files.paths[0]
    if len(files) != 1 or not files.is_local:
        why = "a loader reads only one .npy or .npz file" if files.is_local else "the file is remote"
        fix = 'load arrays yourself: {"x": numpy.load("x.npy", mmap_mode="r"), "y": ...}'
        raise ReadError(files.asked, why, fix, code="several-files", file=path)
    stem = os.path.splitext(os.path.basename(path))[0]
    with files.reading(0, library="NumPy"):
        if path.endswith(".npz"):
            arrays: dict[Hashable, Array] = _members(path)
        else:
            arrays = fields_of(np.lib.format.open_memmap(path, mode="r"), stem)
    opened = open_arrays(arrays, options, os.path.basename(path))
    return _NumpyFile(opened, files)


def _members(path: str) -> dict[Hashable, Array]:
    """Return the arrays of a .npz file."""
    with zipfile.ZipFile(path) as archive:
        return {
            member.filename.removesuffix(".npy"): _mapped(path, archive, member)
            for member in archive.infolist()
        }


def _mapped(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Return an array of an archive: a memory map if it is not compressed."""
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, in_fortran_order, dtype = header(stream)
        size = stream.tell() + math.prod(shape) * dtype.itemsize
        if size != member.file_size and not dtype.hasobject:
            raise ValueError(f"{member.filename} has {member.file_size:,} bytes; its header needs {size:,}")
        if member.compress_type != zipfile.ZIP_STORED or dtype.hasobject or 0 in shape or not shape:
            stream.seek(0)
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
            return array
        start = stream.tell()
    with open(path, "rb") as file:
        # The local header has a name and extra data of its own lengths (APPNOTE.TXT 4.3.7).
        file.seek(member.header_offset + 26)
        sizes = np.frombuffer(file.read(4), "<u2")
    offset = member.header_offset + 30 + int(sizes.sum()) + start
    return np.memmap(path, dtype, "r", offset, shape, "F" if in_fortran_order else "C")


class _NumpyFile(Dataset):
    """Arrays of a file; `read` first checks that the file has not changed."""

    in_memory = True

    def __init__(self, arrays: Dataset, files: Files) -> None:
        self._arrays, self._files = arrays, files
        self.name, self.schema, self.groups = arrays.name, arrays.schema, arrays.groups

    def read(self, index: int) -> Any:
        self._files.check(0)
        return self._arrays.read(index)

    def fingerprint(self) -> str:
        return self._files.fingerprint()
