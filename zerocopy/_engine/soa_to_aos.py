"""The public ``soa_to_aos``: arrays by the layout kernels, tables by ``convert``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zerocopy._engine.convert import convert
from zerocopy._native import core
from zerocopy.errors import ZeroCopyError
from zerocopy.errors.tracebacks import public
from zerocopy.layout import soa_to_aos as arrays
from zerocopy.layout.aos_to_soa import aos_to_soa
from zerocopy.layout.record_source import has_table
from zerocopy.layout.schema import LAYOUTS, SOA_TO_AOS, check_options
from zerocopy.source import Array

#: The options of `convert` in the call of a message.
_OPTIONS = ", to='numpy', layout='records'"


@public
def soa_to_aos(
    columns: Mapping[str, Any],
    dtype: Any = None,
    *,
    out: Array | None = None,
    copy: bool | None = None,
    threads: int | None = None,
    stream: Any = None,
) -> Array:
    """Return columns as the fields of records: SoA to AoS, the inverse of :func:`aos_to_soa`.

    Records are assembled in the first-level cache and written one cache line at a time.

    Parameters
    ----------
    columns : mapping of str to array or mapping, or table
        As :func:`aos_to_soa` returns them: the first dimension is the rows, and all columns have
        the same length n. A mapping is a nested record. Contiguous columns are the fastest. They
        may be on a CUDA device. A table, or a mapping with columns of tables, is converted by
        ``convert(columns, "numpy", layout="records", dtype=dtype)``.
    dtype : numpy.dtype, optional
        The type of the records, with fields of the same names: its offsets, padding and byte orders
        are kept. None: that of `out`, or the columns' types in order, without padding. Fields of ``S``
        and ``U`` take text and bytes of any length that fit, as UTF-8.
    out : numpy.ndarray, shape (n,), optional
        Memory for the result: of the records' type, and overlapping no column. Its padding becomes
        zero.
    copy : bool, optional
        False: the result is a view, which is possible if the columns are the fields of existing
        records, as ``aos_to_soa(records, copy=False)`` returns them; otherwise CopyRequiredError
        is raised. True: the result never aliases the columns. None: it aliases them in that case.
    threads : int, optional
        Maximum number of threads. None: one for each core that this process may use.
    stream : int or stream object, optional
        For columns on a CUDA device: see :func:`aos_to_soa`.

    Returns
    -------
    numpy.ndarray, shape (n,)
        At a multiple of 64 bytes, with zero padding; or `out`; or, if the columns are the fields of
        existing records, an alias of their memory. For columns on a CUDA device, a Numba device array.

    Raises
    ------
    UnsupportedConversionError
        The columns differ in length, or their names are not those of the fields; `out` does not fit.
    LossyConversionError
        A field's type cannot hold its column's values.
    CopyRequiredError
        With ``copy=False``: the columns are not the fields of existing records.
    ValueError
        `threads` or `copy` has a value that is not allowed.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.soa_to_aos({"id": np.array([1, 2]), "x": np.array([0.5, 1.5])})
    array([(1, 0.5), (2, 1.5)], dtype=[('id', '<i8'), ('x', '<f8')])
    """
    if core is not None and out is None and copy is None and threads is None and stream is None:
        joined: Array | None = core.join_columns(columns, dtype, LAYOUTS)
        if joined is not None:
            return joined
    if has_table(columns) or (
        isinstance(columns, Mapping)  # type: ignore[redundant-expr]  # a caller may pass a table
        and any(has_table(column) for column in columns.values())
    ):
        check_options(SOA_TO_AOS, threads, copy)
        if dtype is None and isinstance(out, np.ndarray):
            dtype = out.dtype
        source = dict(columns) if isinstance(columns, Mapping) else columns  # type: ignore[redundant-expr]
        try:
            records: Array = convert(source, "numpy", layout="records", dtype=dtype, copy=copy)
        except ZeroCopyError as error:  # its fixes are calls of convert, which returns the records too
            asked = error.asked.replace("convert(", "soa_to_aos(", 1)
            raise error.with_context(asked=asked.replace(_OPTIONS, "", 1)) from error.__cause__
        if out is None:
            return records
        columns = aos_to_soa(records)
    return arrays.soa_to_aos(columns, dtype, out=out, copy=copy, threads=threads, stream=stream)
