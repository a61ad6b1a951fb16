"""``LazyColumns``: columns that are described when they are read, and the plan of a table by their layouts.

``explain`` plans one column of each layout, from its address and type: a frame of 10 columns takes a fifth of
the time, and one of 300 a tenth.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, overload

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import by_dlpack, from_numpy, native_numbers
from zerocopy.plan import Plan
from zerocopy.protocols.array_interface import address, host_view
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column, Table
from zerocopy.tables.summary import run

_NUMBERS = native_numbers()
#: The bit for nulls in a layout of ``TableExporter.layouts``: LAYOUT_HAS_NULLS in arrow_table.c.
_HAS_NULLS = 1 << 20


def layout_of(values: Any) -> tuple[tuple[Any, ...], int] | None:
    """Return the layout of a column, which begins with the shape, and the address; None for other objects.

    Only an ndarray of plain numbers has one: a subclass may give the bytes another meaning.
    """
    if type(values) is not np.ndarray:
        return None
    dtype, shape = values.dtype, values.shape
    if not shape or dtype.num not in _NUMBERS or not dtype.isnative:
        return None
    return (shape, dtype.num, values.strides, values.flags.writeable), address(values)


class LazyColumns(Sequence[Column]):
    """The columns of a table, each described when it is first read.

    Parameters
    ----------
    layouts : sequence of hashable
        Equal for columns of plain numbers that differ in their values, labels and addresses only: they have
        one type, length, strides, access and memory space, and all have nulls or none has. None for any other
        column.
    addresses : sequence of int
        The address of the first value of each column that has a layout.
    describe : callable
        ``describe(position) -> Column``.
    view_of : callable
        ``view_of(position) -> StridedView`` of a column that has a layout; None if it has nulls.
    protocol : str
        The protocol that exports their memory, for plans of a single column.
    """

    def __init__(
        self,
        layouts: Sequence[Hashable],
        addresses: Sequence[int],
        describe: Callable[[int], Column],
        view_of: Callable[[int], StridedView | None],
        protocol: str = "arrow-c",
    ) -> None:
        self.protocol: str = protocol
        self.layouts: Sequence[Hashable] = layouts
        self.addresses: Sequence[int] = addresses
        self._view_of = view_of
        self._describe = describe
        self._columns: dict[int, Column] = {}

    def __len__(self) -> int:
        return len(self.layouts)

    @overload
    def __getitem__(self, position: int) -> Column: ...

    @overload
    def __getitem__(self, position: slice) -> list[Column]: ...

    def __getitem__(self, position: int | slice) -> Column | list[Column]:
        places = range(len(self.layouts))[position]
        if isinstance(places, range):
            return [self[place] for place in places]
        column = self._columns.get(places)
        if column is None:
            column = self._columns.setdefault(places, self._describe(places))
        return column

    def __iter__(self) -> Iterator[Column]:
        return map(self.__getitem__, range(len(self.layouts)))

    def view_of(self, place: int) -> StridedView | None:
        """Return the memory of a column; None without a layout, with nulls, or after it was described."""
        return None if self.layouts[place] is None or place in self._columns else self._view_of(place)

    def without_layout(self) -> list[int]:
        """Return the positions of the columns without a layout."""
        return [place for place, layout in enumerate(self.layouts) if layout is None]

    def groups(self) -> dict[Hashable, list[int]]:
        """Return the positions of the columns of each layout; a column without a layout is a group."""
        groups: dict[Hashable, list[int]] = {}
        for place, layout in enumerate(self.layouts):
            groups.setdefault((place,) if layout is None else layout, []).append(place)
        return groups


def lazy_column(
    describe: Callable[[], Column], view: Callable[[], StridedView | None], protocol: str
) -> LazyColumns:
    """Return a series as one column; ``view()`` returns its memory if it is numbers without nulls."""
    return LazyColumns([True], [0], lambda place: describe(), lambda place: view(), protocol)


def lazy_ndarrays(
    arrays: Sequence[Any], describe: Callable[[int], Column], one_length: bool = True
) -> LazyColumns | None:
    """Return columns over ndarrays; None with other objects, or with `one_length` for several lengths."""
    layouts, addresses = list[Hashable](), list[int]()
    for array in arrays:
        described = layout_of(array)
        if described is None or (one_length and array.shape[0] != arrays[0].shape[0]):
            return None
        layouts.append(described[0])
        addresses.append(described[1])

    def view_of(place: int) -> StridedView:
        array = arrays[place]
        dtype = from_numpy(array.dtype)
        assert dtype is not None
        return host_view(array, dtype)

    return LazyColumns(layouts, addresses, describe, view_of) if arrays else None


def lazy_numbers(
    described: tuple[list[Any], list[int]], length: int, describe: Callable[[int], Column]
) -> LazyColumns:
    """Return columns of Arrow's numbers, and others, from the result of ``TableExporter.layouts``."""
    layouts, addresses = described

    def view_of(place: int) -> StridedView | None:
        layout = layouts[place]
        if layout & _HAS_NULLS:
            return None
        dtype = by_dlpack(layout >> 8 & 0xFF, layout & 0xFF, 1)
        assert dtype is not None
        return StridedView(addresses[place], (length,), (dtype.itemsize,), dtype, HOST, True, None)

    return LazyColumns(layouts, addresses, describe, view_of)


