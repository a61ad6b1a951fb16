"""NumPy's ``S`` bytes as columns: padded with NULs in the array, without the padding in Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zerocopy.errors import LossyConversionError, Reason
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array
from zerocopy.tables.hub import hub
from zerocopy.tables.tensor_column import TensorColumn

if TYPE_CHECKING:
    from zerocopy.tables.column import Column

#: Metadata of a field that was ``S`` in NumPy: its dtype, so that records get the same one back.
_KEY = b"zerocopy:numpy"


def field_of(dtype: np.dtype[Any]) -> Field:
    """Return the Arrow type of the memory of NumPy's bytes: of one length."""
    metadata = {_KEY: dtype.str[1:].encode()} if dtype.kind == "S" else {}
    return Field(f"w:{dtype.itemsize}", metadata=metadata)


class PaddedColumn(TensorColumn):
    """Rows of uint8 whose trailing NULs are padding: a variable length in Arrow, one length in tensors."""

    def arrow(self) -> Any:
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


def padded_dtype(field: Field) -> np.dtype[Any] | None:
    """Return NumPy's dtype of bytes that were `S` before they were in Arrow; None for other bytes."""
    text = field.metadata.get(_KEY, b"").decode(errors="replace")
    if field.format not in ("z", "Z", f"w:{field.width}") or not text[1:].isdecimal() or text[0] != "S":
        return None
    # A field of fixed width is one that an older version of zerocopy wrote.
    return np.dtype(text) if field.kind == "binary" or text == f"S{field.width}" else None


def refuse_unpadded(column: Column, dtype: np.dtype[Any]) -> None:
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


def padded(column: Column, dtype: np.dtype[Any]) -> Array:
    """Return bytes of variable length as ``S``."""
    offsets = column.offsets().host()
    rows = np.zeros((column.length, dtype.itemsize), np.uint8)
    used = np.arange(dtype.itemsize) < np.diff(offsets)[:, None]
    rows[used] = column.text().host()[int(offsets[0]) : int(offsets[-1])]
    return rows.view(dtype)[:, 0]
