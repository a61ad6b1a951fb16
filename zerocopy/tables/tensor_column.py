"""Columns in memory other than Arrow's: the rows are the first dimension of a tensor.

A tensor is a table of one such column, or of the columns of a matrix. NumPy's ``S`` bytes are padded with
NULs in the array, and have no padding in Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from zerocopy.dtype import DType, by_name
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.protocols.array_interface import ALIGNMENT
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import memory, placement
from zerocopy.tables.column import ArrowArray, Column, Table
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import duplicates, listed

_BOOL = by_name("bool")
#: Rows that are searched for nulls at once, so that counting them takes little memory.
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Marks:
    """Nulls that are values of the column itself, such as NaT, NaN or the code -1.

    Attributes
    ----------
    values : callable
        ``values() -> ndarray``, without a copy.
    is_null : callable
        ``is_null(ndarray) -> ndarray`` of bool.
    why : Reason
        Why a mask of them is a copy.
    shape : tuple of int
        That of the mask, if it marks items of lists; else empty.
    """

    values: Callable[[], Array]
    is_null: Callable[[Array], Array]
    why: Reason
    shape: tuple[int, ...] = ()

    def count(self) -> int:
        """Return the number of nulls, without a mask of all rows."""
        array = self.values()
        blocks = (array[row : row + _BLOCK] for row in range(0, len(array), _BLOCK))
        return sum(int(np.count_nonzero(self.is_null(block))) for block in blocks)


class TensorColumn(Column):
    """A column whose rows are the first dimension of a tensor.

    Parameters
    ----------
    source : Source
        The values; integers where `field` gives them another meaning.
    field : Field, optional
        The meaning of integers: dates, times, codes. None: they are numbers.
    mask : callable or Marks, optional
        ``mask() -> ndarray or None``, of bool, True where a row is null; or which values are nulls.
    categories : Column, optional
        The values that codes refer to.
    reasons : tuple of Reason
        See :class:`Column`.
    """

    source: Source
    _obstacles: tuple[Reason, ...] | None = None

    def __init__(
        self,
        source: Source,
        field: Field | None = None,
        mask: Callable[[], Array | None] | Marks | None = None,
        categories: Column | None = None,
        reasons: tuple[Reason, ...] = (),
    ) -> None:
        self.source = source
        self.field = field
        self.name: str = source.name
        self.reasons = reasons
        self.length: int = source.view.shape[0] if source.view.shape else 1
        self.changes: bool = not source.view.readonly and not source.reasons
        self._mask, self._categories = mask, categories
        if mask is None:  # set here, because a cached property takes a lock before Python 3.12
            self.nulls = None
            self.null_count = 0

    @classmethod
    def masked(cls, values: Source, mask: Source) -> TensorColumn:
        """Return a column of values with a mask that is True where a row is null.

        Raises
        ------
        UnsupportedConversionError
            The mask is not of bool, or not one value per row.
        """
        shape, dtype = values.view.shape, mask.view.dtype
        if len(shape) != 1 or mask.view.shape != shape or dtype.name != "bool":
            why = f"mask has dtype {dtype} and shape {mask.view.shape}; expected bool with shape {shape}"
            remedy = "pass a boolean mask with one value per row"
            raise UnsupportedConversionError("", why, remedy, code="invalid-mask")
        return cls(values, mask=cache(lambda: placement.fetch(mask)))

    @cached_property
    def nulls(self) -> Array | None:
        """Which rows are null, or None; computed once."""
        if isinstance(self._mask, Marks):
            return self._mask.is_null(self._mask.values()) if self.null_count else None
        return self._mask() if self._mask is not None else None

    @cached_property
    def null_count(self) -> int:  # type: ignore[override]
        if isinstance(self._mask, Marks):
            return self._mask.count()
        return 0 if self.nulls is None else int(np.count_nonzero(self.nulls))

    @property
    def nbytes(self) -> int:
        return self.source.view.nbytes

    def plan_key(self) -> Hashable:
        view, source = self.source.view, self.source
        own = (self.field, self.in_place, self.refusal, self.dims, self._mask, source.refusal, source.writer)
        if any(part is not None for part in own) or not view.device.is_host:
            return None
        layout = (view.dtype, view.shape, view.strides, view.readonly, view.ptr % ALIGNMENT)
        return type(self), layout, self.reasons, tuple(source.reasons)

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        if not self.reasons:
            return self.source
        # These values are computed for each use: the copy's address, and so its alignment, is not known.
        view = replace(self.source.view, ptr=0)
        return replace(self.source, view=view, reasons=(*self.reasons, *self.source.reasons))

    def mask(self) -> Source:
        if isinstance(self._mask, Marks):
            shape = self._mask.shape or (self.length,)
            strides = contiguous_strides(shape, 1)
            view = StridedView(0, shape, strides, _BOOL, self.source.view.device, False, self)

            def host() -> Array:
                return self.nulls if self.nulls is not None else np.zeros(shape, np.bool_)

            return Source(self.name, view, host, "buffer", (self._mask.why,), obj=view)
        mask = self.nulls if self.nulls is not None else np.zeros(self.length, np.bool_)
        device = self.source.view.device
        view = StridedView(mask.ctypes.data, mask.shape, mask.strides, _BOOL, device, True, mask)
        return Source(self.name, view, lambda: mask, "buffer", obj=mask)

    def dictionary(self) -> Column:
        assert self._categories is not None
        return self._categories

    def arrow(self) -> ArrowArray:
        return hub().tensor_to_arrow(self)

    def arrow_reasons(self) -> list[Reason]:
        return [*self.reasons, *self.obstacles]

    @property
    def obstacles(self) -> tuple[Reason, ...]:
        """Why Arrow cannot alias the tensor; computed once."""
        if self._obstacles is None:
            self._obstacles = tuple(hub().tensor_reasons(self))
        return self._obstacles

    def extents(self) -> Iterator[tuple[int, int]]:
        if not self.source.reasons and self.source.view.device.is_host:
            low, high = self.source.view.bounds
            if high > low:
                yield low, high


#: Metadata of a field that was ``S`` in NumPy: its dtype, so that records get the same one back.
_KEY = b"zerocopy:numpy"


def field_of(dtype: np.dtype[np.generic]) -> Field:
    """Return the Arrow type of the memory of NumPy's bytes: of one length."""
    metadata = {_KEY: dtype.str[1:].encode()} if dtype.kind == "S" else {}
    return Field(f"w:{dtype.itemsize}", metadata=metadata)


