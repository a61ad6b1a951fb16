"""``Column`` and ``Table``: what every table framework describes its objects as."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from zerocopy.device import HOST, Device
from zerocopy.dtype import DType
from zerocopy.errors import Reason
from zerocopy.framework import Source
from zerocopy.protocols.arrow_schema import Field


class Column:
    """One column, or one level of a nested one: a type, and the memory of its values.

    Attributes
    ----------
    name : str
        How to call it in messages: ``"polars.Series"``.
    field : Field or None
        Its Arrow type; None for a tensor, whose type is that of its elements.
    length : int
        Rows.
    reasons : tuple of Reason
        Why all that is got from here is a copy already (a query's result).
    in_place : Column or None
        The same column without a copy, at strides that not every target takes: a field
        among records.
    refusal : Reason or None
        Why tensors cannot have it, where that is known and its type is not: to find
        out what Python objects are costs a copy.
    """

    name: str
    field: Field | None
    length: int
    reasons: tuple[Reason, ...] = ()
    device: Device = HOST
    #: Whether its owner may write to the memory in place.
    changes: bool = False
    refusal: Reason | None = None
    in_place: Column | None = None

    @property
    def null_count(self) -> int:
        """How many rows are null; counted where nobody has."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of the memory that a reader of the whole column looks at."""
        raise NotImplementedError

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        """Return the elements: ``(length, *shape)`` of a type, with garbage where they are null."""
        raise NotImplementedError

    def mask(self) -> Source:
        """Return which rows are null: ``(length,)`` of bool."""
        raise NotImplementedError

    def filled(self, value: Any) -> Callable[[], Any] | None:
        """Return how to make an object on the column's device with its nulls filled.

        None where the column knows no way: it is then made by way of the host.
        """
        return None

    def offsets(self) -> Source:
        """Return where each row begins in `child`, and one more; of a view type, where each begins."""
        raise NotImplementedError

    def sizes(self) -> Source:
        """Return the sizes of the rows of a list view."""
        raise NotImplementedError

    def text(self) -> Source:
        """Return the bytes that `offsets` count in."""
        raise NotImplementedError

    def child(self, index: int = 0) -> Column:
        """Return a nested column's part: a list's values, a struct's field."""
        raise NotImplementedError

    def dictionary(self) -> Column:
        """Return the values that a dictionary's codes stand for."""
        raise NotImplementedError

    def arrow(self) -> Any:
        """Return it as a ``pyarrow.Array`` or ``pyarrow.ChunkedArray``."""
        raise NotImplementedError

    def arrow_reasons(self) -> list[Reason]:
        """Return why `arrow` copies, where it does; raise what Arrow cannot hold."""
        return list(self.reasons)

    def extents(self) -> Iterator[tuple[int, int]]:
        """Yield the first address and the one past the last of each block of host memory."""
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class Table:
    """Columns by label, as a framework describes an object of its own.

    Attributes
    ----------
    name : str
        How to call the object in messages: ``"polars.DataFrame"``.
    labels : sequence
        The columns' labels, which need be neither strings nor unique.
    columns : sequence of Column
    length : int
        Rows; a table without columns may have some.
    single : bool
        Whether the object is one column and no table: a series.
    index : int
        How many of the columns, at the end, are pandas' index.
    metadata : dict of bytes to bytes
        The schema's.
    warnings : tuple of str
        What to know of the object whatever becomes of it.
    read : callable, optional
        ``read() -> Table`` for what is known only once it has been read, a query or a
        stream; `columns` then have types and no memory.
    once : bool
        Whether reading uses the object up.
    obj : object
        The object itself, for a target that takes it as it is.
    """

    name: str
    labels: Sequence[Hashable]
    columns: Sequence[Column]
    length: int
    single: bool = False
    index: int = 0
    metadata: dict[bytes, bytes] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    read: Callable[[], Table] | None = None
    once: bool = False
    obj: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns; rows alone of a series."""
        return (self.length,) if self.single else (self.length, len(self.columns))
