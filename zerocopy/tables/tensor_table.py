"""A tensor as a table: one column, or the columns of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.source import Array, Source
from zerocopy.tables.column import Column, Table
from zerocopy.tables.labels import duplicates, listed
from zerocopy.tables.tensor_column import TensorColumn

#: Columns of a table that is made of one array.
MAX_COLUMNS = 1 << 24


def table_of_tensor(source: Source, names: Sequence[str] | None) -> Table:
    """Return a 1-D tensor as a series, or as a table if it has `names`, and a 2-D one as a table.

    Raises
    ------
    UnsupportedConversionError
        The tensor has another number of dimensions, or the names do not fit.
    """
    view = source.view
    own = source.column_names() if source.column_names is not None and names is None else None
    if view.ndim == 1 and names is None:
        label = [""] if own is None else own
        return Table(source.name, label, [TensorColumn(source)], view.shape[0], single=True, obj=source.obj)
    if view.ndim not in (1, 2):
        raise UnsupportedConversionError(
            "",
            f"a tensor of shape {view.shape} is not a table",
            code="too-many-dimensions" if view.ndim else "too-few-dimensions",
            fixes=[
                Fix('{{"name": {x}}}', "makes its rows one column of tensors", {"names": None})
                if view.ndim
                else Fix("numpy.atleast_1d({x})")
            ],
        )
    width = 1 if view.ndim == 1 else view.shape[1]
    if width > MAX_COLUMNS:  # an empty array can have any number of them
        raise UnsupportedConversionError(
            "",
            f"it has {width:,} columns, and a table has at most {MAX_COLUMNS:,}",
            'pass {"name": x}: its rows become one column of tensors',
            code="too-many-elements",
        )
    labels = _labels(width, names if own is None else own)
    if view.ndim == 1:
        return Table(source.name, labels, [TensorColumn(source)], view.shape[0], obj=source.obj)
    # One export for all columns, because some producers can be exported only once.
    source = replace(source, host=cache(source.host))
    columns: list[Column] = [TensorColumn(_column(source, i)) for i in range(width)]
    return Table(source.name, labels, columns, view.shape[0], obj=source.obj)


def _labels(width: int, names: Sequence[str] | None) -> list[str]:
    labels = [f"column_{i}" for i in range(width)] if names is None else list(names)
    if len(labels) != width:
        why = f"{len(labels)} names for {width} columns"
        raise UnsupportedConversionError("", why, code="option-value", fixes=[Fix(options={"names": None})])
    if twice := duplicates(labels):
        why = f"several columns are called {listed(twice)}"
        raise UnsupportedConversionError("", why, "rename them", code="duplicate-names")
    return labels


def _column(source: Source, index: int) -> Source:
    """Return one column of a 2-D tensor in host memory."""
    view = source.view
    if not view.device.is_host:
        remedy = "copy it to the host first, or pass a dict of columns"
        raise UnsupportedConversionError("", f"its columns are on {view.device}", remedy, code="other-device")
    ptr = view.ptr + index * view.strides[1]
    # The whole array as the owner: the allocation that the columns are in is known.
    column = replace(view, ptr=ptr, shape=view.shape[:1], strides=view.strides[:1], owner=view)

    def host() -> Array:
        values: Array = source.host()[:, index]
        return values

    return replace(source, view=column, host=host, obj=column)