class PaddedColumn(TensorColumn):
    """Rows of uint8 whose trailing NULs are padding: a variable length in Arrow, one length in tensors."""

    def arrow(self) -> ArrowArray:
        rows = np.ascontiguousarray(self.source.host())
        return hub().binary_from_padded(rows)

    def arrow_reasons(self) -> list[Reason]:
        assert self.field is not None
        if not self.length or not self.field.width:
            return [*self.reasons, *self.source.reasons]
        why = "NumPy pads these bytes with NULs, and Arrow stores each value without its padding"
        remedy = f"x.view('V{self.field.width}') is aliased, as bytes of one length with the padding"
        # Fields of records are copied in any case.
        padded = Reason(why, "" if self.source.reasons else remedy, code="padded-bytes")
        return [*self.reasons, *self.source.reasons, padded]


def padded_dtype(field: Field) -> np.dtype[np.generic] | None:
    """Return NumPy's dtype of bytes that were `S` before they were in Arrow; None for other bytes."""
    text = field.metadata.get(_KEY, b"").decode(errors="replace")
    if field.format not in ("z", "Z", f"w:{field.width}") or not text[1:].isdecimal() or text[0] != "S":
        return None
    # A field of fixed width is one that an older version of zerocopy wrote.
    return np.dtype(text) if field.kind == "binary" or text == f"S{field.width}" else None


def refuse_unpadded(column: Column, dtype: np.dtype[np.generic]) -> None:
    """Refuse bytes that ``S`` cannot hold: too long ones, and those that end with a NUL."""
    offsets = column.offsets().host()
    lengths = np.diff(offsets)
    count = int(np.count_nonzero(lengths > dtype.itemsize))
    if count:
        why = f"{count:,} of its values are longer than {dtype}, which it was in NumPy"
    else:
        ends = column.text().host()[offsets[1:][lengths > 0] - 1]
        count = int(np.count_nonzero(ends == 0))
        why = f"{count:,} of its values end with a NUL, which {dtype} would drop"
    if count:
        raise LossyConversionError("", why, "leave it out with columns=[...]", code="padded-bytes")


def padded(column: Column, dtype: np.dtype[np.generic]) -> Array:
    """Return bytes of variable length as ``S``."""
    offsets = column.offsets().host()
    rows = memory.padded(column.text().host(), offsets[:-1], np.diff(offsets), dtype.itemsize, 0)
    return rows.view(dtype)[:, 0]


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
