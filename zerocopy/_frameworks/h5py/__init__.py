"""h5py: datasets, which are aliased through a map of the file if they lie in it as one array; not a target.

Others are copied: those in chunks (compressed or not), and those of files that are open for writing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from zerocopy import forks
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy.dtype import from_numpy
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.framework import Framework
from zerocopy.protocols import array_method
from zerocopy.protocols.array_interface import host_view
from zerocopy.protocols.private_map import private_map
from zerocopy.source import Array, Source

_NAME = "h5py.Dataset"
_READ = Fix("{x}[...]", "reads it once", sample=array_method.SAMPLE)
_READ_OBJECTS = replace(_READ, sample=array_method.OF_OBJECTS)

#: The bytes of files that are in use, by device and inode: all aliases of a file share one map.
_maps: WeakValueDictionary[tuple[int, int], Array] = WeakValueDictionary()
_lock = forks.lock()


class H5py(Framework):
    """``h5py.Dataset``."""

    name = "h5py"
    kind = "source"
    root_modules = ("h5py",)
    classes = ("h5py._hl.dataset.Dataset",)
    distribution = "h5py"

    def source(self, obj: Any) -> Source:
        if not obj:
            raise UnsupportedConversionError(
                f"convert({_NAME})",
                "its file is closed",
                "convert it while the file is open",
                code="no-memory",
            )
        if obj.shape is None:
            raise obstacles.refuse_source(
                _NAME, Reason("it has no elements (h5py.Empty)", code="not-an-array")
            )
        if from_numpy(obj.dtype.newbyteorder("=")) is None:  # text, records, arrays as elements, long doubles
            raise obstacles.refuse_source_dtype(
                _NAME, obj.dtype, fixes=[_READ_OBJECTS if obj.dtype.hasobject else _READ]
            )
        why = _obstacle(obj)
        array = _alias(obj) if not why else None
        if array is None:
            source = array_method.describe(obj)
            why = why or "its file cannot be mapped"
            source.name, source.reasons = _NAME, (Reason(why, code="array-method", fixes=[_READ]),)
            return source
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        return Source(_NAME, host_view(array, dtype), lambda: array)


def _obstacle(dataset: Any) -> str:
    """Return why a dataset is not one array of numbers in its file; empty if it is."""
    from h5py import h5d, h5t

    file, identifier = dataset.file, dataset.id
    properties = identifier.get_create_plist()
    if properties.get_layout() != h5d.CONTIGUOUS or properties.get_external_count():
        return "its values are in chunks, in the header, or in other files"
    if file.mode != "r" or file.swmr_mode:
        return (
            "its file is open for writing, and may lack values that HDF5 keeps in buffers (mode 'r' aliases)"
        )
    if file.driver != "sec2":
        return f"its file is read by the driver {file.driver!r}"
    if identifier.get_space_status() != h5d.SPACE_STATUS_ALLOCATED:
        return "its values are not stored: they are the fill value"
    plain = np.dtype(dataset.dtype.str)
    if (
        plain.kind not in "iufc"
        or not plain.isnative
        or not h5t.py_create(plain).equal(identifier.get_type())
    ):
        return f"its stored type is not one of this machine's numbers ({dataset.dtype})"
    return ""


def _alias(dataset: Any) -> Array | None:
    """Return an array over a map of the file; None if it cannot be mapped."""
    try:
        with _lock:
            whole = _mapped(dataset.file, dataset.id.get_offset() + dataset.nbytes)
    except (OSError, ValueError):
        return None
    if whole is None:
        return None
    return np.ndarray(dataset.shape, np.dtype(dataset.dtype.str), whole, dataset.id.get_offset())


def _mapped(file: Any, end: int) -> Array | None:
    """Return the bytes of an open file; None if its path has another one, or it is shorter than `end`."""
    status = os.fstat(file.id.get_vfd_handle())
    if end > status.st_size:
        return None
    key = (status.st_dev, status.st_ino)
    whole = _maps.get(key)
    if whole is not None and end <= whole.size:
        return whole
    # Opened again: a copy of HDF5's descriptor would keep its lock when the file is closed.
    descriptor = os.open(file.filename, os.O_RDONLY)
    try:
        opened = os.fstat(descriptor)
        if (opened.st_dev, opened.st_ino) != key:
            return None
        # Private: targets that cannot mark it as read-only write to pages of their own.
        whole = np.frombuffer(private_map(descriptor, opened.st_size), np.uint8)
    finally:
        os.close(descriptor)
    whole.flags.writeable = False
    _maps[key] = whole
    return whole


FRAMEWORK = H5py()
