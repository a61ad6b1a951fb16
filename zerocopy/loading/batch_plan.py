"""``BatchPlan``: how the rows of one schema become batches, planned once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from operator import not_
from typing import Any, NamedTuple

import numpy as np

from zerocopy._engine.converter import converter
from zerocopy._engine.target import resolve
from zerocopy.errors import ZeroCopyError
from zerocopy.layout.rows import write_rows
from zerocopy.loading.buffers import empty_columns
from zerocopy.loading.dataset import DecodedRows, concatenate, count_rows, slice_rows, table_bytes
from zerocopy.loading.device import DeviceCopies, device_copies
from zerocopy.loading.lists import has_lists
from zerocopy.loading.options import LoaderOptions, opening
from zerocopy.plan import Plan
from zerocopy.source import Array
from zerocopy.tables.hub import hub
from zerocopy.tables.result import Encoded, Masked, masked, rebuild


class Field(NamedTuple):
    """An array of a batch, by its path ``"['x'].mask"``, and its place in a row of a buffer.

    `shape` is that of one row, and `offset` its first byte.
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))


class Template:
    """Arrays that have one element, or one part, for each row.

    Attributes
    ----------
    fields : tuple of Field
        The arrays, in the order of their offsets.
    pitch : int
        Bytes of one row of all fields.

    Examples
    --------
    >>> template = Template({"flag": np.zeros(0, bool), "x": np.zeros((0, 2))}, in_order=False)
    >>> [(field.path, field.offset) for field in template.fields], template.pitch
    ([("['x']", 0), ("['flag']", 16)], 17)
    >>> template.build([np.ones((1, 2)), np.array([True])])
    {'flag': array([ True]), 'x': array([[1., 1.]])}
    """

    def __init__(self, tree: Any, in_order: bool) -> None:
        """`tree` is a result of a conversion to NumPy.

        Without `in_order`, fields with wide elements come first in a row, so that all are aligned.
        """
        self._tree = tree
        leaves = _leaves(tree)
        if not in_order:
            leaves.sort(key=lambda leaf: -leaf[1].dtype.itemsize)
        fields, offset = [], 0
        for path, leaf in leaves:
            fields.append(Field(path, leaf.dtype, leaf.shape[1:], offset))
            offset += fields[-1].nbytes
        self.fields: tuple[Field, ...] = tuple(fields)
        self.pitch: int = offset
        # Nested results take 2 us for each column, so dicts of arrays, the most common batches, skip them.
        flat = type(tree) is dict and all(isinstance(leaf, np.ndarray) for leaf in tree.values())
        self._names = list(tree) if flat else None
        self.is_flat: bool = flat
        places = {field.path: place for place, field in enumerate(fields)}
        self._places = [places[f"[{name!r}]"] for name in self._names or ()]

    def flatten(self, tree: Any) -> list[Array]:
        """Return the arrays of a result like the template, in the order of `fields`."""
        if self._names is not None:
            arrays: list[Any] = [None] * len(self._names)
            for name, place in zip(self._names, self._places, strict=True):
                arrays[place] = tree[name]
            return arrays
        leaves = dict(_leaves(tree))
        return [leaves[field.path] for field in self.fields]

    def build(self, arrays: Sequence[Any]) -> Any:
        """Return a result like the template with `arrays` in the order of `fields`."""
        if self._names is not None:
            return {name: arrays[place] for name, place in zip(self._names, self._places, strict=True)}
        by_path = {field.path: array for field, array in zip(self.fields, arrays, strict=True)}
        return rebuild(self._tree, lambda leaf, path: by_path[path], categories=False)

    def with_constants(self, convert: Callable[[Any], Any]) -> Template:
        """Return the template with the categories of its codes converted."""
        result = copy.copy(self)
        result._tree = _with_categories(
            self._tree, lambda part: rebuild(part, lambda leaf, path: convert(leaf))
        )
        return result


class SharedCategories:
    """Converts batches of tables whose codes have the same categories: one object for all batches."""

    def __init__(self, convert: Callable[[Any], Any], empty: Any) -> None:
        """`empty` is a batch without rows, with the categories."""
        self._convert = convert
        self._categories = {
            name: part.categories
            for name, column in empty.items()
            if isinstance(part := column.values if isinstance(column, Masked) else column, Encoded)
            and part.categories is not None
        }

    def __call__(self, content: Any) -> Any:
        """Return a batch."""
        batch = self._convert(content)
        for name, categories in self._categories.items():
            batch[name] = _with_categories(batch[name], lambda old, shared=categories: shared)  # type: ignore[misc]
        return batch


