"""``SparseLayout``: how the parts of a sparse array belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from zerocopy.errors import Fix, UnsupportedConversionError
from zerocopy.sparse_ragged.ragged import as_numpy

Array = np.ndarray[Any, Any]

#: Formats with row pointers: their parts are data, indices and indptr.
COMPRESSED = ("csr", "csc", "bsr")


class SparseLayout(NamedTuple):
    """The layout of a sparse array.

    Attributes
    ----------
    format : str
        ``"csr"``, ``"csc"``, ``"bsr"`` (parts: data, indices, indptr) or ``"coo"`` (parts: data, then the
        coordinates as `coords` says).
    shape : tuple of int
        The shape of the array.
    is_sorted, is_unique : bool or None
        Whether the indices are sorted, and whether each occurs once. None if unknown.
    coords : str
        For COO: ``"separate"``, one array for each dimension; ``"by-dimension"``, one array of shape (ndim,
        count); ``"by-point"``, one of shape (count, ndim). Empty for other formats.
    reader : str
        The framework whose hook read the layout, if that framework takes its own arrays as they are.

    Examples
    --------
    >>> SparseLayout("csr", (2, 3)).names
    ('data', 'indices', 'indptr')
    """

    format: str
    shape: tuple[int, ...]
    is_sorted: bool | None = None
    is_unique: bool | None = None
    coords: str = ""
    reader: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        if self.format in COMPRESSED:
            return ("data", "indices", "indptr")
        if self.coords != "separate":
            return ("data", "coords")
        return ("data", *(f"coords[{axis}]" for axis in range(len(self.shape))))

    @property
    def is_canonical(self) -> bool:
        """Whether the indices are known to be sorted and unique."""
        return self.is_sorted is True and self.is_unique is True

    def summarize(self, name: str, parts: Sequence[Any]) -> str:
        count = int(np.prod(tuple(parts[0].shape)))
        dtype = str(parts[0].dtype).rpartition(".")[2]
        return f"{name} {dtype} {self.shape} with {count:,} element{'s' if count != 1 else ''}"

    def check(self, parts: Sequence[Any]) -> None:
        if self.format not in COMPRESSED:
            return self._check_coo(parts)
        data, indices, indptr = parts
        count, entries = indices.shape[0], indptr.shape[0]
        rows = self.shape[1] if self.format == "csc" else self.shape[0]
        if self.format == "bsr":
            rows //= max(data.shape[1], 1)
        if data.shape[0] != count:
            raise _invalid(f"it has {data.shape[0]:,} values and {count:,} indices", self.format)
        if entries != rows + 1:
            raise _invalid(
                f"indptr has {entries:,} entries, and {rows:,} rows need {rows + 1:,}", self.format
            )
        if hasattr(indptr, "__cuda_array_interface__"):
            return None  # reading an entry would wait for the device
        if int(indptr[0]) != 0 or int(indptr[-1]) != count:
            why = f"indptr goes from {int(indptr[0]):,} to {int(indptr[-1]):,}, and it has {count:,} elements"
            raise _invalid(why, self.format)
        return None

    def _check_coo(self, parts: Sequence[Any]) -> None:
        count = parts[0].shape[0]
        axis = 1 if self.coords == "by-dimension" else 0
        if self.coords != "separate":
            expected = (len(self.shape), count) if axis else (count, len(self.shape))
            if tuple(parts[1].shape) != expected:
                raise _invalid(
                    f"coordinates of shape {tuple(parts[1].shape)} do not fit {count:,} values", "coo"
                )
        elif any(part.shape[0] != count for part in parts[1:]):
            raise _invalid(f"its coordinates differ in number from its {count:,} values", "coo")

    def check_content(self, parts: Sequence[Any]) -> None:
        for axis, indices in self._indices(parts):
            limit = self._limit(axis, parts)
            if len(indices) and (indices.min() < 0 or indices.max() >= limit):
                at = int(np.flatnonzero((indices < 0) | (indices >= limit))[0])
                raise UnsupportedConversionError(
                    "",
                    f"index {int(indices[at])} at [{at}] lies outside the {limit:,} {_NAMES[self.format]}",
                    "build it from valid indices",
                    code="out-of-bounds",
                )
        if self.format in COMPRESSED:
            self.check_pointers(parts)

    def check_pointers(self, parts: Sequence[Any]) -> None:
        """Raise `UnsupportedConversionError` if indptr goes down; after `check`, rows lie in the arrays."""
        indptr = as_numpy(parts[2])
        falls = np.flatnonzero(indptr[1:] < indptr[:-1])
        if len(falls):
            raise _invalid(f"indptr goes down at [{int(falls[0]) + 1}]", self.format)

    def check_cast(self, parts: Sequence[Any]) -> None:
        # 200 + 100 is 44 in uint8, and 300 if each value is cast first.
        if self.is_unique is not True and not self.order(parts)[1]:
            raise UnsupportedConversionError(
                "",
                "it has duplicate indices, whose values add up in its own type, but dtype= casts each first",
                code="not-canonical",
                fixes=[Fix(action=self.canonical_action, effect="adds up duplicates")],
            )

    @property
    def canonical_action(self) -> str:
        """The `Fix.action` that sorts indices and adds up duplicates."""
        return "canonical-coo" if self.format == "coo" else "canonical"

    def warnings(self, parts: Sequence[Any]) -> tuple[str, ...]:
        if self.is_canonical:
            return ()
        is_sorted, is_unique = self.order(parts)
        lines = []
        if not is_sorted:
            lines.append(f"its indices are not sorted within {_ORDERED[self.format]}")
        if not is_unique:
            lines.append("it has duplicate indices, whose values add up")
        return tuple(lines)

    def order(self, parts: Sequence[Any]) -> tuple[bool, bool]:
        """Return whether the indices are sorted, and whether each occurs once; reads all of them.

        Examples
        --------
        >>> values, columns, rows = np.ones(3), np.array([1, 0, 0]), np.array([0, 2, 3])
        >>> SparseLayout("csr", (2, 2)).order((values, columns, rows))
        (False, True)
        """
        if self.is_canonical or not len(parts[0]):
            return True, True
        if self.format in COMPRESSED:
            indices, indptr = as_numpy(parts[1]), as_numpy(parts[2])
            rows = np.repeat(np.arange(len(indptr) - 1), np.maximum(np.diff(indptr), 0))
            keys = rows[: len(indices)] * (int(indices.max(initial=0)) + 1) + indices[: len(rows)]
        else:
            coords = [indices for _, indices in self._indices(parts)]
            if not coords:  # an array without dimensions has one place
                return True, len(parts[0]) == 1
            try:
                keys = np.ravel_multi_index(
                    tuple(c.astype(np.int64) for c in coords), self.shape, mode="clip"
                )
            except ValueError:  # the shape has more elements than int64 counts
                order = np.unique(np.stack(coords), axis=1, return_index=True)[1]
                return bool((np.diff(order) > 0).all()), len(order) == len(parts[0])
        steps = np.diff(keys)
        is_sorted = bool((steps >= 0).all())
        return is_sorted, bool((steps > 0).all()) if is_sorted else len(np.unique(keys)) == len(keys)

    def _indices(self, parts: Sequence[Any]) -> list[tuple[int, Array]]:
        """Return pairs of an axis and its indices, in host memory."""
        if self.format in COMPRESSED:
            return [(0 if self.format == "csc" else 1, as_numpy(parts[1]))]
        if self.coords == "separate":
            return [(axis, as_numpy(part)) for axis, part in enumerate(parts[1:])]
        stacked = as_numpy(parts[1])
        return list(enumerate(stacked if self.coords == "by-dimension" else stacked.T))

    def _limit(self, axis: int, parts: Sequence[Any]) -> int:
        size = self.shape[axis]
        return size // max(parts[0].shape[2], 1) if self.format == "bsr" else size


#: Names of the lines that an index selects, by format, and of the lines within which indices are sorted.
_NAMES = {"csr": "columns", "csc": "rows", "bsr": "block columns", "coo": "positions of its dimension"}
_ORDERED = {"csr": "each row", "csc": "each column", "bsr": "each block row", "coo": "the array"}


def _invalid(why: str, form: str) -> UnsupportedConversionError:
    return UnsupportedConversionError(
        "", why, f"build the {form.upper()} array from valid parts", code="invalid-sparse"
    )


def name_of_lines(layout: SparseLayout) -> str:
    """Return the name of the lines within which indices are sorted, for messages."""
    return _ORDERED[layout.format]


def require_dimension(target: str, layout: SparseLayout) -> None:
    """Refuse an array without dimensions for a target whose arrays have one or more."""
    if not layout.shape:
        raise UnsupportedConversionError(
            f"to={target!r}",
            f"a sparse array of {target} has one dimension or more",
            code="too-few-dimensions",
            fixes=[Fix("{x}[None]", "adds a dimension", action="add-dimension")],
        )


def refuse_format(target: str, layout: SparseLayout, formats: Sequence[str]) -> UnsupportedConversionError:
    """Return the error for a format that a target does not have."""
    return UnsupportedConversionError(
        f"to={target!r}",
        f"{target} has no {layout.format.upper()} arrays",
        code="sparse",
        fixes=[Fix(action=f"to-{form}", effect=f"makes it {form.upper()}") for form in formats],
    )
