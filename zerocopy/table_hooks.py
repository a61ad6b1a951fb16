"""What a framework says of tables: by default that it has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zerocopy.errors import Reason, lacking

if TYPE_CHECKING:
    from zerocopy.tables.column import Column, Table


class TableHooks:
    """The part of :class:`zerocopy.Framework` that one with tables overrides."""

    name: str = ""
    mutable: bool = True

    def table(self, obj: Any, index: bool | None = None) -> Table | None:
        """Describe an object that the framework owns as columns; None for a tensor.

        Parameters
        ----------
        obj : object
            Of a type that it `owns`.
        index : bool, optional
            What ``index=`` asks for, where rows have labels.

        Returns
        -------
        Table or None
            Over the object's memory; nothing is copied for it.
        """
        return None

    def column_reasons(self, column: Column) -> list[Reason]:
        """Return why a column that comes in is copied; an empty list if all of it is aliased.

        Parameters
        ----------
        column : Column
            Of any framework.

        Returns
        -------
        list of Reason
            Each with its remedy.

        Raises
        ------
        ZeroCopyError
            The framework cannot hold it; the message is prefixed with "column 'x': ".
        """
        return column.arrow_reasons()

    def table_reasons(self, table: Table) -> list[list[Reason]]:
        """Return why each column is copied for its place in a table, beside its `column_reasons`.

        Parameters
        ----------
        table : Table
            The one that comes in.

        Returns
        -------
        list of list of Reason
            A list a column.
        """
        return [[] for _ in table.columns]

    def guards_writes(self, column: Column) -> bool:
        """Whether a column that is aliased cannot be written to in place.

        Parameters
        ----------
        column : Column
            One that comes in.

        Returns
        -------
        bool
            Whether the framework itself keeps writers off.
        """
        return False

    def table_warnings(self, table: Table) -> tuple[str, ...]:
        """Return what of a table does not survive, and why.

        Parameters
        ----------
        table : Table
            The one that comes in.

        Returns
        -------
        tuple of str
            For the plan's warnings.
        """
        return ()

    def alias_warnings(self, table: Table) -> tuple[str, ...]:
        """Return what to beware of where the framework aliases some of a table.

        Parameters
        ----------
        table : Table
            The one that comes in.

        Returns
        -------
        tuple of str
            For the plan's warnings.
        """
        if self.mutable or not any(column.changes for column in table.columns):
            return ()
        return (
            f"{self.name} takes its memory never to change: writing to the source would change "
            "the result (copy=True takes a snapshot)",
        )

    def select_metadata(self, metadata: dict[bytes, bytes], labels: Sequence[str]) -> dict[bytes, bytes]:
        """Return a schema's metadata, with the framework's own entry adapted to a selection of columns.

        Parameters
        ----------
        metadata : dict of bytes to bytes
            It has an entry whose key is the framework's `name`.
        labels : sequence of str
            The columns that are kept.

        Returns
        -------
        dict of bytes to bytes
            `metadata` itself where the entry needs no change.
        """
        return metadata

    def from_table(self, table: Table) -> Any:
        """Make a table of columns that `column_reasons` took.

        Parameters
        ----------
        table : Table
            With a column for each label.

        Returns
        -------
        object
            The framework's table; it aliases what it can, and keeps that alive.
        """
        raise lacking(self.name, "from_table")

    def from_column(self, table: Table) -> Any:
        """Make a column of the only one of a table that is a series.

        Parameters
        ----------
        table : Table
            Of one column, with ``single`` True.

        Returns
        -------
        object
            The framework's column; it aliases what it can, and keeps that alive.
        """
        raise lacking(self.name, "from_column")