def full_masks(tree: Any) -> Any:
    """Return a result in which the mask of values of several dimensions has their shape.

    A conversion gives lists without a null inside them one bool per row, so batches would differ.
    """
    if isinstance(tree, dict):
        return {name: full_masks(part) for name, part in tree.items()}
    if isinstance(tree, Encoded):
        return replace(tree, values=full_masks(tree.values))
    if not isinstance(tree, Masked):
        return tree
    values, mask = full_masks(tree.values), tree.mask
    if isinstance(values, np.ndarray) and mask.ndim < values.ndim:
        mask = mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim))
        mask = np.ascontiguousarray(np.broadcast_to(mask, values.shape))
    return masked(values, mask)


def has_fixed_rows(tree: Any, inner: bool = False) -> bool:
    """Whether each row has the same number of bytes: no text, no lists.

    Codes within structs have the words of their row group, so their batches are converted one by one.
    """
    if isinstance(tree, dict):
        return all(has_fixed_rows(part, inner) for part in tree.values())
    if isinstance(tree, Masked):
        return has_fixed_rows(tree.values, inner)
    if isinstance(tree, Encoded):
        if tree.offsets is not None or (inner and tree.categories is not None):
            return False
        return has_fixed_rows(tree.values, inner=True)
    return isinstance(tree, np.ndarray) and not tree.dtype.hasobject


def has_row_slices(tree: Any) -> bool:
    """Whether `row_slice` divides a result: not if it has views of lists, or codes with categories."""
    if isinstance(tree, dict):
        return all(has_row_slices(part) for part in tree.values())
    if isinstance(tree, Masked):
        return has_row_slices(tree.values)
    if isinstance(tree, Encoded):
        return tree.sizes is None and tree.categories is None and has_row_slices(tree.values)
    return isinstance(tree, np.ndarray) and not tree.dtype.hasobject


def row_slice(tree: Any, low: int, high: int) -> Any:
    """Return rows of a result, which alias it; offsets are new, and begin at 0."""
    if isinstance(tree, dict):
        return {name: row_slice(part, low, high) for name, part in tree.items()}
    if isinstance(tree, Masked):
        return masked(row_slice(tree.values, low, high), tree.mask[low:high])
    if not isinstance(tree, Encoded):
        return tree[low:high]
    if tree.offsets is None:
        return replace(tree, values=row_slice(tree.values, low, high))
    offsets = tree.offsets[low : high + 1]
    return replace(tree, values=row_slice(tree.values, offsets[0], offsets[-1]), offsets=offsets - offsets[0])


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    """Return the arrays of a result that have rows: not the categories of codes, which batches share."""
    leaves: list[tuple[str, Any]] = []
    rebuild(tree, lambda leaf, path: leaves.append((path, leaf)), categories=False)
    return leaves


