"""``BatchPlan``: how the rows of one schema become batches, planned once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zerocopy._engine.plan_for import plan_for
from zerocopy._engine.target import resolve
from zerocopy.errors import ZeroCopyError
from zerocopy.loading.buffers import empty_columns
from zerocopy.loading.device import DeviceCopies, device_copies
from zerocopy.loading.messages import in_terms_of_loader
from zerocopy.loading.options import LoaderOptions
from zerocopy.loading.template import SharedCategories, Template, has_fixed_rows
from zerocopy.source import Array


class BatchPlan:
    """The conversions that make batches.

    Attributes
    ----------
    template : Template or None
        The arrays of a batch. None: each batch is converted from an Arrow table, because the target is a
        table framework, or because a column has no fixed number of bytes in a row.
    copies : DeviceCopies or None
        Copies batches to a device in advance.
    is_matrix : bool
        Whether a batch is one tensor.
    is_decoded : bool
        Whether rows are on a device before they are converted.
    explain_batch, explain_host, explain_array : callable
        Plan a whole conversion, the conversion to arrays on the host, and that of an array to the target.
    """

    is_decoded = False

    def __init__(self, content: Any, options: LoaderOptions) -> None:
        """Plan `content`, a table or a dict of arrays without rows; refuse types that the target lacks."""
        self._options = options
        with in_terms_of_loader(options):
            self._prepare(content, options)

    def _prepare(self, content: Any, options: LoaderOptions) -> None:
        #: Converts a whole batch, from a table or a dict of arrays.
        converter = plan_for(content, options.to, **options.conversion)
        self.explain_batch = converter.explain
        self.to_target: Callable[[Any], Any] = converter
        empty = converter(content)
        self.is_matrix = options.is_matrix
        self.template: Template | None = None
        self._to_leaf = plan_for(np.ndarray, options.to, **options.placement)
        self.copies: DeviceCopies | None = None
        self.explain_array = self._to_leaf.explain
        if resolve(options.to).kind != "tensor":
            return
        self._to_host = plan_for(content, "numpy", **options.decoding)
        self.explain_host = self._to_host.explain
        tree = self._to_host(content)
        if has_fixed_rows(tree):
            self.template = Template(tree, in_order=self.is_matrix)
            self._result = self.template.with_constants(self._to_leaf)
            self.copies = device_copies(options, self.template)
        elif options.is_encoded:
            self.to_target = SharedCategories(converter, empty)

    @property
    def fields(self) -> tuple[Any, ...]:
        """The arrays of a batch, if it has a template."""
        return self.template.fields if self.template is not None else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes of ``explain``: why host memory is not page-locked."""
        return self.copies.memory.warnings if self.copies is not None else ()

    def to_arrays(self, content: Any) -> list[Array]:
        """Return the arrays of some rows on the host, in the order of the fields; aliases where possible."""
        assert self.template is not None
        try:
            return self.template.flatten(self._to_host(content))
        except ZeroCopyError:
            with in_terms_of_loader(self._options):
                self.to_target(content)  # raises the error of the target, with its fixes
            raise

    def from_arrays(self, arrays: Sequence[Array]) -> Any:
        """Return a batch of columns from its arrays on the host."""
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
