"""Records and columns on a CUDA device: the public functions' arguments, passed on to its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from zerocopy.errors import UnsupportedConversionError
from zerocopy.layout.outputs import by_leaf
from zerocopy.layout.record_source import check_fields
from zerocopy.layout.schema import (
    AOS_TO_SOA,
    SOA_TO_AOS,
    FieldLeaf,
    RecordType,
    copy_required,
    dtype_of,
    record_type,
)
from zerocopy.protocols import cuda_array_interface


def is_on_device(obj: Any) -> bool:
    """Whether an object is in CUDA device memory, or an array of Numba's CUDA simulator."""
    interface = cuda_array_interface.of(obj, "records on a CUDA device")
    return interface is not None or getattr(type(obj), "__cuda_ndarray__", False) is True


def aos_to_soa(
    records: Any, *, fields: Sequence[str] | None, out: Any, copy: bool | None, dtype: Any, stream: Any
) -> tuple[list[FieldLeaf], list[Any]]:
    """Return the leaves of records on a device, and the columns: see :func:`zerocopy.aos_to_soa`."""
    if copy is False:
        raise copy_required(AOS_TO_SOA, "columns on a device are always new arrays", code="copy-required")
    record_dtype = getattr(records, "dtype", None) if dtype is None else np.dtype(dtype)
    if not isinstance(record_dtype, np.dtype) or record_dtype.names is None:
        why = f"a {type(records).__module__.partition('.')[0]} array of {record_dtype} has no fields"
        remedy = "pass the records' type: dtype=[('x', 'f4'), ...]"
        raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="no-fields")
    kind = record_type(record_dtype, None if fields is None else check_fields(fields, record_dtype.names))
    _refuse_unsupported(kind, AOS_TO_SOA)
    columns = None if out is None else by_leaf(out, kind.leaves)
    results = _kernels().aos_to_soa(records, kind.leaves, record_dtype.itemsize, out=columns, stream=stream)
    return kind.leaves, results


def soa_to_aos(columns: Mapping[str, Any], dtype: Any, *, out: Any, copy: bool | None, stream: Any) -> Any:
    """Return columns on a device as records there: see :func:`zerocopy.soa_to_aos`."""
    if copy is False:
        raise copy_required(SOA_TO_AOS, "records on a device are always new arrays", code="copy-required")
    kind = record_type(dtype_of(columns) if dtype is None else np.dtype(dtype))
    _refuse_unsupported(kind, SOA_TO_AOS)
    sources = by_leaf(columns, kind.leaves, SOA_TO_AOS, "columns")
    records = _kernels().soa_to_aos(sources, kind.leaves, kind.dtype.itemsize, out=out, stream=stream)
    return records if out is not None else records.view(kind.dtype)


@cache  # the simulator looks for the absent module in each import
def _kernels() -> Any:
    """Return the module of the device's kernels; raise if Numba has no CUDA support."""
    try:
        from zerocopy.layout.cuda import transposition
    except Exception as error:
        raise UnsupportedConversionError(
            "records on a CUDA device",
            f"the kernels need Numba with CUDA support: {error}",
            "pip install 'numba-cuda[cu13]' (or cu12); or copy the data to the host first",
            code="not-installed",
        ) from error
    try:
        # numba-cuda 0.30.4 reads numpy.row_stack here, which NumPy 2.5 has removed, before its first kernel.
        with suppress(ImportError):  # Numba's simulator has no such module
            import_module("numba.cuda.np.arrayobj")
    except AttributeError as error:
        raise UnsupportedConversionError(
            "records on a CUDA device",
            f"numba-cuda does not support NumPy {np.__version__}: {error}",
            "pip install 'numpy<2.5'; or copy the data to the host first",
            code="not-installed",
        ) from error
    return transposition


def _refuse_unsupported(kind: RecordType, asked: str) -> None:
    for leaf in kind.leaves:
        if leaf.swap not in (0, 2, 4, 8):
            why = f"field {leaf.name!r} is {leaf.dtype}, which CUDA devices do not support"
            raise UnsupportedConversionError(asked, why, "leave it out", code="missing-dtype")
