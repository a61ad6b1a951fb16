"""Columns to rows: the public ``soa_to_aos``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zerocopy.errors import CopyRequiredError, LossyConversionError, UnsupportedConversionError
from zerocopy.layout import on_device, outputs, threads as parallel
from zerocopy.layout.rows import RecordType, record_type, view_of
from zerocopy.layout.schema import Leaf
from zerocopy.layout.source import has_table
from zerocopy.layout.transposition import to_rows
from zerocopy.protocols.array_interface import address, aligned_empty

Array = np.ndarray[Any, Any]

_ASKED = "soa_to_aos(columns)"
_CONVERT = 'zc.convert(x, to="numpy", layout="records") makes records of tables and of dicts of columns'


def soa_to_aos(
    columns: Mapping[str, Any],
    dtype: Any = None,
    *,
    out: Array | None = None,
    copy: bool | None = None,
    threads: int | None = None,
    stream: Any = None,
) -> Array:
    """Return columns as the fields of records: SoA to AoS, the mirror of :func:`aos_to_soa`.

    Records are put together in the first cache, and leave it a line at a time.

    Parameters
    ----------
    columns : mapping of str to array or mapping
        As :func:`aos_to_soa` returns them: the first dimension, of one length n, is the rows;
        a mapping is a nested record. Contiguous ones are the fastest. On a CUDA device too.
        Columns of tables, which may have nulls, are for ``convert(x, "numpy", layout="records")``.
    dtype : numpy.dtype, optional
        The records' type, with fields of the same names: its offsets, padding and byte orders
        are kept. None: that of `out`, or the columns' types one after the other, without padding.
    out : numpy.ndarray, shape (n,), optional
        Where to write: of the records' type, and overlapping no column. Its padding becomes
        zero.
    copy : bool, optional
        False: nothing is moved; the columns are the fields of records already, as
        ``aos_to_soa(records, copy=False)`` gives them, or CopyRequiredError is raised. True:
        never an alias. None: an alias where they are.
    threads : int, optional
        At most so many threads. None: one for each core that this process may use.
    stream : int or stream object, optional
        For columns on a CUDA device: see :func:`aos_to_soa`.

    Returns
    -------
    numpy.ndarray, shape (n,)
        At a multiple of 64 bytes, padding zero; or `out`; or, where the columns are its fields,
        an alias of their memory. For columns on a CUDA device, a device array of Numba's.

    Raises
    ------
    UnsupportedConversionError
        The columns differ in length, or their names are not the fields'; `out` does not fit.
    LossyConversionError
        A field's type does not hold its column's values.
    CopyRequiredError
        With ``copy=False``: the columns are no fields of records.
    ValueError
        `threads` is no number of threads, `copy` no answer.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.soa_to_aos({"id": np.array([1, 2]), "x": np.array([0.5, 1.5])})
    array([(1, 0.5), (2, 1.5)], dtype=[('id', '<i8'), ('x', '<f8')])
    """
    parallel.check(threads, _ASKED)
    if not (copy is None or copy is True or copy is False):  # 0 == False, and would be none of them
        raise ValueError(f"{_ASKED}: copy is True, False or None, not {copy!r}")
    if _on_device(columns):
        made: Array = on_device.soa_to_aos(columns, dtype, out=out, copy=copy, stream=stream)
        return made
    if stream is not None:
        raise UnsupportedConversionError(
            _ASKED, "these columns are in host memory, where there are no streams", "leave stream out"
        )
    given = _arrays(columns)
    # Types that are equal are one to record_type: numpy.record's, say. The result is of this one.
    if dtype is None and isinstance(out, np.ndarray) and out.dtype.names is not None:
        dtype = out.dtype
    wanted = _type(dtype_of(given) if dtype is None else dtype)
    kind = _kind(wanted)
    found, length = _matched(given, kind)
    if out is None and copy is not True:
        there = _lies_there(found, kind, wanted)
        if there is not None:
            return there
    if copy is False and (out is not None or (length and wanted.itemsize)):
        why = "out= is memory to copy to" if out is not None else "the columns are no fields of records"
        raise CopyRequiredError("soa_to_aos(columns, copy=False)", why, "leave copy=False out")
    if out is None:
        records = aligned_empty((length,), wanted) if wanted.itemsize else np.empty(length, wanted)
    else:
        records = out
        outputs.fits("out", out, wanted, (length,), "soa_to_aos(columns, out=out)")
        outputs.refuse_overlap("soa_to_aos(columns, out=out)", out, found)
    to_rows(found, kind, records, threads)
    return records


def dtype_of(columns: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the type of records that hold columns: their own types, without padding."""
    if not columns:
        return np.dtype([])
    formats: list[Any] = [
        dtype_of(column)
        if isinstance(column, Mapping)
        else (column.dtype, column.shape[1:])
        if column.ndim > 1
        else column.dtype
        for column in columns.values()
    ]
    if not all(isinstance(name, str) for name in columns):
        raise UnsupportedConversionError(
            _ASKED,
            f"the columns are called {[*columns][:5]}, and fields have strings for names",
            "rename them",
        )
    made: np.dtype[Any] = np.dtype({"names": list(columns), "formats": formats})
    return made


