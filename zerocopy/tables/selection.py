"""``columns=``: some of a table's columns, in the order that was asked for."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import Any

from zerocopy.errors import UnsupportedConversionError
from zerocopy.tables import pandas_metadata
from zerocopy.tables.column import Table


def select(table: Table, wanted: Any) -> Table:
    """Return the table with the columns that were asked for, in that order.

    Raises
    ------
    UnsupportedConversionError
        A name that no column has, or that several have.
    """
    if wanted is None:
        return table
    if table.single:
        raise UnsupportedConversionError(
            "", "columns= picks from a table, and this is one column", "leave it out"
        )
    labels = list(table.labels)
    places = []
    for label in wanted:
        count = labels.count(label)
        if count != 1:
            import difflib

            near = difflib.get_close_matches(str(label), [x for x in labels if isinstance(x, str)], n=3)
            raise UnsupportedConversionError(
                "",
                f"{'no column' if not count else f'{count} columns'} of the table "
                f"{'is' if count < 2 else 'are'} called {label!r}",
                f"did you mean {' or '.join(map(repr, near))}?"
                if near and not count
                else f"it has: {labels}",
            )
        places.append(labels.index(label))
    first = len(labels) - table.index
    # The index is what stands last: of the columns asked for, as many as still do.
    index = len(list(takewhile(lambda i: i >= first, reversed(places))))
    return replace(
        table,
        labels=[labels[i] for i in places],
        columns=[table.columns[i] for i in places],
        metadata=pandas_metadata.selected(table.metadata, [str(labels[i]) for i in places]),
        obj=None,
        index=index,
    )