def _with_categories(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same result with ``change(categories)`` in place of the categories of columns of codes."""
    if isinstance(tree, dict):
        return {name: _with_categories(part, change) for name, part in tree.items()}
    if isinstance(tree, Masked):
        return Masked(_with_categories(tree.values, change), tree.mask)
    if isinstance(tree, Encoded):
        return tree if tree.categories is None else replace(tree, categories=change(tree.categories))
    return tree


class BatchPlan:
    """The conversions that make batches.

    Attributes
    ----------
    template : Template or None
        The arrays of a batch. None: each batch is converted from an Arrow table, because the target is a
        table framework, a column has no fixed number of bytes in a row, or rows with nulls are left out.
    copies : DeviceCopies or None
        Copies batches to a device in advance.
    to_target : callable
        Converts a whole batch, from a table or a dict of arrays.
    explain_batch, explain_host, explain_array : callable
        Plan a whole conversion, the conversion to arrays on the host, and that of an array to the target.
    """

    #: Whether rows are on a device, or sparse, before they are converted.
    is_decoded = False

    #: Whether lists and text of a batch are cut from those of its window before the conversion.
    own_items: bool = False

    #: Whether the plan depends on the rows that are read, because their lists may have one length.
    _awaits_lists = False

    template: Template | None = None
    copies: DeviceCopies | None = None
    to_target: Callable[[Any], Any]

    #: Whether a batch is a slice of the result of the conversion of more rows.
    _has_slices = False

    #: The plan of the columns whose arrays are made once for a group, and that of the others; or None.
    _parts: tuple[BatchPlan, BatchPlan] | None = None

    def __init__(self, content: Any, options: LoaderOptions) -> None:
        """Plan `content`, a table or a dict of arrays without rows; refuse types that the target lacks."""
        self.is_matrix: bool = options.is_matrix
        self._options = options
        self._names = [] if isinstance(content, (dict, DecodedRows)) else content.column_names
        self._latest: tuple[Any, BatchPlan] | None = None
        self._prepare(content, options)
        template = self.template
        #: The arrays of a batch, the first byte of each in a row of a buffer, and the bytes of such a row.
        self.fields: tuple[Field, ...] = template.fields if template is not None else ()
        self.offsets: list[int] = [field.offset for field in self.fields]
        self.pitch: int = template.pitch if template is not None else 0

    def _prepare(self, content: Any, options: LoaderOptions) -> None:
        self.to_target = self._convert = to_target = converter(content, options.to, **options.conversion)
        self.explain_batch: Callable[[Any], Plan] = to_target.explain
        empty = to_target(content)
        self._to_leaf = converter(np.ndarray, options.to, **options.placement)
        self.explain_array: Callable[[Any], Plan] = self._to_leaf.explain
        if resolve(options.to).kind != "tensor":
            return
        self._to_host = converter(content, "numpy", **options.decoding)
        self.explain_host: Callable[[Any], Plan] = self._to_host.explain
        tree = full_masks(self._to_host(content))
        # Nulls of a row that is left out are not decoded, so such batches are converted one by one.
        with_lists = has_lists(content)
        if has_fixed_rows(tree) and not with_lists and not options.drops_rows:
            self.template = Template(tree, in_order=self.is_matrix)
            self._result = self.template.with_constants(self._to_leaf)
            self.copies = device_copies(options, self.template.pitch, len(self.template.fields))
            return
        self.own_items = not isinstance(content, dict)
        if options.has_masks:
            self.to_target = self._through_host
        if options.is_encoded:
            self.to_target = SharedCategories(self.to_target, empty)
        if self.own_items and not self.is_matrix and not options.drops_rows:
            self._awaits_lists = with_lists
            self._divide(content, tree, options)

    def _divide(self, content: Any, tree: dict[str, Any], options: LoaderOptions) -> None:
        """Plan columns with arrays apart from text and lists, so that batches only slice them."""
        has_arrays = [
            has_fixed_rows(tree[name]) and not has_lists(content.select([name])) for name in self._names
        ]
        names = [list(compress(self._names, flags)) for flags in (has_arrays, map(not_, has_arrays))]
        if all(names):
            fixed, others = (BatchPlan(content.select(some), options.of_columns(some)) for some in names)
            fixed.copies = None  # the other columns are copied when their batch is converted
            self._parts = fixed, others
            others._has_slices = options.lists != "pad" and all(
                has_row_slices(tree[name]) for name in names[1]
            )

    def of_rows(self, content: Any) -> BatchPlan:
        """Return the plan of rows that were read, whose lists may all have one length."""
        if not self._awaits_lists:
            return self
        latest = self._latest  # one object, because several threads may read
        if latest is None or not latest[0].equals(content.schema):
            plan = self if has_lists(content) else BatchPlan(content.slice(0, 0), self._options)
            plan.copies = None  # the running iterator waits for no copies
            self._latest = latest = content.schema, plan
        return latest[1]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes of ``explain``: why host memory is not page-locked."""
        return self.copies.memory.warnings if self.copies is not None else ()

    def to_arrays(self, content: Any) -> list[Array]:
        """Return the arrays of some rows on the host, in the order of the fields; aliases where possible."""
        assert self.template is not None
        return self.template.flatten(self._to_tree(content))

    def _to_tree(self, content: Any) -> Any:
        """Return the result of some rows on the host, with masks of the shape of their values."""
        try:
            tree = self._to_host(content)
            # Without a mask, the check of a dict of arrays would take 2 us for each column.
            return tree if self.template is not None and self.template.is_flat else full_masks(tree)
        except ZeroCopyError:
            self._convert(content)  # raises the error of the target, with its fixes
            raise

    def _through_host(self, content: Any) -> Any:
        """Return a batch whose masks have the shape of their values, which the host decides."""
        return self._from_tree(self._to_tree(content))

    def _from_tree(self, tree: Any) -> Any:
        return rebuild(tree, lambda leaf, path: self._to_leaf(leaf))

    def prepared(self, content: Any) -> Any:
        """Return rows as arrays, which are made once for all batches of a group or a window."""
        if content is None or (self.template is None and self._parts is None):
            return content
        if self._parts is None:
            return dict(zip([field.path for field in self.fields], self.to_arrays(content), strict=True))
        fixed, others = self._parts
        table = content.select(others._names)
        tree = others._to_tree(table) if others._has_slices else None
        return DividedRows(fixed.prepared(content.select(fixed._names)), table, tree)

    def from_rows(self, content: Any) -> Any:
        """Return a batch from prepared rows; an alias where the target aliases the columns."""
        if isinstance(content, DividedRows):
            assert self._parts is not None
            fixed, others = self._parts
            tree = content.tree()
            rest = others.from_rows(content.table) if tree is None else others._from_tree(tree)
            columns = fixed.from_rows(content.arrays) | rest
            return {name: columns[name] for name in self._names}
        if self.template is not None:
            return self.from_arrays(list(content.values()))
        return self.to_target(hub().own_items(content) if self.own_items else content)

    def rows_of(self, buffer: Array, count: int) -> Array:
        """Return the first rows of a buffer: uint8 of shape (count, pitch)."""
        return buffer[: count * self.pitch].reshape(count, self.pitch)

    def write_rows(
        self, rows: Array, arrays: Sequence[Array], places: Array | None = None, threads: int | None = 1
    ) -> None:
        """Write arrays in the order of the fields to rows of a buffer: to the first ones, or to `places`.

        In one thread by default, because Arrow decodes the next group in the others.
        """
        whole = [a if a[:1].flags.c_contiguous else np.ascontiguousarray(a) for a in arrays]
        write_rows(rows, whole, self.offsets, places, threads)

    def from_arrays(self, arrays: Sequence[Array]) -> Any:
        """Return a batch of columns from its arrays on the host."""
        if self._result.is_flat and self.copies is None:
            return self._to_leaf(self._result.build(arrays))  # one call instead of one for each column
        return self._result.build(self._place(arrays))

    def from_matrix(self, rows: Array) -> Any:
        """Return a batch from rows of a buffer: uint8 of shape (rows, pitch)."""
        dtype = self.fields[0].dtype
        return self._place([rows.view(dtype)])[0]

    def empty_columns(self, rows: int) -> list[Array]:
        """Return uninitialised arrays of some rows on the host, in the order of the fields."""
        specs = [((rows, *field.shape), field.dtype) for field in self.fields]
        if self.copies is not None:
            return self.copies.host_arrays(specs)
        return empty_columns(specs)

    def _place(self, arrays: Sequence[Array]) -> list[Any]:
        if self.copies is not None:
            return self.copies.place(arrays)
        return [self._to_leaf(array) for array in arrays]


class DividedRows(DecodedRows):
    """Rows of a table: arrays of some columns, and a table of the others."""

    def __init__(self, arrays: dict[str, Array], table: Any, whole: Any, first: int = 0) -> None:
        """`whole` is the result for a longer table, in which `table` begins at row `first`; or None."""
        self.arrays: dict[str, Array] = arrays
        self.table: Any = table
        self._whole, self._first = whole, first

    @property
    def num_rows(self) -> int:
        return count_rows(self.table)

    @property
    def nbytes(self) -> int:
        return table_bytes(self.arrays) + table_bytes(self.table)

    def tree(self) -> Any:
        """Return these rows of the result for the longer table; None without one."""
        return (
            None if self._whole is None else row_slice(self._whole, self._first, self._first + self.num_rows)
        )

    def slice(self, start: int, length: int) -> DividedRows:
        arrays = slice_rows(self.arrays, start, start + length)
        return DividedRows(arrays, self.table.slice(start, length), self._whole, self._first + start)

    def joined(self, others: Sequence[DividedRows]) -> DividedRows:
        rows = (self, *others)
        table = concatenate([each.table for each in rows])
        return DividedRows(concatenate([each.arrays for each in rows]), table, None)


class DecodedPlan(BatchPlan):
    """Batches are converted from slices of `DecodedRows`."""

    is_decoded = True

    def _prepare(self, content: Any, options: LoaderOptions) -> None:
        """`content` is an Arrow table of the types, or `DecodedRows`; neither has rows."""
        if isinstance(content, DecodedRows):
            with opening(options, "source"):
                to_target = converter(content.table, options.to, **options.conversion)
                to_target(content.table)  # refuses a type that the target lacks
        else:
            to_target = converter(content.schema, options.to, **options.conversion)
        self.to_target: Callable[[Any], Any] = lambda rows: to_target(rows.table)


def plan_batches(content: Any, options: LoaderOptions) -> BatchPlan:
    """Return the plan of a source's batches; `content` has its columns without rows."""
    is_decoded = options.engine is not None or isinstance(content, DecodedRows)
    return DecodedPlan(content, options) if is_decoded else BatchPlan(content, options)
