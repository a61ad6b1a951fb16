"""``ConversionReport``: rows as text, as HTML for notebooks, and as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zerocopy.monitor import conversion_table
from zerocopy.monitor.conversion import ConversionRow
from zerocopy.monitor.totals import ORDERS, Totals, check_order, sort, sum_rows


class ConversionReport:
    """Base of `Recording` and `Snapshot`, which have the counts."""

    _order = ORDERS[0]

    def _unsorted(self) -> Iterable[ConversionRow]:
        """Return the counts of each call site and pair."""
        raise NotImplementedError

    @property
    def rows(self) -> list[ConversionRow]:
        """The counts of each call site and pair, in `order`."""
        return sort(self._unsorted(), self._order)

    @property
    def order(self) -> str:
        """The order of the rows: ``"bytes"``, most copied bytes first, or ``"time"``, longest first."""
        return self._order

    @order.setter
    def order(self, order: str) -> None:
        self._order = check_order(order)

    @property
    def totals(self) -> Totals:
        """Sums over all rows."""
        return sum_rows(self.rows)

    def __iter__(self) -> Iterator[ConversionRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True  # although it may have no rows yet

    def __str__(self) -> str:
        rows = self.rows
        table = conversion_table.text_table(rows)
        return conversion_table.summary(sum_rows(rows)) + (f"\n\n{table}" if table else "")

    def __repr__(self) -> str:
        return f"<zerocopy.monitor.{type(self).__name__}: {conversion_table.summary(self.totals)}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        rows = self.rows
        return conversion_table.html_table(conversion_table.summary(sum_rows(rows)), rows)

    def to_arrow(self) -> Any:
        """Return the rows as a ``pyarrow.Table``.

        Returns
        -------
        pyarrow.Table
            A column for each attribute of `ConversionRow`. The metadata of a field has its unit.

        Raises
        ------
        FrameworkNotInstalledError
            pyarrow is not installed.

        Examples
        --------
        >>> import zerocopy as zc
        >>> with zc.monitor.record() as r:
        ...     pass
        >>> r.to_arrow().schema.field("copied_bytes").metadata
        {b'unit': b'bytes'}
        """
        return conversion_table.arrow_table(self.rows)