def _on_device(columns: Any) -> bool:
    if type(columns) is np.ndarray:
        return False
    if type(columns) is dict or isinstance(columns, Mapping):
        return any(_on_device(column) for column in columns.values())
    return on_device.is_there(columns)


def _type(dtype: Any) -> np.dtype[Any]:
    made: np.dtype[Any] = np.dtype(dtype)
    if made.names is None:
        raise UnsupportedConversionError(
            _ASKED, f"dtype={made} has no fields", "dtype=[('x', 'f4'), ('y', 'f4')] has"
        )
    return made


def _kind(dtype: np.dtype[Any]) -> RecordType:
    try:
        return record_type(dtype)
    except UnsupportedConversionError as error:
        error.asked, error.remedy = _ASKED, "leave the column out"
        raise


def _arrays(columns: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(columns, Mapping):
        if has_table(columns):
            raise UnsupportedConversionError(_ASKED, f"it is a {type(columns).__name__}, a table", _CONVERT)
        raise UnsupportedConversionError(
            _ASKED, f"a {type(columns).__name__} is no mapping of names to columns", "pass a dict of arrays"
        )
    return {
        name: column
        if type(column) is np.ndarray  # which it mostly is, and to ask an ABC takes longer
        else _arrays(column)
        if isinstance(column, Mapping)
        else _array(str(name), column)
        for name, column in columns.items()
    }


def _array(name: str, column: Any) -> Array:
    if isinstance(column, np.ma.MaskedArray) and np.ma.getmaskarray(column).any():  # type: ignore[no-untyped-call]
        raise LossyConversionError(
            _ASKED,
            f"values of column {name!r} are masked, and records have no masks",
            "column.filled() puts values there",
        )
    if has_table(column):
        # NumPy's view of it would make floats of integers with nulls, and forget time zones.
        raise UnsupportedConversionError(
            _ASKED,
            f"column {name!r} is a {type(column).__module__.partition('.')[0]} {type(column).__name__}, "
            "whose nulls and types records may lack",
            _CONVERT,
        )
    try:
        return np.asarray(column)
    except Exception as error:
        raise UnsupportedConversionError(
            _ASKED, f"column {name!r} is no array to NumPy: {type(error).__name__}: {error}", _CONVERT
        ) from error


def _matched(columns: dict[str, Any], kind: RecordType) -> tuple[list[Array], int]:
    """Return the columns in the order of the leaves, of their types, and the number of rows."""
    leaves = {leaf.path: leaf for leaf in kind.leaves}
    flat = dict(_flat(columns, ()))
    if set(flat) != set(leaves):
        raise UnsupportedConversionError(
            _ASKED,
            f"the fields are {sorted('.'.join(p) for p in leaves)}, "
            f"the columns {sorted('.'.join(map(str, p)) for p in flat)}",
            "name the fields as the columns",
        )
    scalars = [".".join(path) for path, column in flat.items() if not column.ndim]
    if scalars:
        raise UnsupportedConversionError(
            _ASKED, f"{scalars[0]!r} is one value, and no column", "numpy.full(rows, value) repeats it"
        )
    lengths = {path: len(column) for path, column in flat.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{'.'.join(path)!r} has {length}" for path, length in lengths.items())
        raise UnsupportedConversionError(
            _ASKED, f"the columns differ in length: {said}", "records have one length"
        )
    return [_fitting(flat[leaf.path], leaf) for leaf in kind.leaves], max(lengths.values(), default=0)


def _flat(columns: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    for name, column in columns.items():
        if type(column) is dict:
            yield from _flat(column, (*path, name))
        else:
            yield (*path, name), column


def _fitting(column: Array, leaf: Leaf) -> Array:
    """Return a column in its field's type, in native byte order."""
    if column.shape[1:] != leaf.shape:
        raise UnsupportedConversionError(
            _ASKED,
            f"field {leaf.name!r} has the shape {leaf.shape}, a row of its column {column.shape[1:]}",
            "give the field the shape of a row of its column",
        )
    if column.dtype == leaf.dtype:
        return column
    if not np.can_cast(column.dtype, leaf.dtype, "safe"):
        raise LossyConversionError(
            _ASKED,
            f"field {leaf.name!r} is {leaf.dtype}, which does not hold {column.dtype}",
            "cast the column first: column.astype(...)",
        )
    lossy = LossyConversionError(
        _ASKED,
        f"field {leaf.name!r} is {leaf.dtype}, which does not hold all values of its {column.dtype}",
        "give the field the column's type",
    )
    try:
        cast = column.astype(leaf.dtype)
    except OverflowError as error:  # dates, which NumPy wraps around before 2.5
        raise lossy from error
    if not _held(column, cast):
        raise lossy
    return cast


def _held(column: Array, cast: Array) -> bool:
    """Whether a cast that NumPy calls safe has kept all values, which two of them do not."""
    if not column.size:
        return True
    if column.dtype.kind in "iu" and cast.dtype.kind in "fc":
        most = 2 ** (np.finfo(cast.dtype).nmant + 1)  # from there on floats leave integers out
        return bool(-most <= int(column.min()) and int(column.max()) <= most)
    if column.dtype.kind in "mM":  # nanoseconds reach from 1678 to 2262, and then begin again
        return bool((cast.astype(column.dtype).view(np.int64) == column.view(np.int64)).all())
    return True


def _lies_there(columns: list[Array], kind: RecordType, dtype: np.dtype[Any]) -> Array | None:
    """Return the records whose fields the columns are, if there are such records.

    They must lie in the memory of one array, all of them, padding too.
    """
    if not columns or not columns[0].size or columns[0].strides[0] < kind.dtype.itemsize:
        return None  # columns of their own, mostly
    if any(leaf.swap or not leaf.width for leaf in kind.leaves):
        return None
    root = _root(columns[0])
    if any(_root(column) is not root for column in columns):
        return None
    if root.dtype.hasobject or not root.flags.c_contiguous:
        return None  # where objects are NumPy lays no other type over them
    first, offset = columns[0], kind.leaves[0].pieces[0][0]
    start, stride = address(first) - offset - address(root), first.strides[0]
    end = start + (len(first) - 1) * stride + kind.dtype.itemsize
    if start < 0 or end > root.nbytes:
        return None
    memory = root.view(np.ndarray).reshape(-1).view(np.uint8)
    rows: Array = np.ndarray((len(first),), dtype, memory, start, (stride,))
    for column, leaf in zip(columns, kind.leaves, strict=True):
        field = view_of(rows, leaf)
        if address(field) != address(column) or field.strides != column.strides:
            return None
    if not all(column.flags.writeable for column in columns):
        rows.flags.writeable = False
    return rows


def _root(array: Array) -> Array:
    """Return the array that others are views of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