def total_bytes(columns: Sequence[Column]) -> int:
    """Return the bytes of columns with rows, from those of one column of each layout."""
    if not isinstance(columns, LazyColumns) or len(columns) < 2:
        return sum(column.nbytes for column in columns if column.length)
    groups = [(columns[places[0]], len(places)) for places in columns.groups().values()]
    return sum(column.nbytes * count for column, count in groups if column.length)


#: The bytes of a column that are aliased, and those that are copied.
Outcome = tuple[int, int]


def plan_by_layout(
    table: Table,
    target: str,
    outcome_of: Callable[[LazyColumns, int], Outcome | None],
    plan: Callable[[], Plan],
) -> Plan | None:
    """Return the plan of a table from one column of each layout; None if they do not decide it.

    ``outcome_of(columns, position)`` returns None for a column that the plan refuses.
    ``plan()`` plans all columns. It makes the leaves and the warnings when they are first read.
    """
    columns = table.columns
    outcome = outcome_by_layout(columns, outcome_of) if isinstance(columns, LazyColumns) else None
    if outcome is None:
        return None
    aliased, copied = outcome
    whole = Plan(
        f"{table.name} {table.shape}",
        target,
        True,
        bool(aliased) and not copied,
        copied,
        steps=("convert each column",),
        run=lambda: run(plan()),
        aliased_bytes=aliased,
    )
    whole.defer(partial(_complete, plan=plan), "leaves", "warnings", "protocol")
    return whole


def outcome_by_layout(
    columns: LazyColumns, outcome_of: Callable[[LazyColumns, int], Outcome | None]
) -> Outcome | None:
    """Return the bytes of all columns; None if ``outcome_of(columns, position)`` is None for one."""
    aliased = copied = 0
    for places in columns.groups().values():
        outcomes = _outcomes(columns, places, outcome_of)
        if outcomes is None:
            return None
        aliased, copied = aliased + outcomes[0], copied + outcomes[1]
    return aliased, copied


def outcome_of_view(view: StridedView, copies: bool) -> Outcome:
    """Return the outcome of an array that is copied, or aliased, as a whole."""
    return (0, view.nbytes) if copies else (view.nbytes, 0)


def _outcomes(
    columns: LazyColumns, places: list[int], outcome_of: Callable[[LazyColumns, int], Outcome | None]
) -> Outcome | None:
    """Return the bytes of all columns of one layout."""
    addresses, aliased, copied = columns.addresses, 0, 0
    alignments = [addresses[place] & -addresses[place] for place in places]
    # A target that aliases a column also aliases those that are more aligned.
    while alignments:
        lowest = min(alignments)
        outcome = outcome_of(columns, places[alignments.index(lowest)])
        if outcome is None:
            return None
        if not outcome[1]:
            return aliased + outcome[0] * len(places), copied
        kept = [i for i, alignment in enumerate(alignments) if alignment > lowest]
        aliased += outcome[0] * (len(places) - len(kept))
        copied += outcome[1] * (len(places) - len(kept))
        places, alignments = [places[i] for i in kept], [alignments[i] for i in kept]
    return aliased, copied


def _complete(incomplete: Plan, plan: Callable[[], Plan]) -> None:
    full = plan()
    incomplete.leaves, incomplete.warnings, incomplete.protocol = full.leaves, full.warnings, full.protocol
