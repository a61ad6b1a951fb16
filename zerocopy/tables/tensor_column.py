"""Columns in memory that is no Arrow array: an ndarray of pandas, a tensor in a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from zerocopy.dtype import DType, by_name
from zerocopy.errors import Reason, UnsupportedConversionError
from zerocopy.protocols.arrow_schema import Field
from zerocopy.source import Array, Source
from zerocopy.strided_view import StridedView
from zerocopy.tables.column import Column

_BOOL = by_name("bool")


class TensorColumn(Column):
    """A column whose rows are the first dimension of a tensor.

    Parameters
    ----------
    source : Source
        The values: of integers where `field` says that they stand for something else.
    field : Field, optional
        What integers stand for: dates, times, codes. None: they are what they are.
    mask : callable, optional
        ``mask() -> ndarray or None``, of bool, True where a row is null.
    categories : Column, optional
        What codes stand for.
    reasons : tuple of Reason
        See :class:`Column`.
    """

    def __init__(
        self,
        source: Source,
        field: Field | None = None,
        mask: Callable[[], Array | None] | None = None,
        categories: Column | None = None,
        reasons: tuple[Reason, ...] = (),
    ) -> None:
        self.source, self.field, self.name, self.reasons = source, field, source.name, reasons
        self.length = source.view.shape[0]
        self.changes = not source.view.readonly and not source.reasons
        self._mask, self._categories = mask, categories

    @classmethod
    def masked(cls, values: Source, mask: Source) -> TensorColumn:
        """Return a column of values with a mask that is True where a row is null.

        Raises
        ------
        UnsupportedConversionError
            The mask is not of bool, or not one value per row.
        """
        shape = values.view.shape
        if len(shape) != 1 or mask.view.shape != shape or mask.view.dtype.name != "bool":
            raise UnsupportedConversionError(
                "",
                f"mask has dtype {mask.view.dtype} and shape {mask.view.shape}; "
                f"expected bool with shape {shape}",
                "pass a boolean mask with one value per row",
                code="invalid-mask",
            )

        def nulls() -> Array:
            fetch = mask.to_host
            array: Array = mask.host() if mask.view.device.is_host or fetch is None else fetch(None)
            return array

        return cls(values, mask=cache(nulls))

    @cached_property
    def nulls(self) -> Array | None:
        """Which rows are null, or None: where the producer must be asked, once."""
        return self._mask() if self._mask is not None else None

    @property
    def null_count(self) -> int:
        return 0 if self.nulls is None else int(np.count_nonzero(self.nulls))

    @property
    def nbytes(self) -> int:
        return self.source.view.nbytes

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        return replace(self.source, reasons=(*self.reasons, *self.source.reasons))

    def mask(self) -> Source:
        made = self.nulls if self.nulls is not None else np.zeros(self.length, np.bool_)
        view = StridedView(
            made.ctypes.data, made.shape, made.strides, _BOOL, self.source.view.device, True, made
        )
        return Source(self.name, view, lambda: made, "buffer", obj=made)

    def dictionary(self) -> Column:
        assert self._categories is not None
        return self._categories

    def arrow(self) -> Any:
        return _hub().tensor_to_arrow(self)

    def arrow_reasons(self) -> list[Reason]:
        found: list[Reason] = _hub().tensor_reasons(self)
        return [*self.reasons, *found]

    def extents(self) -> Iterator[tuple[int, int]]:
        if not self.source.reasons and self.source.view.device.is_host:
            low, high = self.source.view.bounds
            if high > low:
                yield low, high


def _hub() -> Any:
    """Return pyarrow's file: it alone knows how Arrow arrays are made of memory."""
    from zerocopy import registry

    hub = registry.by_name("pyarrow")
    hub.module()
    return hub
