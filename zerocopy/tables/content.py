"""Checks of the content of columns, in time proportional to their size.

``validate="full"`` checks Arrow columns with pyarrow; the checks that need constant time are made always, in
:mod:`zerocopy.protocols.arrow_array_checks`. Targets count the values inside a column that they cannot hold.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from types import ModuleType

import numpy as np

from zerocopy.dtype import by_name
from zerocopy.errors import FrameworkNotInstalledError, UnsupportedConversionError
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.source import Array
from zerocopy.tables import placement
from zerocopy.tables.arrow_column import ArrowColumn
from zerocopy.tables.column import ArrowArray, Column, Table
from zerocopy.tables.hub import hub
from zerocopy.tables.labels import map_columns
from zerocopy.tables.object_column import ObjectColumn


def check(table: Table) -> None:
    """Check the content of a table's columns; columns that are not in Arrow memory have none to check.

    Raises
    ------
    UnsupportedConversionError
        The content is invalid, lies on a device, or has a type that pyarrow lacks.
    FrameworkNotInstalledError
        pyarrow is not installed.
    """
    map_columns(table, _check)


def _check(label: Hashable, path: str, column: Column) -> None:
    if not isinstance(column, ArrowColumn) or isinstance(column, ObjectColumn):  # pyarrow made the latter
        return
    try:
        pa = hub().module()
    except FrameworkNotInstalledError as error:
        error.with_context(why=f"validate='full' checks Arrow columns with pyarrow: {error.why}")
        raise
    column.arrow_reasons()  # refuses device memory, and types that Arrow lacks
    for chunk in _chunks(column.arrow()):
        # pyarrow 26 rejects valid empty slices of string views.
        if len(chunk):
            validate(pa, chunk)


def _chunks(array: ArrowArray) -> list[ArrowArray]:
    return list(array.chunks) if hasattr(array, "chunks") else [array]


def validate(pa: ModuleType, chunk: ArrowArray) -> None:
    """Check the content of an array."""
    try:
        chunk.validate(full=True)
    except (pa.ArrowException, ValueError, IndexError) as error:
        why, remedy = f"its content is invalid: {error}", "fix it where it is created"
        raise UnsupportedConversionError("", why, remedy, code="invalid-content") from error


# -- values that a target cannot hold -------------------------------------------------------

#: The length of a day in each unit.
DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
#: Returns the smallest and the largest integer of a type that a target holds; None if it holds all.
Bounds = Callable[[Field], tuple[int, int] | None]

_TEXT = ("string", "binary", "string_view", "binary_view")


def leaves(array: ArrowArray, pa: ModuleType) -> Iterator[ArrowArray]:
    """Yield the innermost arrays of an array, without items of null rows and without text and bytes.

    Dictionaries, unions and runs yield all their values, including those that no row uses.
    """
    for chunk in _chunks(array):
        kind = str(chunk.type).partition("<")[0]
        parts: list[ArrowArray] = []
        if hasattr(chunk, "storage"):
            parts = [chunk.storage]
        elif hasattr(chunk, "dictionary"):
            parts = [chunk.dictionary]
        elif kind == "struct":
            parts = [_field(chunk, i, pa) for i in range(chunk.type.num_fields)]
        elif kind == "map":  # it has no flatten(), and its keys include those of other rows
            entries = pa.struct([chunk.type.key_field, chunk.type.item_field])
            parts = [chunk.cast(pa.list_(entries)).flatten()]
        elif "list" in kind:
            parts = [hub().items(chunk)]
        elif "union" in kind:
            parts = [chunk.field(i) for i in range(chunk.type.num_fields)]
        elif kind == "run_end_encoded":
            parts = [chunk.values]
        # No caller inspects text.
        elif len(chunk) and not kind.endswith(_TEXT):
            yield chunk
        for part in parts:
            yield from leaves(part, pa)


def _field(struct: ArrowArray, place: int, pa: ModuleType) -> ArrowArray:
    """Return a field of a struct, null where the struct is; a union, which has no nulls, unchanged."""
    # struct_field() and flatten() of pyarrow 26 abort the process for a union in a struct with null rows.
    if pa.types.is_union(struct.type.field(place).type) or not struct.null_count:
        return struct.field(place)
    return hub().compute().struct_field(struct, [place])


def numbers(leaf: ArrowArray, dtype: np.dtype[np.generic]) -> Array:
    """Return the elements of an array of fixed width, those of null rows too, as an alias."""
    return np.frombuffer(leaf.buffers()[1], dtype)[leaf.offset : leaf.offset + len(leaf)]


def count(leaf: ArrowArray, dtype: np.dtype[np.generic], is_refused: Callable[[Array], Array]) -> int:
    """Count the elements of an array that are refused and not null."""
    refused = int(np.count_nonzero(is_refused(numbers(leaf, dtype))))
    return count(leaf.drop_null(), dtype, is_refused) if refused and leaf.null_count else refused


def outside(column: Column, bounds: Bounds) -> int:
    """Count the values of a column, and inside it, that are outside the bounds of their type."""
    field = column.field
    if field is None or not column.length or not any(bounds(part) for part in field.walk()):
        return 0
    if column.source is None:
        column.arrow_reasons()  # refuses types that Arrow lacks
        return outside_in(column.arrow(), bounds)
    if field.dictionary is not None:
        return outside(column.dictionary(), bounds)
    values = placement.fetch(column.values(by_name(field.dtype)))
    refused = _beyond(values, *(bounds(field) or (0, 0)))
    # Some columns store nulls as values: NaT is the least integer.
    return int(np.count_nonzero(refused & ~column.mask().host())) if refused.any() else 0


def _beyond(values: Array, least: int, most: int) -> Array:
    """Return which values are outside the bounds; an empty array if none is."""
    # min() and max() take a tenth of the time of two comparisons, and most columns have no such value.
    if not len(values) or (values.min() >= least and values.max() <= most):
        return np.empty(0, np.bool_)
    return (values < least) | (values > most)


def outside_in(array: ArrowArray, bounds: Bounds) -> int:
    """Count the values inside an Arrow array that are outside the bounds of their type."""
    return sum(_outside(leaf, bounds) for leaf in leaves(array, hub().module()))


def _outside(leaf: ArrowArray, bounds: Bounds) -> int:
    field = read_schema(leaf.type.__arrow_c_schema__())
    limits = bounds(field)
    if limits is None:
        return 0
    return count(leaf, by_name(field.dtype).storage, lambda values: _beyond(values, *limits))
