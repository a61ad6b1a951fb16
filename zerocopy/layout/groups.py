"""The groups of fields that the kernels can copy, in the order in which they copy them.

The plan sorts a record's fields into these groups, and the kernels have one loop for each of
them, so that no decision is made per field.
"""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """Adjacent fields of one width.

    Attributes
    ----------
    width : int
        Bytes of a value.
    fields : int
        How many.
    swap : bool
        Whether the bytes of each value are reversed.
    """

    width: int
    fields: int
    swap: bool


#: 3-field groups come first: they write a fourth, garbage field, which later groups overwrite.
#: The order is also that in which a run of fields is split: the largest possible groups first.
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

#: The group number of fields that are in no group: those of other widths, or in several pieces.
GENERIC = len(GROUPS)
