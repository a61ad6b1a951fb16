"""The groups of fields that the kernels know how to move, in the order in which they do.

One table for the plan, which sorts a record's fields into these groups, and for the kernels,
which have a loop for each of them: so that nothing is decided per field.
"""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """Fields of one width that lie side by side.

    Attributes
    ----------
    width : int
        Bytes of a value.
    fields : int
        How many.
    swap : bool
        Whether the order of each value's bytes is turned round.
    """

    width: int
    fields: int
    swap: bool


#: Three fields are moved as four, and so are first: what they write too much is overwritten.
#: The most fields are taken first from a run, which is the order here too.
GROUPS = (
    Group(4, 3, False),
    Group(4, 3, True),
    Group(8, 2, False),
    Group(4, 4, False),
    Group(2, 4, False),
    Group(1, 4, False),
    Group(4, 2, False),
    Group(2, 2, False),
    Group(1, 2, False),
    Group(16, 1, False),
    Group(8, 1, False),
    Group(4, 1, False),
    Group(2, 1, False),
    Group(1, 1, False),
    Group(8, 2, True),
    Group(4, 4, True),
    Group(4, 2, True),
    Group(2, 2, True),
    Group(8, 1, True),
    Group(4, 1, True),
    Group(2, 1, True),
)

#: Values that are no group: of other widths, or made of several pieces of a record.
ODD = len(GROUPS)
