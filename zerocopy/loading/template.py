"""``Template``: the arrays of a batch and its nested structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from zerocopy.source import Array
from zerocopy.tables.result import Encoded, Masked, masked, rebuild


@dataclass(frozen=True, slots=True)
class Field:
    """An array of a batch, and its place in a row of a buffer.

    Attributes
    ----------
    path : str
        Its place in the batch: ``"['x'].mask"``.
    dtype : numpy.dtype
        The type of its elements.
    shape : tuple of int
        The shape of one row.
    offset : int
        Its first byte in a row.
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

    Parameters
    ----------
    tree : dict, Masked, Encoded or array
        The result of a conversion to NumPy, with or without rows.
    in_order : bool
        Whether the fields keep the order of `tree`. Otherwise those with wide elements come first in a row,
        so that all are aligned.

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
        self._tree = tree
        leaves = _leaves(tree)
        if not in_order:
            leaves.sort(key=lambda leaf: -leaf[1].dtype.itemsize)
        fields, offset = [], 0
        for path, leaf in leaves:
            fields.append(Field(path, leaf.dtype, leaf.shape[1:], offset))
            offset += fields[-1].nbytes
        self.fields, self.pitch = tuple(fields), offset
        # Nested results take 2 us for each column, so dicts of arrays, the most common batches, skip them.
        flat = type(tree) is dict and all(isinstance(leaf, np.ndarray) for leaf in tree.values())
        self._names = list(tree) if flat else None
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
        return _replaced(self._tree, lambda leaf, path: by_path[path])

    def with_constants(self, convert: Callable[[Any], Any]) -> Template:
        """Return the template with the categories of its codes converted."""
        if self._names is not None:
            return self
        result = object.__new__(Template)
        result.__dict__.update(self.__dict__)
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


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    """Return the arrays of a result that have rows: not the categories of codes, which batches share."""
    leaves: list[tuple[str, Any]] = []
    _replaced(tree, lambda leaf, path: leaves.append((path, leaf)))
    return leaves


def _replaced(tree: Any, leaf: Callable[[Any, str], Any], path: str = "") -> Any:
    """Return the same result with ``leaf(array, path)`` in place of arrays that have rows."""
    if isinstance(tree, dict):
        return {name: _replaced(part, leaf, f"{path}[{name!r}]") for name, part in tree.items()}
    if isinstance(tree, Masked):
        values = _replaced(tree.values, leaf, path + ".values")
        return masked(values, leaf(tree.mask, path + ".mask"))
    if isinstance(tree, Encoded):
        return replace(tree, values=_replaced(tree.values, leaf, path + ".values"))
    return leaf(tree, path)


def _with_categories(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return the same result with ``change(categories)`` in place of the categories of columns of codes."""
    if isinstance(tree, dict):
        return {name: _with_categories(part, change) for name, part in tree.items()}
    if isinstance(tree, Masked):
        return Masked(_with_categories(tree.values, change), tree.mask)
    if isinstance(tree, Encoded):
        return tree if tree.categories is None else replace(tree, categories=change(tree.categories))
    return tree
