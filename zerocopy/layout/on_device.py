"""Records and columns on a CUDA device: what the public functions say to the kernels there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zerocopy.errors import CopyRequiredError, UnsupportedConversionError
from zerocopy.layout.outputs import listed
from zerocopy.layout.rows import RecordType, record_type
from zerocopy.layout.schema import ASKED, Leaf
from zerocopy.layout.source import known
from zerocopy.protocols import cuda_array_interface

_SOA = "soa_to_aos(columns)"


def is_there(obj: Any) -> bool:
    """Whether an object is in the memory of a CUDA device; Numba's simulator has such arrays too."""
    said = cuda_array_interface.of(obj, "records on a CUDA device")
    return said is not None or getattr(type(obj), "__cuda_ndarray__", False) is True


def aos_to_soa(
    records: Any,
    *,
    fields: Sequence[str] | None,
    out: Any,
    copy: bool | None,
    dtype: Any,
    stream: Any,
) -> tuple[list[Leaf], list[Any]]:
    """Return the leaves of records on a device, and the columns: see :func:`zerocopy.aos_to_soa`."""
    if copy is False:
        raise CopyRequiredError(
            "aos_to_soa(records, copy=False)", "on a device columns are always made", "leave copy=False out"
        )
    given = getattr(records, "dtype", None) if dtype is None else np.dtype(dtype)
    if not isinstance(given, np.dtype) or given.names is None:
        raise UnsupportedConversionError(
            ASKED,
            f"a {type(records).__module__.partition('.')[0]} array of {given} says no fields",
            "pass the records' type: dtype=[('x', 'f4'), ...]",
        )
    kind = record_type(given, None if fields is None else known(fields, given.names))
    _refuse_unmovable(kind, ASKED)
    columns = None if out is None else listed(out, kind.leaves)
    made = _kernels().aos_to_soa(records, kind.leaves, given.itemsize, out=columns, stream=stream)
    return kind.leaves, made


def soa_to_aos(columns: Mapping[str, Any], dtype: Any, *, out: Any, copy: bool | None, stream: Any) -> Any:
    """Return columns on a device as records there: see :func:`zerocopy.soa_to_aos`."""
    if copy is False:
        raise CopyRequiredError(
            "soa_to_aos(columns, copy=False)", "on a device records are always made", "leave copy=False out"
        )
    kind = record_type(_dtype_of(columns) if dtype is None else np.dtype(dtype))
    _refuse_unmovable(kind, _SOA)
    found = listed(columns, kind.leaves, _SOA, "columns")
    size = kind.dtype.itemsize
    made = _kernels().soa_to_aos(found, kind.leaves, size, out=out, stream=stream)
    return made if out is not None else made.view(kind.dtype)


def _kernels() -> Any:
    """Return the module of the device's kernels.

    Raises
    ------
    UnsupportedConversionError
        There is no Numba that has CUDA.
    """
    try:
        from zerocopy.layout.cuda import columns
    except ImportError as error:
        raise UnsupportedConversionError(
            "records on a CUDA device",
            f"the kernels for it need Numba's CUDA: {error}",
            "pip install 'numba-cuda[cu13]' (or cu12); or bring them to the host first",
        ) from error
    return columns


def _refuse_unmovable(kind: RecordType, asked: str) -> None:
    for leaf in kind.leaves:
        if leaf.swap not in (0, 2, 4, 8):
            raise UnsupportedConversionError(
                asked, f"field {leaf.name!r} is {leaf.dtype}, which no device has", "leave it out"
            )


def _dtype_of(columns: Mapping[str, Any]) -> np.dtype[Any]:
    formats: list[Any] = []
    for column in columns.values():
        if isinstance(column, Mapping):
            formats.append(_dtype_of(column))
        else:
            dtype = getattr(column, "dtype", None)
            if not isinstance(dtype, np.dtype):  # torch's, say
                dtype = np.dtype(column.__cuda_array_interface__["typestr"])
            formats.append((dtype, tuple(column.shape)[1:]))
    made: np.dtype[Any] = np.dtype({"names": list(columns), "formats": formats})
    return made
